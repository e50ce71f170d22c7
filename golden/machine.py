"""The golden machine: runs a tile's program, instruction by instruction, on the words that the hardware runs.

It knows what a program means, not when anything happens: counters are absent, and the array is `golden.dot`.
`run_network` runs the tiles of a chip together, with what they send each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden import dot, weights
from golden.formats import BLOCK, FORMATS
from golden.machine_attention import AttentionMachine
from golden.machine_vector import VectorMachine, Words
from hw.numerics.formats import ElementFormat
from hw.tile.config import LANES, TileConfig
from hw.tile.isa import (
    ARRIVALS,
    ROW_BITS,
    AppendInstruction,
    AttendInstruction,
    Instruction,
    Memory,
    MoveInstruction,
    Opcode,
    PageInstruction,
    SinkInstruction,
)

Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Write:
    """A remote write that a tile sends.

    `destination`: first and last column, first and last row, port. `values` are the granule's eight 32-bit words (None
    for a counter record); `scale` is that of an activation block, `counter` the arrival counter that it names.
    """

    destination: tuple[int, int, int, int, int]
    memory: Memory
    address: int
    values: tuple[int, ...] | None
    counter: int = 0
    scale: int = 0

    def reaches(self, node: tuple[int, int]) -> bool:
        """Whether the tile at a node (column, row) gets it."""
        x_first, x_last, y_first, y_last, port = self.destination
        return port == 0 and x_first <= node[0] <= x_last and y_first <= node[1] <= y_last


@dataclass
class TileMachine:
    """One tile: memory `image` (bytes from granule 0), activations, program; what it sends is in `sent`.

    `activations` codes uint8 [array rows, depth, 32] and `scales` uint32 [array rows, depth] hold what was received,
    `received` what the arrival counters say, `vector` is the vector memory and `attention` the KV cache (None where
    the tile has none); the tile's memory has `granules` granules, those behind the image are zero.
    """

    config: TileConfig
    image: Bytes
    program: Sequence[int] = ()
    node: tuple[int, int] = (0, 0)
    granules: int = 0
    sent: list[Write] = field(default_factory=list)
    counter: int = 0

    def __post_init__(self) -> None:
        shape = (self.config.rows, self.config.activation_depth)
        self.activations = np.zeros((*shape, BLOCK), np.uint8)
        self.scales = np.zeros(shape, np.uint32)
        self.received = [0] * ARRIVALS
        self.vector = VectorMachine(self.config) if self.config.vector_depth else None
        granules = max(self.granules, -(-len(self.image) // weights.GRANULE))
        self.attention = AttentionMachine(self.image, granules) if self.config.attention_rows else None

    def receive(self, address: int, codes: Bytes, scale: int, counter: int = 0) -> None:
        """An activation block arrives (address as in `Memory.ACTIVATIONS`)."""
        row, index = address & ((1 << ROW_BITS) - 1), address >> ROW_BITS
        self.activations[row, index], self.scales[row, index] = codes, scale
        self.received[counter] += 1

    def receive_granule(self, address: int, values: Sequence[int] | Words, counter: int = 0) -> None:
        """A granule for the vector memory arrives."""
        if self.vector is None:
            raise ValueError("A granule came to a tile without a vector memory")
        self.vector.memory[address] = values
        self.received[counter] += 1

    def receive_write(self, write: Write) -> None:
        """What another tile, or this one, has sent arrives."""
        values = np.zeros(LANES, np.uint32) if write.values is None else np.array(write.values, np.uint32)
        if write.memory == Memory.ACTIVATIONS:
            self.receive(write.address, values.view(np.uint8), write.scale, write.counter)
        else:
            self.receive_granule(write.address, values, write.counter)

    def run(self) -> bool:
        """Run until HALT (True) or an AWAIT whose writes have not come (False; call again when more have come)."""
        while True:
            word = self.program[self.counter]
            instruction = Instruction.from_bits(word)
            match instruction.opcode:
                case Opcode.HALT:
                    return True
                case Opcode.AWAIT:
                    if self.received[instruction.counter] < instruction.count:
                        return False
                    self.received[instruction.counter] -= instruction.count
                case Opcode.MATMUL:
                    self._matmul(instruction)
                case Opcode.SIGNAL:
                    tag = (int(instruction.count), *[0] * (LANES - 1))
                    self.sent.append(Write(_rectangle(instruction.destination), Memory.SIGNAL, 0, tag))
                case Opcode.PLACES | Opcode.VECTOR if self.vector is not None:
                    self.vector.execute(word)
                case Opcode.QUANTISE | Opcode.SEND if self.vector is not None:
                    self._move(_seen_as(MoveInstruction, word))
                case Opcode.PAGE | Opcode.APPEND | Opcode.SINK | Opcode.ATTEND if self.attention is not None:
                    self._attention(instruction.opcode, word)
                case _:
                    raise ValueError(f"Instruction {self.counter} has no opcode: {instruction!r}")
            self.counter += 1

    def _attention(self, opcode: Opcode, word: int) -> None:
        """PAGE, APPEND, SINK and ATTEND."""
        assert self.vector is not None and self.attention is not None
        if opcode == Opcode.PAGE:
            page = _seen_as(PageInstruction, word)
            self.attention.pages[page.entry] = int(page.granule)
        elif opcode == Opcode.APPEND:
            i = _seen_as(AppendInstruction, word)
            blocks = int(i.token.key_blocks) + (0 if i.token.latent else int(i.token.value_groups))
            granules = BLOCK // LANES * blocks
            for row in range(i.rows):
                start = i.source + row * i.source_stride
                self.attention.append(i.token, row, self.vector.memory[start : start + granules].reshape(-1))
        elif opcode == Opcode.SINK:
            sink = _seen_as(SinkInstruction, word)
            heads = np.arange(sink.rows) % int(sink.group)
            logits = self.vector.memory[int(sink.source) + heads // LANES, heads % LANES]
            self.attention.sinks[int(sink.slot), : len(logits)] = logits
        else:
            attend = _seen_as(AttendInstruction, word)
            command, rows = attend.command, int(attend.command.rows)
            query = self._rows(rows, int(command.key_blocks), int(command.query_base))
            found = self.attention.attend(command, query).reshape(-1, LANES)
            self.vector.memory[attend.result : attend.result + len(found)] = found

    def _rows(self, rows: int, k_blocks: int, base: int) -> tuple[Bytes, NDArray[np.uint8]]:
        """Rows of activation blocks: codes [rows, k_blocks * 32] and scales [rows, k_blocks]."""
        row = np.arange(rows)
        index = base + (row // self.config.rows)[:, None] * k_blocks + np.arange(k_blocks)
        row = (row % self.config.rows)[:, None]
        return self.activations[row, index].reshape(rows, -1), self.scales[row, index].astype(np.uint8)

    def _move(self, i: Any) -> None:
        """QUANTISE and SEND: rows ascending, in each row from its start on."""
        assert self.vector is not None
        destination, counter = _rectangle(i.destination), int(i.counter)
        memory = Memory.ACTIVATIONS if i.opcode == Opcode.QUANTISE else Memory.RESULTS
        for m in range(i.rows):
            start = i.source + m * i.source_stride
            if i.opcode == Opcode.SEND:
                target = i.target + m * i.target_stride
                for k in range(i.length):
                    values = tuple(int(v) for v in self.vector.memory[start + k])
                    self.sent.append(Write(destination, memory, target + k, values, counter))
                continue
            codes, scales = self.vector.quantise(start, i.length, FORMATS[ElementFormat(i.element).name])
            target = i.target + m // self.config.rows * i.target_stride
            for k in range(i.length):
                address = (target + k) << ROW_BITS | m % self.config.rows
                values = tuple(int(v) for v in codes[k].view(np.uint32))
                self.sent.append(Write(destination, memory, address, values, counter, int(scales[k])))

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
        destination, before, counter = _rectangle(i.destination), 0, int(i.counter)
        group = i.slots * config.columns
        for first in range(0, bits.shape[1], group):
            part = bits[:, first : first + group]
            slots = part.shape[1] // config.columns
            for position in range(len(bits)):
                lanes = part[position].reshape(slots, config.columns)
                address = i.result_address + position * i.result_stride + before
                for offset, values in enumerate(_granules(config, lanes)):
                    self.sent.append(Write(destination, Memory.RESULTS, address + offset, values, counter))
            before += config.group_granules(slots)
        if i.record:
            node = i.record_destination
            place = (int(node.x), int(node.x), int(node.y), int(node.y), int(node.port))
            for offset in range(2):
                self.sent.append(Write(place, Memory.RESULTS, i.record_address + offset, None))


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


def _seen_as(instruction: Any, word: int) -> Any:
    return instruction.from_bits(word & ((1 << instruction.as_shape().size) - 1))


def _rectangle(rectangle: Any) -> tuple[int, int, int, int, int]:
    r = rectangle
    return int(r.x_first), int(r.x_last), int(r.y_first), int(r.y_last), int(r.port)


def run_network(machines: Sequence[TileMachine]) -> bool:
    """Run tiles with what they send each other until none goes on; whether all have halted.

    A program that awaits what it uses gives the same bits whatever the order of arrivals; here each tile runs as far
    as it can, and what it sent is delivered at once.
    """
    delivered = [len(machine.sent) for machine in machines]
    while True:
        halted, moved = [], False
        for index, machine in enumerate(machines):
            halted.append(machine.run())
            for write in machine.sent[delivered[index] :]:
                for receiver in machines:
                    if write.reaches(receiver.node):
                        receiver.receive_write(write)
                        moved = True
            delivered[index] = len(machine.sent)
        if not moved:
            return all(halted)
