"""The tables of `exp2`, `reciprocal` and `rsqrt`: one set of integers that the golden functions and the hardware read.

Each function is a quadratic in every segment of its range. With `t` in [0, 1) the place inside the segment,

    y = c0 + t * (c1 + t * c2)

where c0, c1, c2 are integers with `FRACTION` fraction bits and `t` has `PLACE_BITS` of them. The coefficients
interpolate the function at the three Chebyshev nodes of the segment; in the first segment of a function one node is
the segment's start, so that exp2(0), 1/1 and 1/sqrt(1) are exact. All of it is computed with integers and `decimal`
(whose `exp`, `ln` and `sqrt` are correctly rounded), so the tables are the same on every machine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Context, Decimal, localcontext
from functools import cache

import numpy as np
from numpy.typing import NDArray

__all__ = ["C0_BITS", "C1_BITS", "C2_BITS", "FRACTION", "PLACE_BITS", "Table", "exp2_table", "reciprocal_table",
           "rsqrt_table"]  # fmt: skip

FRACTION = 30  # Fraction bits of coefficients and of y.
PLACE_BITS = 24  # Fraction bits of t.
C0_BITS = FRACTION + 1  # Unsigned: c0 is in [1/2, 2).
C1_BITS = 25  # Signed: the steepest segment is the last of exp2, which rises by 2 ln 2 / 128.
C2_BITS = 16  # Signed: the most curved is the last segment of exp2.

_PRECISION = Context(prec=60, rounding=ROUND_HALF_EVEN)
_HALF_SPREAD = Decimal(3).sqrt(_PRECISION) / 4  # The outer nodes are 1/2 +- cos(30 degrees) / 2.


@dataclass(frozen=True)
class Table:
    """Coefficients of one function: three int64 arrays of equal length, indexed by segment."""

    c0: NDArray[np.int64]
    c1: NDArray[np.int64]
    c2: NDArray[np.int64]

    def __post_init__(self) -> None:
        limits = ((self.c0, 0, 1 << C0_BITS), *(_signed(c, b) for c, b in ((self.c1, C1_BITS), (self.c2, C2_BITS))))
        for column, low, high in limits:
            if column.min() < low or column.max() >= high:
                raise ValueError(f"A coefficient of {column.min()} to {column.max()} is outside {low} to {high - 1}")
            column.flags.writeable = False

    def __len__(self) -> int:
        return len(self.c0)

    def evaluate(self, segment: NDArray[np.integer], place: NDArray[np.integer]) -> NDArray[np.int64]:
        """y with `FRACTION` fraction bits, for segment numbers and places t of `PLACE_BITS` bits.

        Both products are truncated towards minus infinity to `FRACTION` fraction bits.
        """
        t = place.astype(np.int64)
        inner = self.c1[segment] + ((self.c2[segment] * t) >> PLACE_BITS)
        return self.c0[segment] + ((inner * t) >> PLACE_BITS)


def _signed(column: NDArray[np.int64], bits: int) -> tuple[NDArray[np.int64], int, int]:
    return column, -(1 << (bits - 1)), 1 << (bits - 1)


def _fixed(value: Decimal) -> int:
    return int((value * (1 << FRACTION)).to_integral_value(rounding=ROUND_HALF_EVEN))


def _segment(function: Callable[[Decimal], Decimal], start: Decimal, width: Decimal, exact_start: bool) -> list[int]:
    """c0, c1, c2 of the quadratic through the three nodes of [start, start + width)."""
    half = Decimal(1) / 2
    nodes = [Decimal(0) if exact_start else half - _HALF_SPREAD, half, half + _HALF_SPREAD]
    values = [function(start + width * node) for node in nodes]
    slope01 = (values[1] - values[0]) / (nodes[1] - nodes[0])
    slope12 = (values[2] - values[1]) / (nodes[2] - nodes[1])
    c2 = (slope12 - slope01) / (nodes[2] - nodes[0])
    c1 = slope01 - c2 * (nodes[0] + nodes[1])
    c0 = values[0] - nodes[0] * (c1 + nodes[0] * c2)
    return [_fixed(c) for c in (c0, c1, c2)]


def _table(function: Callable[[Decimal], Decimal], ranges: list[tuple[int, int, int]]) -> Table:
    """Table over `ranges` of (start, end, segments). The first range's first segment starts exactly."""
    rows: list[list[int]] = []
    with localcontext(_PRECISION):
        for start, end, count in ranges:
            width = Decimal(end - start) / count
            rows += [_segment(function, start + width * i, width, not rows) for i in range(count)]
    c0, c1, c2 = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    return Table(c0, c1, c2)


@cache
def exp2_table() -> Table:
    """2**f for f in [0, 1): 128 segments."""
    with localcontext(_PRECISION):
        ln2 = Decimal(2).ln()
    return _table(lambda f: (f * ln2).exp(), [(0, 1, 128)])


@cache
def reciprocal_table() -> Table:
    """1/m for m in [1, 2): 256 segments; y is in (1/2, 1]."""
    return _table(lambda m: 1 / m, [(1, 2, 256)])


@cache
def rsqrt_table() -> Table:
    """1/sqrt(m) for m in [1, 2), then for m in [2, 4): 128 segments each; y is in (1/2, 1]."""
    return _table(lambda m: 1 / m.sqrt(), [(1, 2, 128), (2, 4, 128)])
