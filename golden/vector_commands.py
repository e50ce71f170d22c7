"""The functions of `golden.vector` as commands of a tile's vector unit, on rows of its memory.

Each gives, in place of arrays, the bits of the golden function of the same name. Addresses and strides are granules.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from golden.fp32_ops import MINUS_ONE, ONE, ZERO
from golden.vector import MINUS_LOG2_E, Combine, Function, Reduce, inverse_length
from hw.tile.config import LANES
from hw.tile.vector_program import Each, Rows, Vector

__all__ = ["PartialPlace", "add", "finish", "merge", "partial_places", "rms_norm", "rope", "swiglu"]


def add(rows: int, length: int, x: Rows, y: Rows, result: Rows) -> list[Vector]:
    """x + y; `result` may be x or y."""
    return [Vector(rows, length, x, z=y, result=result)]


def rms_norm(
    rows: int, length: int, x: Rows, gain: Rows, epsilon: np.uint32, scratch: int, result: Rows
) -> list[Vector]:
    """`gain` is one row; one value a row is kept at granule `scratch` and on. `result` may be x."""
    return [
        Vector(rows, length, x, x, reduce=Reduce.SUM, reduced=scratch),
        Vector(1, rows, Rows(scratch), int(inverse_length(length)), int(epsilon), function=Function.RSQRT,
               result=Rows(scratch)),
        Vector(rows, length, x, Each(scratch), v=Rows(gain.address), result=result),
    ]  # fmt: skip


def swiglu(rows: int, length: int, gate: Rows, up: Rows, result: Rows) -> list[Vector]:
    """`result` is a place of its own, which also holds what is between the passes."""
    return [
        Vector(rows, length, gate, int(MINUS_LOG2_E), function=Function.EXP2, result=result),
        Vector(rows, length, result, z=int(ONE), v=gate, function=Function.RECIPROCAL, result=result),
        Vector(rows, length, result, up, result=result),
    ]


def rope(
    rows: int, length: int, x: Rows, cosine: Rows, sine: Rows, result: Rows, factor: np.uint32 = ONE,
    table_half: int | None = None,
) -> list[Vector]:  # fmt: skip
    """Rows of pairs (i, i + length/2); `length` is a multiple of 16. `result` is a place of its own.

    The tables' second halves are `table_half` granules behind their first ones, where the rows are not whole heads.
    A command for each half of the row, since a stream reads a row from its start on.
    """
    if length % (2 * LANES):
        raise ValueError(f"A head has a multiple of {2 * LANES} channels, not {length}")
    half = length // 2 // LANES

    def at(place: Rows, second: bool, apart: int = half) -> Rows:
        return Rows(place.address + apart * second, place.stride)

    apart = half if table_half is None else table_half
    return [
        Vector(
            rows, length // 2, at(x, second), at(cosine, second, apart), at(x, not second), at(sine, second, apart),
            int(factor), result=at(result, second),
        )
        for second in (False, True)
    ]  # fmt: skip


@dataclass(frozen=True)
class PartialPlace:
    """A `golden.vector.Partial`: its output's rows, and the granules of its sums and maxima, one a row.

    Of a sink the output is 0 and the sum is 1.
    """

    output: Rows | int
    total: Rows | int
    maximum: Rows


def partial_places(
    count: int, rows: int, length: int, received: int, scratch: int
) -> tuple[list[Vector], list[PartialPlace]]:
    """`count` partial results as `golden.vector.export` gives them, from granule `received` on.

    Each has room for `rows`, a multiple of 8. Sums and maxima go to granule `scratch` and on, `count * rows / 4`.
    """
    if rows % LANES:
        raise ValueError(f"Partial results have room for a multiple of {LANES} rows, not for {rows}")
    stride, each = length // LANES + 1, rows // LANES
    statistics, maxima = Rows(received + stride - 1, stride), scratch + count * each
    commands = [
        Vector(count * rows, 1, statistics, reduce=Reduce.MAXIMUM, reduced=scratch),
        Vector(count * rows, 2, statistics, reduce=Reduce.MAXIMUM, reduced=maxima,
               mask={"mask_low": 1, "mask_high": 2}),
    ]  # fmt: skip
    return commands, [
        PartialPlace(
            Rows(received + part * rows * stride, stride), Rows(scratch + part * each), Rows(maxima + part * each)
        )
        for part in range(count)
    ]


def merge(
    rows: int, length: int, left: PartialPlace, right: PartialPlace, factor: Rows, top: Rows
) -> tuple[list[Vector], PartialPlace]:
    """The result takes the left side's place, with its maxima at `top`; `factor` is for what is between."""
    kept = left.maximum
    commands = [
        Vector(1, rows, left.maximum, z=right.maximum, combine=Combine.MAXIMUM, result=top),
        *(
            Vector(1, rows, side.maximum, z=top, w=int(MINUS_ONE), combine=Combine.DIFFERENCE, function=Function.EXP2,
                   result=result)
            for side, result in ((left, kept), (right, factor))
        ),
        Vector(1, rows, left.total, kept, right.total, factor, result=left.total),
        Vector(rows, length, left.output, Each(kept.address), right.output, Each(factor.address), result=left.output),
    ]  # fmt: skip
    return commands, PartialPlace(left.output, left.total, top)


def finish(rows: int, length: int, part: PartialPlace, factor: Rows, result: Rows) -> list[Vector]:
    """`factor` is for what is between."""
    return [
        Vector(1, rows, part.total, z=int(ONE), combine=Combine.MAXIMUM, function=Function.RECIPROCAL, result=factor),
        Vector(rows, length, part.output, Each(factor.address), z=int(ZERO), result=result),
    ]
