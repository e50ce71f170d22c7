"""The report of a run: on the terminal and as one HTML page, both from `build/sim/summary.json`."""

from scripts.report.summary import VERSION, SummaryError, check, load

__all__ = ["VERSION", "SummaryError", "check", "load"]
