"""The vector side of the golden machine: a vector memory and the commands on it, by `golden.vector`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden import quantise, vector
from golden.formats import Format
from golden.fp32_ops import MINUS_ONE, NEGATIVE_ZERO, ONE, ZERO
from hw.tile.config import BLOCK_GRANULES, LANES, TileConfig
from hw.tile.isa import Opcode, PlacesInstruction, VectorInstruction
from hw.vector.isa import STREAMS, Source, StreamMode

Words = NDArray[np.uint32]

_CONSTANTS = {Source.ONE: ONE, Source.MINUS_ONE: MINUS_ONE, Source.ZERO: ZERO, Source.NEGATIVE_ZERO: NEGATIVE_ZERO}


class VectorMachine:
    """`memory` uint32 [granules, 8], and the places that the last PLACES gave."""

    def __init__(self, config: TileConfig) -> None:
        self.memory: Words = np.zeros((config.vector_depth, LANES), np.uint32)
        self._places: Any = None

    def execute(self, word: int) -> None:
        """PLACES or VECTOR."""
        if Opcode(word & 15) == Opcode.PLACES:
            self._places = PlacesInstruction.from_bits(word & ((1 << PlacesInstruction.as_shape().size) - 1))
            return
        command = VectorInstruction.from_bits(word & ((1 << VectorInstruction.as_shape().size) - 1)).engine
        rows, length = int(command.rows), int(command.length)
        operands = {name: self._operand(command, name) for name in "xyzwv"}
        # An operand of one value stands for all elements; the first decides the shape.
        operands["x"] = np.broadcast_to(operands["x"], (rows, length))
        done = vector.vector_pass(
            **operands,
            combine=vector.Combine(command.combine.value),
            function=vector.Function(command.function.value),
            reduce=vector.Reduce(command.reduce.value),
            visible=self._visible(command, rows, length) if command.mask else None,
        )
        if command.write:
            self._store(self._places.result, np.broadcast_to(done.result, (rows, length)))
        if done.reduced is not None:
            self._store_each(int(self._places.reduced), done.reduced)

    def quantise(self, start: int, blocks: int, format: Format) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """`blocks` blocks of 32 values from granule `start` on: codes [blocks, 32] and scales [blocks]."""
        values = self.memory[start : start + blocks * BLOCK_GRANULES].reshape(-1)
        codes, scales = quantise.quantise(values, format)
        return codes.reshape(blocks, -1), scales

    def _operand(self, command: Any, name: str) -> Words:
        source = Source(getattr(command.operands, name))
        if source in _CONSTANTS:
            return _CONSTANTS[source]
        for number, immediate in enumerate((Source.IMMEDIATE_0, Source.IMMEDIATE_1)):
            if source == immediate:
                return np.array(command.immediates[number], np.uint32)
        index, rows, length = STREAMS.index(source.name.lower()), int(command.rows), int(command.length)
        place, mode = self._places.operands[index], StreamMode(command.modes[index])
        if mode == StreamMode.OFF:
            raise ValueError(f"operand {name} comes from a stream that is off")
        if mode == StreamMode.ROW:
            granules = self.memory[place.address : place.address + -(-rows // LANES)]
            return granules.reshape(-1)[:rows, None].copy()
        return self.memory[self._lines(place, rows, length)].reshape(rows, -1)[:, :length]

    def _lines(self, place: Any, rows: int, length: int) -> NDArray[np.int64]:
        starts = int(place.address) + np.arange(rows)[:, None] * int(place.stride)
        return starts + np.arange(-(-length // LANES))

    def _store(self, place: Any, values: Words) -> None:
        rows, length = values.shape
        for line, row in zip(self._lines(place, rows, length), values, strict=True):
            granules = self.memory[line].reshape(-1)
            granules[:length] = row
            self.memory[line] = granules.reshape(-1, LANES)

    def _store_each(self, address: int, values: Words) -> None:
        for index, value in enumerate(values):
            self.memory[address + index // LANES, index % LANES] = value

    def _visible(self, command: Any, rows: int, length: int) -> NDArray[np.bool_]:
        group = int(command.mask_group)
        moved = np.arange(rows)[:, None] // group if group else np.zeros((rows, 1), np.int64)
        places = np.arange(length)
        shown: NDArray[np.bool_] = (places >= command.mask_low + moved) & (places < command.mask_high + moved)
        return shown
