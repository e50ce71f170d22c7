"""The report of a run: on the terminal and as one HTML page, both from `build/sim/summary.json`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scripts.report.summary import VERSION, SummaryError, check, load
from scripts.report.terminal import show

__all__ = ["VERSION", "SummaryError", "check", "load", "show", "write_page"]


def write_page(summary: Mapping[str, Any], path: Path) -> Path:
    """Write the HTML page of a checked summary and return its path."""
    from scripts.report.page import write_page as write  # draws with Matplotlib, which takes a second to import

    return write(summary, path)
