"""One key head's sequence on one tile or on several: memory images, programs, and the rows that have to come out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from golden.attention import LEAF, AttentionShape, PagedCache, attention
from golden.attention_layout import leaf_granules, leaf_image
from golden.attention_program import Chunk, SharedSequence
from golden.formats import FORMATS
from golden.fp32_ops import Bits, from_float
from golden.machine import TileMachine, Write, run_network
from hw.tile.attention_program import Page
from hw.tile.config import LANES, TileConfig
from hw.tile.isa import Memory
from hw.tile.program import Await, Command, Destination, Halt, Signal, encode_program
from hw.tile.vector_program import Quantise, Rows, Send
from tb.tile.work import HOST, remote_write

__all__ = ["Case", "SequenceWork"]

FROM_HOST, BLOCKS, PARTIALS = range(3)


@dataclass(frozen=True)
class Case:
    """A chunk of the last `positions` of `length`, for the heads of `group`; the last `append` tokens are appended.

    The leaves are on `tiles` tiles in runs of `run`.
    """

    length: int
    positions: int = 1
    group: int = 3
    key_size: int = 64
    value_size: int = 64
    format: str = "MXINT8"
    window: int = 0
    latent: bool = False
    sink: bool = False
    append: int = 1
    tiles: int = 1
    run: int = 1

    @property
    def shape(self) -> AttentionShape:
        sizes = self.key_size, self.value_size
        return AttentionShape(self.group, 1, *sizes, FORMATS[self.format], self.window, self.latent)


class SequenceWork:
    """`case` on tiles of `config` at `nodes`, a rectangle, the first of them the home.

    The KV caches begin at granule `cache` of the tiles' memories and end before `end`. Memory that is not written
    holds garbage: behind the end of the sequence, and in the place of other tiles' leaves. The rows go to granule
    `result` of the host and on.
    """

    def __init__(
        self, config: TileConfig, case: Case, seed: int, nodes: Sequence[tuple[int, int]], cache: int = 0,
        host: Destination = HOST, result: int = 0,
    ) -> None:  # fmt: skip
        self.config, self.case, self.nodes, self.cache = config, case, nodes, cache
        self.host, self.result = host, result
        self.numbers = np.random.default_rng(seed)
        self.rows = case.positions * case.group
        self.leaves = -(-case.length // LEAF)
        self.end = cache + self.leaves * leaf_granules(case.shape)
        tiles = tuple(Destination(*node) for node in nodes)
        self.sequence = SharedSequence(config, case.shape, tiles, case.run, int(self.numbers.integers(0, 8)))
        self._data()
        self._places()

    def _data(self) -> None:
        """Tokens, queries and sinks; the cache as golden attention sees it."""
        case, shape, normal = self.case, self.case.shape, self.numbers.standard_normal
        self.keys = from_float(normal((case.length, 1, case.key_size)).astype(np.float32))
        self.values = from_float(3 * normal((case.length, 1, case.value_size)).astype(np.float32))
        self.query = from_float(normal((case.positions, case.group, case.key_size)).astype(np.float32))
        self.sinks = from_float(4 * normal(case.group).astype(np.float32)) if case.sink else None
        self.order = self.numbers.permutation(self.leaves)
        self.paged = PagedCache(shape, self.leaves)
        self.paged.append(self.order, np.arange(case.length), self.keys, self.values)

    def _places(self) -> None:
        """The vector memories of all tiles: what the host brings, then the result and what is between."""
        case, self.granules, self._free = self.case, [], 0
        tokens = self.keys[case.length - case.append :, 0]
        if not case.latent:
            tokens = np.concatenate([tokens, self.values[case.length - case.append :, 0]], axis=1)
        self.tokens = self._load(tokens)
        self.queries = self._load(self.query.reshape(self.rows, -1))
        sinks = None
        if self.sinks is not None:
            logits = self.numbers.integers(0, 1 << 31, (1, -(-self.rows // LANES) * LANES), np.uint32)
            needed = np.tile(self.sinks, case.positions if len(self.nodes) > 1 else 1)
            logits[0, : len(needed)] = needed
            sinks = self._load(logits).address
        result = self._free
        self._free += self.rows * case.value_size // LANES
        self.chunk = Chunk(case.positions, case.length - case.positions, 0, result, self._free, PARTIALS, sinks)
        self._free += self.sequence.scratch_granules(self.chunk)

    def _load(self, values: Bits) -> Rows:
        rows, length = values.shape
        place = Rows(self._free, length // LANES)
        self._free += rows * place.stride
        self.granules += [(place.address + i, granule) for i, granule in enumerate(values.reshape(-1, LANES))]
        return place

    @cached_property
    def expected(self) -> Bits:
        """The rows uint32 [rows, value_size], by `golden.attention`."""
        case = self.case
        positions = np.arange(case.length - case.positions, case.length)
        found = attention(self.query, positions, self.paged, self.order, self.sinks)
        return found.reshape(self.rows, -1)

    def program(self, tile: int) -> list[int]:
        """A tile's program; of one that has no part in it, too."""
        ends = [Signal(tile, self.host), Halt()]
        if tile >= len(self.nodes):
            return encode_program(self.config, [Await(len(self.granules), FROM_HOST), *ends])
        case, sequence, first, last = self.case, self.sequence, self.nodes[0], self.nodes[-1]
        everyone, blocks = Destination(*first, x_last=last[0], y_last=last[1]), case.key_size // 32
        commands: list[Command] = [Await(len(self.granules), FROM_HOST)]
        for leaf in range(self.leaves):
            if sequence.owner(leaf) == tile:
                commands.append(Page(sequence.table + leaf, self._page(leaf)))
        commands += sequence.append(tile, case.append, case.length - case.append, self.tokens)
        if tile == 0:
            commands.append(Quantise(self.rows, blocks, self.queries, everyone, 0, blocks, BLOCKS, case.format))
        commands += [Await(self.rows * blocks, BLOCKS), *sequence.attend(tile, self.chunk)]
        if tile == 0:
            row = case.value_size // LANES
            commands.append(Send(self.rows, row, Rows(self.chunk.result, row), self.host, self.result, row))
        return encode_program(self.config, [*commands, *ends])

    def _page(self, leaf: int) -> int:
        return self.cache + int(self.order[leaf]) * leaf_granules(self.case.shape)

    def image(self, tile: int) -> np.ndarray:
        """The bytes of a tile's cache, from granule `cache` to `end`, before its program runs."""
        case, size = self.case, leaf_granules(self.case.shape)
        image = self.numbers.integers(0, 256, (self.end - self.cache, 32), np.uint8)
        for leaf in range(self.leaves):
            if self.sequence.owner(leaf) == tile:
                stored = self.paged.leaf(self.order, leaf, 0, case.length)
                for part in (stored.key_codes, stored.key_scales, stored.value_codes, stored.value_scales):
                    unwritten = part[max(case.length - case.append - leaf * LEAF, 0) :]
                    unwritten[...] = self.numbers.integers(0, 256, unwritten.shape)
                start = self._page(leaf) - self.cache
                image[start : start + size] = leaf_image(stored, case.shape)
        return image

    def machines(self, images: Sequence[np.ndarray], programs: Sequence[list[int]]) -> list[TileMachine]:
        """The golden machines of all tiles after their programs, and their rows compared."""
        before = np.zeros((self.cache, 32), np.uint8)
        machines = [
            TileMachine(self.config, np.concatenate([before, image]).reshape(-1), program, node)
            for image, program, node in zip(images, programs, self.nodes, strict=True)
        ]
        for machine in machines:
            for address, granule in self.granules:
                machine.receive_granule(address, granule, FROM_HOST)
        assert run_network(machines), "the golden machines did not reach the end of their programs"
        assert not any(count for machine in machines for count in machine.received), "arrivals that no AWAIT took"
        np.testing.assert_array_equal(self._rows_of(machines[0].sent), self.expected)
        return machines

    def _rows_of(self, sent: Sequence[Write]) -> Bits:
        """The rows that a home has sent to the host."""
        found = np.zeros(self.expected.shape, np.uint32).reshape(-1, LANES)
        writes = [write for write in sent if write.memory == Memory.RESULTS and write.destination[-1] == self.host.port]
        assert {write.address - self.result for write in writes} == set(range(len(found))), "not every row was sent"
        for write in writes:
            found[write.address - self.result] = write.values
        return found.reshape(self.expected.shape)

    def rows_in(self) -> list[tuple[int, Bits]]:
        """What the host writes into every vector memory: granule, and granules uint32 [n, 8] from there on."""
        return [(0, np.stack([granule for _, granule in self.granules]))]

    def transfers(self) -> list[dict]:
        """What brings the host's granules."""
        return [
            remote_write(Memory.RESULTS, address, granule.tobytes(), counter=FROM_HOST)
            for address, granule in self.granules
        ]
