"""One tile's program of a layer, and the image of its HBM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from golden import weights
from golden.attention import LEAF, query_factor
from golden.compiler import HOST, Bytes
from golden.formats import BLOCK
from golden.fp32_ops import from_float
from golden.layer_places import Layer, Places
from golden.model import PRODUCTS
from golden.vector_commands import add, rms_norm, rope, swiglu
from hw.config import ChipConfig
from hw.tile.attention_program import Append, Attend, Page
from hw.tile.config import LANES, TileConfig
from hw.tile.program import Await, Command, Destination, Halt, Matmul, Signal
from hw.tile.vector_program import Quantise, Rows, Send, Vector

__all__ = ["TileProgram"]

FROM_HOST, OWN_BLOCKS, RESULTS, ALL_BLOCKS, QUERIES_KEYS, VALUES = range(6)
"""What the arrival counters count. A tile starts on a counter's next use only behind an AWAIT that all tiles' work of
the use before has gone through, so no write is ever counted for the wrong AWAIT."""


@dataclass
class TileProgram:
    """One tile's commands and its memory image."""

    config: ChipConfig
    layer: Layer
    places: Places
    index: int
    image: list[Bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        mesh = self.config.mesh
        self.here = Destination(*self.config.place(self.index))
        self.all = Destination(0, 0, x_last=mesh.columns - 1, y_last=mesh.rows - 1)
        self.granules = 0

    @property
    def tile(self) -> TileConfig:
        return self.config.tile

    def commands(self) -> list[Command]:
        """The layer, behind it what is compared.

        What needs the first of several products runs while the array works at the next.
        """
        p, model = self.places, self.layer.model
        granules = sum(len(rows) for _, rows in p.rows())
        commands: list[Command] = [Await(granules, FROM_HOST)]
        commands += self._norm("q", p.attention_gain)
        commands += [*self._products(("q", "k", "v"), self.here), self._arrived("q", "k"), *self._rotate()]
        if self.tile.attention_rows:
            commands += self._attention()
        else:
            commands.append(self._arrived("v"))
            commands += [self._send("rotated q and k", p.rotated), self._send("v", p.products["v"]), Signal(0, HOST)]
            commands.append(Await(p.positions * model.hidden // BLOCK, FROM_HOST))
        commands += [*self._products(("o",), self.all), self._arrived("o")]
        commands += add(p.positions, model.hidden, p.x, p.products["o"], p.x)
        commands += self._norm("gate", p.feed_forward_gain)
        commands += [*self._products(("gate", "up"), self.here), *self._gate()]
        commands += [*self._products(("down",), self.all), self._arrived("down")]
        commands += add(p.positions, model.hidden, p.x, p.products["down"], p.x)
        commands.append(Signal(1, HOST))
        commands += [self._send(name, p.products[name]) for name in PRODUCTS if name != "v" or self.tile.attention_rows]
        if self.tile.attention_rows:
            commands.append(self._send("rotated q and k", p.rotated))
        commands += [self._send("output", p.x), Signal(2, HOST), Halt()]
        return commands

    def _norm(self, product: str, gain: Rows) -> list[Command]:
        """RMSNorm of the residual stream, quantised for a product."""
        p, model = self.places, self.layer.model
        blocks, format = model.hidden // BLOCK, self.layer.products[product].activations.format.name
        epsilon = from_float(np.float32(model.norm_epsilon))[()]
        return [
            *rms_norm(p.positions, model.hidden, p.x, gain, epsilon, p.scratch, p.normed),
            Quantise(p.positions, blocks, p.normed, self.here, p.blocks[product], blocks, OWN_BLOCKS, format),
            Await(p.positions * blocks, OWN_BLOCKS),
        ]

    def _gate(self) -> list[Command]:
        """SwiGLU of this tile's outputs, its last pass alone behind `up`; their blocks to all tiles."""
        p, model = self.places, self.layer.model
        width, blocks = model.feed_forward // self.config.tiles, model.feed_forward // BLOCK
        target = p.blocks["down"] + self.index * width // BLOCK
        format = self.layer.products["down"].activations.format.name
        *gate, both = swiglu(p.positions, width, p.products["gate"], p.products["up"], p.gated)
        return [
            self._arrived("gate"),
            *gate,
            self._arrived("up"),
            both,
            Quantise(p.positions, width // BLOCK, p.gated, self.all, target, blocks, ALL_BLOCKS, format),
            Await(p.positions * blocks, ALL_BLOCKS),
        ]

    def _rotate(self) -> list[Command]:
        """RoPE of this tile's pairs: all heads of a position at once, or all positions of a head, whichever is less."""
        p, size = self.places, self.layer.model.head_size // self.config.tiles
        # The tile's channels of a position's tables: of the first half, and as far behind as the halves are apart.
        granules, half = size // LANES, self.layer.model.head_size // 2 // LANES
        commands: list[Command] = []
        for index in range(min(p.positions, p.rotated_heads)):
            by_head = p.rotated_heads < p.positions
            offset = index * (granules if by_head else p.rotated.stride)
            x, result = (
                Rows(place.address + offset, place.stride if by_head else granules)
                for place in (p.queries_keys, p.rotated)
            )
            table = self.index * granules // 2 + (0 if by_head else index * p.cosine.stride)
            cosine, sine = (Rows(place.address + table, place.stride if by_head else 0) for place in (p.cosine, p.sine))
            rows = p.positions if by_head else p.rotated_heads
            commands += rope(rows, size, x, cosine, sine, result, table_half=half)
        return commands

    def _attention(self) -> list[Command]:
        """Scale the queries, gather heads at their owners, append, attend; blocks of the result to all tiles.

        Values have a counter of their own: a tile can have sent them before another has sent its keys.
        """
        p, model, config = self.places, self.layer.model, self.config
        factor, width = int(query_factor(model.head_size)), model.hidden // config.tiles
        commands: list[Command] = [Vector(p.positions, width, p.rotated, factor, result=p.scaled)]
        key = Rows(p.rotated.address + width // LANES, p.rotated.stride)
        for head in range(model.kv_heads):
            owner, slot = self._owner(head)
            commands += self._gather(owner, p.scaled, head, p.group, p.queries[slot], QUERIES_KEYS)
            commands += self._gather(owner, key, head, 1, p.keys_values[slot], QUERIES_KEYS)
        commands.append(self._arrived("v"))
        for head in range(model.kv_heads):
            owner, slot = self._owner(head)
            kv = p.keys_values[slot]
            target = Rows(kv.address + model.head_size // LANES, kv.stride)
            commands += self._gather(owner, p.products["v"], head, 1, target, VALUES)
        owned = range(self.index, model.kv_heads, config.tiles)
        if owned:
            row = len(owned) * model.head_size // LANES * p.positions
            commands += [Await((p.group + 1) * row, QUERIES_KEYS), Await(row, VALUES)]
        for slot, head in enumerate(owned):
            commands += self._attend(slot, head)
        return [*commands, Await(p.positions * model.hidden // BLOCK, ALL_BLOCKS)]

    def _owner(self, head: int) -> tuple[Destination, int]:
        """The tile that attends with a key head, and which of its key heads it is."""
        return Destination(*self.config.place(head % self.config.tiles)), head // self.config.tiles

    def _gather(
        self, owner: Destination, source: Rows, head: int, heads: int, target: Rows, counter: int
    ) -> list[Command]:
        """This tile's pairs of some heads to where they lie in whole heads; `head` counts groups of `heads`.

        All halves of a position at once, or all positions of a half, whichever is less.
        """
        p, model, tiles = self.places, self.layer.model, self.config.tiles
        half = model.head_size // 2 // LANES
        share, halves = half // tiles, 2 * heads
        first = source.address + head * halves * share
        place = target.address + self.index * share
        if p.positions < halves:
            return [
                Send(halves, share, Rows(first + m * source.stride, share), owner, place + m * target.stride, half,
                     counter)
                for m in range(p.positions)
            ]  # fmt: skip
        return [
            Send(p.positions, share, Rows(first + n * share, source.stride), owner, place + n * half, target.stride,
                 counter)
            for n in range(halves)
        ]  # fmt: skip

    def _attend(self, slot: int, head: int) -> list[Command]:
        """One key head that this tile owns, in chunks of as many positions as an ATTEND takes."""
        p, model, size, position = self.places, self.layer.model, self.layer.model.head_size, self.layer.position
        table, queries, mixed = slot * self.tile.attention_leaves, p.queries[slot], p.mixed[slot]
        row, blocks, format = size // LANES, size // BLOCK, self.layer.products["o"].activations.format.name
        leaves = range((position + p.positions - 1) // LEAF + 1)
        commands: list[Command] = [Page(table + leaf, p.cache + (table + leaf) * p.leaf) for leaf in leaves]
        commands.append(Append(p.positions, position, p.keys_values[slot], size, size, table, format))
        step = max(1, self.tile.attention_rows // p.group)
        for start in range(0, p.positions, step):
            rows, first = p.group * min(step, p.positions - start), start * p.group * row
            commands += [
                Quantise(rows, blocks, Rows(queries.address + first, row), self.here, p.query_base, blocks, OWN_BLOCKS,
                         format),
                Await(rows * blocks, OWN_BLOCKS),
                Attend(rows, p.group, position + start, size, size, p.query_base, mixed.address + first, table, format),
            ]  # fmt: skip
        blocks *= p.group
        target, stride = p.blocks["o"] + head * blocks, model.hidden // BLOCK
        return [*commands, Quantise(p.positions, blocks, mixed, self.all, target, stride, ALL_BLOCKS, format)]

    def _products(self, names: Sequence[str], destination: Destination) -> list[Command]:
        """Products that share their activations, into vector memories."""
        p = self.places
        commands: list[Command] = []
        for name in names:
            product, placed, place = self.layer.products[name], p.placed[name], p.products[name]
            outputs = placed.outputs[self.index]
            address = place.address + (self.index * len(outputs) // LANES if destination is self.all else 0)
            command = Matmul(
                p.positions, product.k, len(outputs), self.granules, p.blocks[names[0]], destination, address,
                place.stride, product.activations.format.name, product.weights.format.name,
                placed.records[self.index], HOST, RESULTS,
            )  # fmt: skip
            codes, scales = product.weights.codes[outputs], product.weights.scales[outputs]
            group = command.group(self.tile)
            self.image.append(weights.pack(codes, scales, group, self.tile.columns, product.weights.format))
            self.granules += len(self.image[-1]) // weights.GRANULE
            commands.append(command)
        return commands

    def _arrived(self, *names: str) -> Await:
        """Wait for the results of products: all tiles' of those that all tiles get, else this tile's."""
        p, senders = self.places, {"o": self.config.tiles, "down": self.config.tiles}
        outputs = sum(len(p.placed[name].outputs[self.index]) * senders.get(name, 1) for name in names)
        return Await(p.positions * outputs // LANES, RESULTS)

    def _send(self, name: str, place: Rows) -> Send:
        """This tile's part of a result to the host; of a row that is whole in every tile, its own share."""
        p, placed = self.places, self.places.placed[name]
        granules = len(placed.outputs[self.index]) // LANES
        share = self.index * granules if name in ("o", "down", "output") else 0
        source = Rows(place.address + share, place.stride)
        return Send(p.positions, granules, source, HOST, placed.offsets[self.index], placed.stride)
