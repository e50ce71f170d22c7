"""The golden machine: runs a tile's program, instruction by instruction, on the words that the hardware runs.

It knows what a program means, not when anything happens: counters are absent, and the array is `golden.dot`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden import dot, weights
from golden.formats import BLOCK, FORMATS
from hw.numerics.formats import ElementFormat
from hw.tile.config import LANES, TileConfig
from hw.tile.isa import Instruction, Memory, Opcode

Bytes = NDArray[np.uint8]
ROW_BITS = 6


@dataclass(frozen=True)
class Write:
    """A remote write that a tile sends; `values` are the eight FP32 patterns (None for a counter record)."""

    destination: tuple[int, int, int]
    memory: Memory
    address: int
    values: tuple[int, ...] | None


@dataclass
class TileMachine:
    """One tile: memory `image` (bytes from granule 0), activations, program; what it sends is in `sent`.

    `activations` codes uint8 [array rows, depth, 32] and `scales` uint32 [array rows, depth] hold what was received.
    """

    config: TileConfig
    image: Bytes
    program: Sequence[int] = ()
    sent: list[Write] = field(default_factory=list)
    received: int = 0
    counter: int = 0

    def __post_init__(self) -> None:
        shape = (self.config.rows, self.config.activation_depth)
        self.activations = np.zeros((*shape, BLOCK), np.uint8)
        self.scales = np.zeros(shape, np.uint32)

    def receive(self, address: int, codes: Bytes, scale: int) -> None:
        """An activation block arrives (address as in `Memory.ACTIVATIONS`)."""
        row, index = address & ((1 << ROW_BITS) - 1), address >> ROW_BITS
        self.activations[row, index], self.scales[row, index] = codes, scale
        self.received += 1

    def run(self) -> bool:
        """Run until HALT (True) or an AWAIT without enough blocks (False; call again when more have come)."""
        while True:
            instruction = Instruction.from_bits(self.program[self.counter])
            match instruction.opcode:
                case Opcode.HALT:
                    return True
                case Opcode.AWAIT:
                    if self.received < instruction.count:
                        return False
                    self.received -= instruction.count
                case Opcode.MATMUL:
                    self._matmul(instruction)
                case Opcode.SIGNAL:
                    tag = (int(instruction.count), *[0] * (LANES - 1))
                    self.sent.append(Write(_node(instruction), Memory.SIGNAL, 0, tag))
                case _:
                    raise ValueError(f"Instruction {self.counter} has no opcode: {instruction!r}")
            self.counter += 1

    def _matmul(self, instruction: Any) -> None:
        config, i = self.config, instruction
        columns, k_blocks, rows = config.columns, i.k_blocks, i.rows
        outputs, inputs = i.slot_columns * columns, k_blocks * BLOCK
        a_format = FORMATS[ElementFormat(i.activation_format).name]
        w_format = FORMATS[ElementFormat(i.weight_format).name]
        length = weights.image_granules(outputs, inputs, columns, w_format) * weights.GRANULE
        start = i.weight_address * weights.GRANULE
        part = self.image[start : start + length]
        w_codes, w_scales = weights.unpack(part, outputs, inputs, i.slots * columns, columns, w_format)
        position = np.arange(rows)
        index = i.activation_base + (position // config.rows)[:, None] * k_blocks + np.arange(k_blocks)
        row = (position % config.rows)[:, None]
        a_codes, a_scales = self.activations[row, index].reshape(rows, inputs), self.scales[row, index]
        a_scales = a_scales.astype(weights.scale_type(a_format))
        bits = dot.matmul(a_codes, a_scales, w_codes, w_scales, a_format, w_format)
        self._send_results(i, bits)

    def _send_results(self, i: Any, bits: NDArray[np.uint32]) -> None:
        """Group by group, position by position, in the order and the granules of `hw.tile.drain`."""
        config = self.config
        destination, before = _node(i), 0
        group = i.slots * config.columns
        for first in range(0, bits.shape[1], group):
            part = bits[:, first : first + group]
            slots = part.shape[1] // config.columns
            for position in range(len(bits)):
                lanes = part[position].reshape(slots, config.columns)
                address = i.result_address + position * i.result_stride + before
                for offset, values in enumerate(_granules(config, lanes)):
                    self.sent.append(Write(destination, Memory.RESULTS, address + offset, values))
            before += config.group_granules(slots)
        if i.record:
            for offset in range(2):
                self.sent.append(Write(destination, Memory.RESULTS, i.record_address + offset, None))


def _granules(config: TileConfig, lanes: NDArray[np.uint32]) -> list[tuple[int, ...]]:
    """The granules of one position's outputs [slots, columns] of a group."""
    slots, columns = lanes.shape
    granules = np.zeros((config.group_granules(slots), LANES), np.uint32)
    if columns > LANES:
        padded = np.zeros((slots, config.pieces * LANES), np.uint32)
        padded[:, :columns] = lanes
        granules[:] = padded.reshape(-1, LANES)
    else:
        spread = np.zeros((len(granules) * config.fragments, columns), np.uint32)
        spread[:slots] = lanes
        granules[:, : config.fragments * columns] = spread.reshape(len(granules), -1)
    return [tuple(int(value) for value in granule) for granule in granules]


def _node(i: Any) -> tuple[int, int, int]:
    node = i.destination
    return int(node.x), int(node.y), int(node.port)
