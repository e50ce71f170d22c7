"""Functional coverage against a block's testplan.

`testplan.toml` beside a testbench holds one table per testpoint:

    [[testpoint]]
    name = "back_pressure"
    description = "Every output stalls while every input has data"
    tests = ["test_random"]
    bins = ["none", "light", "heavy"]     # optional: what a random test must have seen
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Testpoint:
    name: str
    description: str
    tests: tuple[str, ...]
    bins: tuple[str, ...] = ()
    __test__ = False


def load_testplan(path: Path) -> dict[str, Testpoint]:
    """Testpoints by name. Raises ValueError for an unknown key or a testpoint without tests."""
    points = {}
    for entry in tomllib.loads(path.read_text())["testpoint"]:
        unknown = set(entry) - {"name", "description", "tests", "bins"}
        if unknown or not entry.get("tests"):
            raise ValueError(f"{path}: testpoint {entry.get('name')!r}: unknown {sorted(unknown)} or no tests")
        points[entry["name"]] = Testpoint(
            entry["name"], entry["description"], tuple(entry["tests"]), tuple(entry.get("bins", ()))
        )
    return points


@dataclass
class Coverage:
    """Counts of the bins of a testplan. `hit` refuses a bin that the plan does not have."""

    testplan: dict[str, Testpoint]
    counts: dict[tuple[str, str], int] = field(default_factory=dict)

    def hit(self, point: str, bin: str) -> None:
        if point not in self.testplan or bin not in self.testplan[point].bins:
            raise KeyError(f"The testplan has no bin {point}/{bin}")
        self.counts[point, bin] = self.counts.get((point, bin), 0) + 1

    def holes(self, *points: str) -> list[str]:
        """Bins of `points` (default: all) that were never hit, as point/bin."""
        wanted = points or tuple(self.testplan)
        bins = [(point, bin) for point in wanted for bin in self.testplan[point].bins]
        return [f"{point}/{bin}" for point, bin in bins if not self.counts.get((point, bin))]
