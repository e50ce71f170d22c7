"""`python -m scripts.extrapolate`: the last run's cycles carried to whole models and chips, beside the record."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from scripts.extrapolate import DescriptionError, extrapolate, published_tables, render
from scripts.report.summary import SummaryError, load

SUMMARY = Path("build/sim/summary.json")
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, help=__doc__)


@app.command()
def main(
    summary: Annotated[Path, typer.Option(help="summary of the run to start from")] = SUMMARY,
    chip: Annotated[str, typer.Option(help="chip of scripts/extrapolate/chips/ for the large models")] = "full_size",
) -> None:
    """Scenarios of the last run, and the published record."""
    console = Console()
    try:
        console.print(render(extrapolate(load(summary), chip)))
    except (DescriptionError, SummaryError) as error:
        print(f"error: {error}", file=sys.stderr)
        raise typer.Exit(2) from None
    for table in published_tables():
        console.print(table)


if __name__ == "__main__":
    app()
