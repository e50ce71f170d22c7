"""One key head's sequence on several tiles: which of them has which leaves, and the commands of each.

Tiles take turns with runs of leaves. For a chunk of rows each attends to the runs that it has, for partial results; one
tile, the *home*, gets all of them and merges them over the tree of neighbours with the vector unit's own passes, which
are the operations of the attention engine's merges in the same order. So the bits are those of one tile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from golden.attention import LEAF, AttentionShape, merge_tree
from golden.fp32_ops import ONE, ZERO
from golden.vector_commands import PartialPlace, finish, merge, partial_places
from hw.tile.attention_program import Append, Attend, Sinks, partial_granules, seen_leaves
from hw.tile.config import LANES, TileConfig
from hw.tile.program import Await, Command, Destination
from hw.tile.vector_program import Rows, Send, Vector

__all__ = ["Chunk", "SharedSequence"]


@dataclass(frozen=True)
class Chunk:
    """Rows of one command: `positions` of them from `position` on, each with the heads of the group.

    Their activation blocks are at `query_base` of every tile. `result`: where the home has the rows at the end.
    `scratch`: granules that are free in every tile, `SharedSequence.scratch_granules` of them. `counter`: the home's
    arrival counter for partial results; they may come at any time from when the tiles have the queries on. `sinks`:
    where the home has the base-2 logits of the rows, one after the other (of a sequence on one tile those of the
    group's heads are enough); None: no sinks.
    """

    positions: int
    position: int
    query_base: int
    result: int
    scratch: int
    counter: int
    sinks: int | None = None


@dataclass(frozen=True)
class SharedSequence:
    """Parameters
    ----------
    config: every tile.
    shape: of the attention: one key head, whose query heads are the group.
    tiles: the tiles, as ports of the mesh; the first one is the home.
    run: leaves of a run, a power of two: run i is on tile i modulo the number of tiles.
    table: entry of every tile's page table that maps leaf 0; a tile needs those of its own leaves.
    """

    config: TileConfig
    shape: AttentionShape
    tiles: tuple[Destination, ...]
    run: int = 1
    table: int = 0

    def __post_init__(self) -> None:
        if self.run < 1 or self.run & (self.run - 1):
            raise ValueError(f"A run must be a power of two of leaves, not {self.run}")
        if not self.tiles:
            raise ValueError("A sequence needs at least one tile")
        if self.shape.kv_heads != 1:
            raise ValueError(f"A sequence is of one key head, not of {self.shape.kv_heads}")

    def owner(self, leaf: int) -> int:
        """Index of the tile that has a leaf."""
        return leaf // self.run % len(self.tiles)

    def append(self, tile: int, rows: int, position: int, source: Rows) -> list[Append]:
        """A tile's part of `rows` tokens from `position` on, which lie in its vector memory as `Append` has them."""
        shape, commands, start = self.shape, [], position
        while start < position + rows:
            leaf = start // LEAF
            end = min((leaf + 1) * LEAF, position + rows)
            if self.owner(leaf) == tile:
                place = Rows(source.address + (start - position) * source.stride, source.stride)
                sizes = (shape.key_size, shape.value_size, self.table, shape.format.name, shape.latent)
                commands.append(Append(end - start, start, place, *sizes))
            start = end
        return commands

    def scratch_granules(self, chunk: Chunk) -> int:
        """What a chunk needs from `Chunk.scratch` on: partial results, sums, maxima, one more set for each merge."""
        runs, room = len(list(self._runs(chunk))), self._room(chunk)
        return runs * room * partial_granules(self.shape.value_size) + (3 * runs + 1) * room // LANES

    def attend(self, tile: int, chunk: Chunk) -> list[Command]:
        """A tile's commands for a chunk; the home's end with the rows at `chunk.result`."""
        if len(self.tiles) == 1:
            return self._alone(chunk)
        rows, granules = self._rows(chunk), partial_granules(self.shape.value_size)
        commands: list[Command] = []
        runs = list(self._runs(chunk))
        for index, (first, last) in enumerate(runs):
            place = chunk.scratch + index * self._room(chunk) * granules
            if self.owner(first) == tile:
                commands.append(self._attend(chunk, place, leaves=(first, last)))
                if tile:
                    home, counter = self.tiles[0], chunk.counter
                    commands.append(Send(rows, granules, Rows(place, granules), home, place, granules, counter))
        if tile:
            return commands
        others = sum(self.owner(first) != 0 for first, _ in runs)
        if others:
            commands.append(Await(others * rows * granules, chunk.counter))
        return [*commands, *self._merge(chunk)]

    def _alone(self, chunk: Chunk) -> list[Command]:
        rows = self._rows(chunk)
        if chunk.sinks is None:
            return [self._attend(chunk, chunk.result)]
        return [Sinks(rows, self.shape.heads, chunk.sinks), self._attend(chunk, chunk.result, sink=0)]

    def _attend(
        self, chunk: Chunk, result: int, sink: int | None = None, leaves: tuple[int, int] | None = None
    ) -> Attend:
        shape = self.shape
        return Attend(
            self._rows(chunk), shape.heads, chunk.position, shape.key_size, shape.value_size, chunk.query_base, result,
            self.table, shape.format.name, shape.window, shape.latent, sink, leaves,
        )  # fmt: skip

    def _merge(self, chunk: Chunk) -> list[Vector]:
        """All partial results over the tree, the sinks, the division."""
        rows, length, room = self._rows(chunk), self.shape.value_size, self._room(chunk)
        runs = list(self._runs(chunk))
        each = room // LANES
        free = chunk.scratch + len(runs) * room * partial_granules(length)
        commands, places = partial_places(len(runs), room, length, chunk.scratch, free)
        factor, tops = Rows(free + 2 * len(runs) * each), iter(range(free + (2 * len(runs) + 1) * each, 1 << 16, each))

        def join(left: PartialPlace, right: PartialPlace) -> PartialPlace:
            joined, place = merge(rows, length, left, right, factor, Rows(next(tops)))
            commands.extend(joined)
            return place

        numbers = (first // self.run for first, _ in runs)
        part = merge_tree(dict(zip(numbers, places, strict=True)), join)
        if chunk.sinks is not None:
            part = join(part, PartialPlace(int(ZERO), int(ONE), Rows(chunk.sinks)))
        return [*commands, *finish(rows, length, part, factor, Rows(chunk.result, length // LANES))]

    def _runs(self, chunk: Chunk) -> Iterator[tuple[int, int]]:
        """First and last leaf, of what the chunk sees, of each run."""
        seen = seen_leaves(self._rows(chunk), self.shape.heads, chunk.position, self.shape.window)
        for run in range(seen.start // self.run, (seen.stop - 1) // self.run + 1):
            yield max(seen.start, run * self.run), min(seen.stop, (run + 1) * self.run) - 1

    def _rows(self, chunk: Chunk) -> int:
        return chunk.positions * self.shape.heads

    def _room(self, chunk: Chunk) -> int:
        """Rows that a partial result has room for: whole granules of one value a row."""
        return -(-self._rows(chunk) // LANES) * LANES
