"""Programs of the vector side: half a layer, attention, random commands; what the golden machine sends."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from golden import weights
from golden.attention import LEAF, AttentionShape
from golden.attention_layout import leaf_granules
from golden.formats import FORMATS
from golden.fp32_ops import from_float
from golden.machine import TileMachine, Write, run_network
from golden.vector import Combine, Function, Reduce
from golden.vector_commands import add, rms_norm, rope, swiglu
from hw.tile.attention_program import Append, Attend, Page
from hw.tile.config import LANES
from hw.tile.isa import ROW_BITS, Memory
from hw.tile.program import Await, Destination, Matmul
from hw.tile.vector_program import Each, Quantise, Rows, Send, Vector
from tb.tile.work import HOST, Work, remote_write

NODE = (2, 1)
"""Where the tile under test is; the testbench brings back what it sends there."""
SELF = Destination(*NODE)
AROUND = Destination(1, 0, x_last=3, y_last=1)
ELSEWHERE = Destination(4, 4)
FROM_HOST, BLOCKS, RESULTS, DISTURBANCE = range(4)
CACHE, CACHE_GRANULES = 1024, 2048
"""Granule of the memory from which on a tile with attention has its KV caches, and their granules."""
EPSILON = from_float(1e-5)[()]


@dataclass
class VectorWork(Work):
    """A program with what comes from outside: granules for the vector memory, on arrival counter `FROM_HOST`."""

    granules_in: list[tuple[int, np.ndarray]] = field(default_factory=list)
    free: int = 0
    awaited: int = 0
    tokens: int = 0
    cache: int = 0

    def arrived(self) -> Await:
        """Wait for the granules from outside that no command before waits for."""
        count, self.awaited = len(self.granules_in) - self.awaited, len(self.granules_in)
        return Await(count, FROM_HOST)

    def place(self, rows: int, length: int) -> Rows:
        """A new place for rows."""
        stride = -(-length // LANES)
        self.free += rows * stride
        assert self.free <= self.config.vector_depth - LANES, "the test's vector memory is full"
        return Rows(self.free - rows * stride, stride)

    def load(self, values: np.ndarray) -> Rows:
        """A new place with float32 values [rows, length] that the host sends."""
        rows, length = values.shape
        place = self.place(rows, length)
        padded = np.zeros((rows, place.stride * LANES), np.uint32)
        padded[:, :length] = from_float(values)
        self.granules_in += [(place.address + i, g) for i, g in enumerate(padded.reshape(-1, LANES))]
        return place

    def random(self, rows: int, length: int) -> Rows:
        """A new place with normal values, some rows with a wide range or an infinity."""
        values = self.numbers.standard_normal((rows, length)).astype(np.float32)
        if self.choice.random() < 0.3:
            values[self.choice.randrange(rows)] *= np.float32(2.0) ** self.choice.choice([-140, -60, 40, 100])
        if self.choice.random() < 0.1:
            values[self.choice.randrange(rows), self.choice.randrange(length)] = np.inf
        return self.load(values)

    def matmul(self, rows: int, inputs: int, outputs: int, base: int, result: Rows, destination: Destination) -> Matmul:
        """A product of random weights; its results count on `RESULTS` of the tiles in `destination`."""
        format = self.config.quantised_formats[0]
        command = Matmul(
            rows, inputs, outputs, self.granules, base, destination, result.address, result.stride, format, format,
            record_address=77, record_destination=HOST, counter=RESULTS,
        )  # fmt: skip
        codes, scales = self._blocks(outputs, inputs, format, False)
        group, columns = command.group(self.config), self.config.columns
        self.image.append(weights.pack(codes, scales - np.uint8(6), group, columns, FORMATS[format]))
        assert command.position_granules(self.config) * LANES == outputs, "results with gaps are no rows"
        self.commands.append(command)
        return command

    def half_layer(self, rows: int, hidden: int, inner: int) -> None:
        """RMSNorm, quantise, gate and up, SwiGLU, quantise, down, residual add, as a layer's second half has them."""
        format = self.config.quantised_formats[0]
        passes = -(-rows // self.config.rows)
        x, gain = self.random(rows, hidden), self.load(self.numbers.random((1, hidden)).astype(np.float32))
        normed, down = self.place(rows, hidden), self.place(rows, hidden)
        gate, up, gated = (self.place(rows, inner) for _ in range(3))
        scratch = self.place(1, 8 * LANES).address
        self.commands.append(self.arrived())
        self.commands += rms_norm(rows, hidden, x, gain, EPSILON, scratch, normed)
        blocks = hidden // 32
        self.commands += [
            Quantise(rows, blocks, normed, SELF, self.base, blocks, BLOCKS, format), Await(rows * blocks, BLOCKS),
        ]  # fmt: skip
        for result in (gate, up):
            self.matmul(rows, hidden, inner, self.base, result, SELF)
        self.commands.append(Await(2 * rows * inner // LANES, RESULTS))
        self.base += passes * blocks
        self.commands += swiglu(rows, inner, gate, up, gated)
        blocks = inner // 32
        self.commands += [
            Quantise(rows, blocks, gated, AROUND, self.base, blocks, BLOCKS, format), Await(rows * blocks, BLOCKS),
        ]  # fmt: skip
        self.matmul(rows, inner, hidden, self.base, down, AROUND)
        self.commands.append(Await(rows * hidden // LANES, RESULTS))
        self.base += passes * blocks
        self.commands += add(rows, hidden, x, down, x)
        self.commands.append(Send(rows, hidden // LANES, x, HOST, 1000, hidden // LANES + 1))

    def rotate(self, rows: int, size: int) -> None:
        """RoPE of one head, sent away."""
        x, cosine, sine = (self.random(rows, size) for _ in range(3))
        result = self.place(rows, size)
        self.commands.append(self.arrived())
        self.commands += rope(rows, size, x, cosine, sine, result, from_float(0.125)[()])
        self.commands.append(Send(rows, size // LANES, result, ELSEWHERE, 3000, size // LANES, 2))

    def attend(self, context: int, count: int, group: int, size: int) -> None:
        """`context` tokens into a cache of its own, then attention of the last `count` of them; sent to the host."""
        format = self.config.quantised_formats[0]
        shape = AttentionShape(group, 1, size, size, FORMATS[format])
        leaves, table = -(-context // LEAF), self.tokens
        order = self.choice.sample(range(leaves), leaves)
        for leaf, place in enumerate(order):
            self.commands.append(Page(table + leaf, CACHE + self.cache + place * leaf_granules(shape)))
        self.tokens += leaves
        self.cache += leaves * leaf_granules(shape)
        assert self.cache <= CACHE_GRANULES, "the test's memory is full"
        rows, blocks = count * group, size // 32
        tokens, queries = self.random(context, 2 * size), self.random(rows, size)
        result = self.place(rows, size)
        self.commands += [
            self.arrived(),
            Append(context, 0, tokens, size, size, table, format),
            Quantise(rows, blocks, queries, SELF, self.base, blocks, BLOCKS, format), Await(rows * blocks, BLOCKS),
            Attend(rows, group, context - count, size, size, self.base, result.address, table, format),
            Send(rows, size // LANES, result, HOST, 5000, size // LANES, 1),
        ]  # fmt: skip
        self.base += -(-rows // self.config.rows) * blocks

    def product_of_arrivals(self, depth: int) -> None:
        """A product of `depth` activation blocks for each array row, which come from outside."""
        rows, format = self.config.rows, self.config.quantised_formats[0]
        codes, scales = self._blocks(rows, depth * 32, format, False)
        codes = codes.reshape(rows, depth, 32)
        self.blocks = [
            (self.base + k << ROW_BITS | row, codes[row, k], int(scales[row, k]))
            for k in range(depth)
            for row in range(rows)
        ]
        self.commands.append(Await(len(self.blocks), DISTURBANCE))
        self.matmul(rows, depth * 32, 2 * LANES, self.base, Rows(0, 2), HOST)

    def block_transfers(self) -> list[dict]:
        """The transfers that bring the activation blocks."""
        return [
            remote_write(Memory.ACTIVATIONS, address, block.tobytes(), scale, DISTURBANCE)
            for address, block, scale in self.blocks
        ]

    def random_vector(self) -> Vector:
        """Any command of the engine on new places, its results sent to the host."""
        choice = self.choice
        rows, length = choice.randint(1, 5), choice.randint(1, 40)
        operands = {}
        for name in choice.sample("xyzwv", choice.randint(1, 4)):
            single = choice.random() < 0.3
            place = self.random(1, rows) if single else self.random(rows, length)
            operands[name] = Each(place.address) if single else place
        if "x" not in operands:
            operands["x"] = int(from_float(choice.uniform(-2, 2))[()])
        reduce = choice.choice(list(Reduce))
        result, reduced = self.place(rows, length), self.place(1, rows)
        mask = {}
        if choice.random() < 0.4:
            mask = {"mask_low": choice.randint(-3, length), "mask_high": choice.randint(0, length + 3),
                    "mask_group": choice.randint(0, 2)}  # fmt: skip
        command = Vector(
            rows, length, **operands, combine=choice.choice(list(Combine)), function=choice.choice(list(Function)),
            reduce=reduce, result=result, reduced=reduced.address, early=choice.random() < 0.5, mask=mask,
        )  # fmt: skip
        self.commands += [self.arrived(), command]
        if command.early:  # the next command must not read its results; the one behind it may
            self.commands.append(Vector(1, LANES, Rows(0), result=self.place(1, LANES)))
        if length % LANES == 0:  # else the last granule keeps what was there
            self.commands.append(Send(rows, length // LANES, result, HOST, self.free, result.stride))
        else:
            whole = Vector(rows, length, result, result=self.place(rows, length))
            self.commands += [whole, *self._sent_beats(whole)]
        if reduce != Reduce.NONE:
            copy = self.place(1, rows)
            self.commands.append(Vector(1, rows, Rows(reduced.address), z=Rows(reduced.address), result=copy))
        return command

    def _sent_beats(self, command: Vector) -> Iterable[Send]:
        """The whole granules of a ragged result."""
        assert command.result is not None
        if command.length >= LANES:
            yield Send(command.rows, command.length // LANES, command.result, HOST, 2000, command.result.stride)

    def memory(self) -> np.ndarray:
        """The bytes of the tile's memory at the start: weights, and where the tile has a KV cache what nobody wrote."""
        image = np.concatenate([*self.image, np.zeros(0, np.uint8)])
        if not self.config.attention_rows:
            return image
        assert len(image) <= CACHE * weights.GRANULE
        whole = np.zeros((CACHE + CACHE_GRANULES) * weights.GRANULE, np.uint8)
        whole[: len(image)] = image
        return whole

    def inputs(self) -> list[dict]:
        """The transfers that bring the granules."""
        return [
            remote_write(Memory.RESULTS, address, granule.tobytes(), counter=FROM_HOST)
            for address, granule in self.granules_in
        ]

    def machine(self, program: list[int]) -> TileMachine:
        """The golden machine after the program; activation blocks from outside count on `DISTURBANCE`."""
        machine = TileMachine(self.config, self.memory(), program, NODE)
        for address, granule in self.granules_in:
            machine.receive_granule(address, granule, FROM_HOST)
        for block in self.blocks:
            machine.receive(*block, DISTURBANCE)
        assert run_network([machine]), "the golden machine did not reach the end of the program"
        return machine

    def expected(self, program: list[int]) -> list[Write]:
        return self.machine(program).sent


def by_place(writes: Iterable[Write]) -> dict[tuple, list[Write]]:
    """Writes of each place in their order: between the array and the vector side there is none."""
    found = defaultdict(list)
    for write in writes:
        found[write.destination, write.memory.value, write.address].append(write)
    return dict(found)
