"""From a golden pass to the engine's command and the beats of its streams, and back from beats to arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.fp32_ops import MINUS_ONE, NEGATIVE_ZERO, ONE, ZERO, Bits
from golden.vector import Pass, Reduce
from hw.vector.isa import STREAMS, Source, StreamMode

CONSTANTS = {int(ONE): Source.ONE, int(MINUS_ONE): Source.MINUS_ONE, int(ZERO): Source.ZERO,
             int(NEGATIVE_ZERO): Source.NEGATIVE_ZERO}  # fmt: skip


@dataclass
class Lowered:
    """A command, the beats of its four streams, and what it must give: beats (tuples of elements) and reductions."""

    command: dict[str, Any]
    streams: dict[str, list[list[int]]] = field(default_factory=lambda: {name: [] for name in STREAMS})
    result: list[tuple[int, ...]] = field(default_factory=list)
    reduced: list[int] = field(default_factory=list)


def beats(values: Bits, lanes: int) -> list[list[int]]:
    """[rows, length] as beats, each row padded with ones (which the engine must ignore)."""
    rows, length = values.shape
    padded = np.full((rows, -(-length // lanes) * lanes), np.uint32(0xFFFFFFFF))
    padded[:, :length] = values
    return [[int(v) for v in beat] for beat in padded.reshape(-1, lanes)]


def fit_mask(visible: NDArray[np.bool_]) -> dict[str, int]:
    """mask_low, mask_high and mask_group that show exactly `visible` [rows, length]. `ValueError` if none do."""
    rows, length = visible.shape
    seen = visible.any(axis=1)
    first = np.where(seen, visible.argmax(axis=1), 0)
    behind = np.where(seen, length - visible[:, ::-1].argmax(axis=1), 0)
    places = np.arange(length)
    for group in range(rows + 1):
        moved = np.arange(rows) // group if group else np.zeros(rows, np.int64)
        # A bound that is inside the row fixes where the bound starts; one that no row shows may lie anywhere outside.
        lows = {int(v) for v in (first - moved)[seen & (first > 0)]} or {-rows - length}
        highs = {int(v) for v in (behind - moved)[seen & (behind < length)]} or {length, -rows}
        for low in lows:
            for high in highs:
                shown = (places >= (low + moved)[:, None]) & (places < (high + moved)[:, None])
                if (shown == visible).all():
                    return {"mask": 1, "mask_low": low, "mask_high": high, "mask_group": group}
    raise ValueError("No mask of the engine shows these elements")


def lower(record: Pass, lanes: int, write: bool = True) -> Lowered:
    """The engine's command for one golden pass. Arrays of more than two dimensions become rows."""
    shape = np.shape(record.result) or (1,)
    # A pass over one number for each row is a pass over one long row.
    rows, length = int(np.prod(shape[:-1], dtype=np.int64)), shape[-1]
    lowered = Lowered({})
    operands, modes, immediates = {}, [StreamMode.OFF.value] * len(STREAMS), []
    streams: dict[int, int] = {}
    for name, value in record.operands.items():
        value = np.asarray(value, dtype=np.uint32)
        if value.ndim == 0:
            operands[name] = _scalar(int(value), immediates)
            continue
        if id(record.operands[name]) not in streams:
            index = len(streams)
            if index == len(STREAMS):
                raise ValueError("A pass has more operand arrays than the engine has streams")
            streams[id(record.operands[name])] = index
            by_row = value.shape[-1] == 1 and length > 1
            whole = np.broadcast_to(value, (*shape[:-1], 1 if by_row else length)).reshape(rows, -1)
            modes[index] = StreamMode.ROW.value if by_row else StreamMode.BEAT.value
            lowered.streams[STREAMS[index]] = beats(whole.reshape(1, -1) if by_row else whole, lanes)
        operands[name] = Source[STREAMS[streams[id(record.operands[name])]].upper()].value
    mask = {"mask": 0, "mask_low": 0, "mask_high": 0, "mask_group": 0}
    if record.visible is not None:
        mask = fit_mask(np.broadcast_to(record.visible, shape).reshape(rows, length))
    lowered.command = {
        "length": length, "rows": rows, "operands": operands, "modes": dict(enumerate(modes)),
        "combine": int(record.combine), "function": int(record.function), "reduce": int(record.reduce),
        "write": int(write), "immediates": dict(enumerate([*immediates, 0, 0][:2])), **mask,
    }  # fmt: skip
    if write:
        result = np.asarray(record.result).reshape(rows, length)
        lowered.result = [tuple(int(v) for v in row[i : i + lanes]) for row in result for i in range(0, length, lanes)]
    if record.reduce != Reduce.NONE:
        lowered.reduced = [int(v) for v in np.reshape(record.reduced, -1)]
    return lowered


def _scalar(value: int, immediates: list[int]) -> int:
    if value in CONSTANTS:
        return CONSTANTS[value].value
    if value not in immediates:
        immediates.append(value)
        if len(immediates) > 2:
            raise ValueError("A pass has more immediates than a command holds")
    return Source[f"IMMEDIATE_{immediates.index(value)}"].value


def kept(payload: dict[str, Any]) -> tuple[int, ...]:
    """The elements of a result beat that exist; they have to be the lowest lanes."""
    keep = payload["keep"]
    count = keep.bit_count()
    assert keep == (1 << count) - 1 and count, f"keep is {keep:#x}, which is not a run of the lowest lanes"
    return tuple(payload["elements"][:count])


def lower_all(records: Sequence[Pass], lanes: int) -> list[Lowered]:
    """All passes of a recording."""
    return [lower(record, lanes) for record in records]
