"""From measured cycles to tok/s and watts, and beside them what is published.

`extrapolate(summary)` makes the scenarios of a run's report; `render` prints scenarios, `published_tables` the record
that they stand beside, with its conflicts. `python -m scripts.extrapolate` does all of it for the last run.
"""

from scripts.extrapolate.scenarios import extrapolate
from scripts.extrapolate.tables import published_rows, published_tables, render
from scripts.extrapolate.toml_object import DescriptionError

__all__ = ["DescriptionError", "extrapolate", "published_rows", "published_tables", "render"]
