"""A whole layer as one program a tile: what stands between the products runs on the tiles' vector units.

The residual stream is whole in every tile's vector memory. Outputs of each product are split over the tiles; each tile
norms and quantises for itself, rotates and gates what it has, and what all need (the outputs of `o` and `down`, the
blocks of the gated values) it sends to all. Of `q` and `k` a tile has, of every head, the channels of the same pairs,
so that it can rotate them alone. For attention the owner of a key head gathers its queries, key and value from all
tiles, appends to its KV cache, attends, and sends the blocks of the mixed values to all. Where the tiles have no
attention engine, rotated queries and keys, and the values, go to the host, which brings those blocks.

Every result that leaves a tile is compared: it is placed in the host's memory as `Placed` says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from golden import vector, weights
from golden.attention import LEAF, AttentionShape, query_factor
from golden.attention_layout import leaf_granules
from golden.compiler import HOST, RECORD_GRANULES, Bytes, activation_blocks
from golden.formats import BLOCK
from golden.fp32_ops import Bits, from_float
from golden.model import PRODUCTS, KvCache, Product, QuantisedLayer, layer_steps
from golden.rope_tables import rope_table
from golden.smollm2 import ModelConfig
from golden.vector_commands import add, rms_norm, rope, swiglu
from golden.vector_functions import ChipFunctions
from hw.config import ChipConfig, ConfigError
from hw.tile.attention_program import Append, Attend, Page
from hw.tile.config import LANES, TileConfig
from hw.tile.program import Await, Command, Destination, Halt, Matmul, ProgramError, Signal, encode_program
from hw.tile.vector_program import Quantise, Rows, Send, Vector

__all__ = ["Layer", "LayerPlan", "Placed", "layer_problem", "lower_layer", "placed_values", "run_layer"]

Floats = NDArray[np.float32]
Indices = NDArray[np.int64]

FROM_HOST, OWN_BLOCKS, RESULTS, ALL_BLOCKS, GATHERED = range(5)
"""What the arrival counters count. A tile starts on a counter's next use only behind an AWAIT that all tiles' work of
the use before has gone through, so no write is ever counted for the wrong AWAIT."""


@dataclass(frozen=True)
class Layer:
    """One layer's work: `x` float32 [M, hidden], RoPE tables uint32 [M, head_size], the seven products by name.

    `position` is that of the first row; those before it are in the KV caches.
    """

    model: ModelConfig
    weights: QuantisedLayer
    x: Floats
    cosine: Bits
    sine: Bits
    products: dict[str, Product]
    position: int = 0


def run_layer(
    model: ModelConfig, layer: QuantisedLayer, x: Floats, cache: KvCache, number: int = 0, fast: bool = False
) -> tuple[Layer, dict[str, Bits]]:
    """One layer over the positions behind `cache`, which grows, with the chip's functions between its products.

    Returns the work, and the bits that every result must have, by the names of `LayerPlan.placed`. `fast`: products
    by `golden.model_fast`, the same bits in less time.
    """
    positions = np.arange(len(cache), len(cache) + len(x))
    steps = layer_steps(model, layer, x, cache, layer=number, functions=ChipFunctions())
    products: dict[str, Product] = {}
    expected: dict[str, Bits] = {}
    try:
        product = next(steps)
        while True:
            products[product.name] = product
            expected[product.name] = product.fast() if fast else product.golden()
            product = steps.send(expected[product.name])
    except StopIteration as end:
        expected["output"] = from_float(end.value)
    length = int(positions[-1]) + 1
    cosine, sine = (table[positions] for table in rope_table(int(model.rope_base), model.head_size, length))
    both = np.concatenate([expected["q"], expected["k"]], axis=1).reshape(len(x), -1, model.head_size)
    expected["rotated q and k"] = vector.rope(both, cosine[:, None], sine[:, None]).reshape(len(x), -1)
    return Layer(model, layer, x, cosine, sine, products, int(positions[0])), expected


@dataclass(frozen=True)
class Placed:
    """Where a result is in the host's memory: position m of tile t at `offsets[t] + m * stride`.

    Tile t has the outputs `outputs[t]`; `k` is 0 where the result is not a product's; `records` are the places of the
    tiles' counters at the product's end.
    """

    name: str
    positions: int
    k: int
    outputs: tuple[Indices, ...]
    offsets: tuple[int, ...]
    stride: int
    records: tuple[int | None, ...] = ()

    @property
    def n(self) -> int:
        return sum(map(len, self.outputs))


@dataclass
class LayerPlan:
    """What the host does: load images, programs and rows, start; for each step, bring its blocks and await signals."""

    config: ChipConfig
    programs: list[list[int]]
    images: list[Bytes]
    rows: list[tuple[int, Bits]]
    steps: list[tuple[str, tuple[tuple[int, Bytes, int], ...]]]
    placed: list[Placed]
    result_granules: int

    @property
    def products(self) -> list[Placed]:
        """The products among what is placed, in order."""
        return [placed for placed in self.placed if placed.k]

    def values(self, memory: Bits) -> dict[str, Bits]:
        """Every result's FP32 bits [M, N] by its name, from the host's result memory, uint32 [granules, 8]."""
        return {placed.name: placed_values(placed, memory) for placed in self.placed}


def layer_problem(config: ChipConfig, model: ModelConfig) -> str | None:
    """Why a chip cannot run a whole layer of a model; None where it can."""
    tile, tiles = config.tile, config.tiles
    if not tile.vector_depth:
        return "the tiles have no vector unit"
    if model.head_size // 2 % (tiles * LANES):
        return f"half a head ({model.head_size // 2} channels) is not a multiple of {LANES} for each of {tiles} tiles"
    if model.feed_forward % (tiles * BLOCK) or model.hidden % (tiles * LANES) or model.kv_size % (tiles * LANES):
        return f"{tiles} tiles do not divide the layer into whole granules and blocks"
    for name, (outputs, inputs) in model.shapes().items():
        command = Matmul(1, inputs, outputs // tiles, 0, 0, HOST, 0, 0)
        if command.position_granules(tile) * LANES != outputs // tiles:
            return f"{tile.columns} columns and {tile.slots} slots leave gaps in the results of {name}"
    return None


def lower_layer(config: ChipConfig, layer: Layer) -> LayerPlan:
    """Programs, images and host steps of one layer. Raises ConfigError (one line) where the chip is too small."""
    if problem := layer_problem(config, layer.model):
        raise ConfigError(f"chip '{config.name}': {problem}")
    places = _Places(layer, config)
    try:
        tiles = [_TileProgram(config, layer, places, index) for index in range(config.tiles)]
        programs = [encode_program(config.tile, tile.commands()) for tile in tiles]
    except ProgramError as error:
        raise ConfigError(f"chip '{config.name}': {error}") from None
    if places.result > config.result_granules:
        raise ConfigError(
            f"chip '{config.name}': the results take {places.result} granules; chip.result_granules is "
            f"{config.result_granules}"
        )
    images = [np.concatenate(tile.image) for tile in tiles]
    room = places.cache * weights.GRANULE
    if max(map(len, images)) > room:
        raise ConfigError(
            f"chip '{config.name}': a tile's weights take {max(map(len, images))} bytes; hbm.capacity leaves {room}"
        )
    steps: list[tuple[str, tuple[tuple[int, Bytes, int], ...]]] = [("layer", ()), ("results", ())]
    if not config.tile.attention_rows:
        mixed = layer.products["o"].activations
        blocks = tuple(activation_blocks(config.tile, places.blocks["o"], mixed.codes, mixed.scales))
        steps = [("q, k, v", ()), ("o, gate, up, down", blocks), ("results", ())]
    return LayerPlan(config, programs, images, places.rows(), steps, list(places.placed.values()), places.result)


def placed_values(placed: Placed, memory: Bits) -> Bits:
    """The FP32 bits [M, N] of a result from the host's memory, uint32 [granules, 8]."""
    found = np.zeros((placed.positions, placed.n), np.uint32)
    for outputs, offset in zip(placed.outputs, placed.offsets, strict=True):
        lines = offset + np.arange(placed.positions)[:, None] * placed.stride
        part = memory[lines + np.arange(len(outputs) // LANES)]
        found[:, outputs] = part.reshape(placed.positions, -1)
    return found


class _Places:
    """Where everything is: in the vector and activation memories (the same in every tile) and in the host's memory."""

    def __init__(self, layer: Layer, config: ChipConfig) -> None:
        self.layer, self.config = layer, config
        model, self.positions = layer.model, len(layer.x)
        self.rotated_heads = model.heads + model.kv_heads
        widths = {name: outputs // config.tiles for name, (outputs, _) in model.shapes().items()}
        self.vector = 0
        self.x, self.normed = self._place(model.hidden), self._place(model.hidden)
        self.attention_gain, self.feed_forward_gain = (self._place(model.hidden, 1) for _ in range(2))
        self.cosine, self.sine = (self._place(model.head_size) for _ in range(2))
        self.scratch = self._place(LANES * -(-self.positions // LANES), 1).address
        self.queries_keys, self.rotated = (self._place(widths["q"] + widths["k"]) for _ in range(2))
        key = Rows(self.queries_keys.address + widths["q"] // LANES, self.queries_keys.stride)
        self.products = {"q": self.queries_keys, "k": key, "v": self._place(widths["v"])}
        for name in ("gate", "up"):
            self.products[name] = self._place(widths[name])
        self.gated = self._place(widths["gate"])
        for name in ("o", "down"):
            self.products[name] = self._place(model.hidden)
        self._attention()
        passes, block = -(-self.positions // config.tile.rows), 0
        self.blocks = {}
        for name in ("q", "o", "gate", "down"):
            self.blocks[name] = block
            block += passes * (model.shapes()[name][1] // BLOCK)
        self.query_base = block
        self.result = 0
        self.placed: dict[str, Placed] = {}
        for name in PRODUCTS:
            outputs, inputs = model.shapes()[name]
            self._result(name, outputs, inputs, self._shares(name))
        both = self._shares("q"), self._shares("k")
        rotated = tuple(np.concatenate([q, model.hidden + k]) for q, k in zip(*both, strict=True))
        self._result("rotated q and k", model.hidden + model.kv_size, 0, rotated)
        self._result("output", model.hidden, 0, self._shares("o"))

    def _attention(self) -> None:
        """Where an owner of key heads has what it gathers, and its KV cache: at the end of its memory."""
        model, config = self.layer.model, self.config
        self.cache, self.leaf = config.hbm.granules, 0
        if not config.tile.attention_rows:
            return
        self.group = model.heads // model.kv_heads
        self.scaled = self._place(model.hidden // config.tiles)
        owned = range(-(-model.kv_heads // config.tiles))
        self.queries = [self._place(self.group * model.head_size) for _ in owned]
        self.keys_values = [self._place(2 * model.head_size) for _ in owned]
        self.mixed = [self._place(self.group * model.head_size) for _ in owned]
        shape = AttentionShape(model.heads, model.kv_heads, model.head_size, model.head_size)
        self.leaf = leaf_granules(shape)
        self.cache -= len(owned) * config.tile.attention_leaves * self.leaf

    def _place(self, length: int, rows: int | None = None) -> Rows:
        stride = length // LANES
        self.vector += stride * (self.positions if rows is None else rows)
        return Rows(self.vector - stride * (self.positions if rows is None else rows), stride)

    def _shares(self, name: str) -> tuple[Indices, ...]:
        """Each tile's outputs of a product, in the order of its results."""
        model, tiles = self.layer.model, self.config.tiles
        outputs = np.arange(model.shapes()[name][0])
        if name not in ("q", "k", "v"):
            return tuple(outputs.reshape(tiles, -1))
        # [head, half, tile, channel]: a tile has the same channels of both halves, which RoPE turns against each other
        pairs = outputs.reshape(-1, 2, tiles, model.head_size // 2 // tiles)
        return tuple(pairs[:, :, tile].reshape(-1) for tile in range(tiles))

    def _result(self, name: str, total: int, inputs: int, outputs: tuple[Indices, ...]) -> None:
        """A place in the host's memory, with room for the records of a product."""
        widths = [len(part) // LANES for part in outputs]
        offsets = tuple(self.result + sum(widths[:index]) for index in range(len(widths)))
        self.result += self.positions * sum(widths)
        records: tuple[int, ...] = ()
        if inputs:
            records = tuple(self.result + RECORD_GRANULES * index for index in range(len(outputs)))
            self.result += RECORD_GRANULES * len(outputs)
        self.placed[name] = Placed(name, self.positions, inputs, outputs, offsets, sum(widths), records)

    def rows(self) -> list[tuple[int, Bits]]:
        """What the host writes into every vector memory before the start: granule, and granules uint32 [n, 8]."""
        layer = self.layer
        given = (
            (self.x, from_float(layer.x)),
            (self.attention_gain, from_float(layer.weights.attention_norm)),
            (self.feed_forward_gain, from_float(layer.weights.feed_forward_norm)),
            (self.cosine, layer.cosine),
            (self.sine, layer.sine),
        )
        return [(place.address, np.asarray(values, np.uint32).reshape(-1, LANES)) for place, values in given]


@dataclass
class _TileProgram:
    """One tile's commands and its memory image."""

    config: ChipConfig
    layer: Layer
    places: _Places
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
        """The layer, behind it what is compared."""
        p, model = self.places, self.layer.model
        granules = sum(len(rows) for _, rows in p.rows())
        commands: list[Command] = [Await(granules, FROM_HOST)]
        commands += self._norm("q", p.attention_gain)
        commands += self._products(("q", "k", "v"), self.here)
        commands += self._rotate()
        if self.tile.attention_rows:
            commands += self._attention()
        else:
            commands += [self._send("rotated q and k", p.rotated), self._send("v", p.products["v"]), Signal(0, HOST)]
            commands.append(Await(p.positions * model.hidden // BLOCK, FROM_HOST))
        commands += self._products(("o",), self.all)
        commands += add(p.positions, model.hidden, p.x, p.products["o"], p.x)
        commands += self._norm("gate", p.feed_forward_gain)
        commands += self._products(("gate", "up"), self.here)
        commands += self._gate()
        commands += self._products(("down",), self.all)
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
        """SwiGLU of this tile's outputs; their blocks to all tiles."""
        p, model = self.places, self.layer.model
        width, blocks = model.feed_forward // self.config.tiles, model.feed_forward // BLOCK
        target = p.blocks["down"] + self.index * width // BLOCK
        format = self.layer.products["down"].activations.format.name
        return [
            *swiglu(p.positions, width, p.products["gate"], p.products["up"], p.gated),
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
        """Scale the queries, gather heads at their owners, append, attend; blocks of the result to all tiles."""
        p, model, config = self.places, self.layer.model, self.config
        factor, width = int(query_factor(model.head_size)), model.hidden // config.tiles
        commands: list[Command] = [Vector(p.positions, width, p.rotated, factor, result=p.scaled)]
        key = Rows(p.rotated.address + width // LANES, p.rotated.stride)
        for head in range(model.kv_heads):
            owner, slot = Destination(*config.place(head % config.tiles)), head // config.tiles
            kv, half = p.keys_values[slot], model.head_size // LANES
            commands += self._gather(owner, p.scaled, head, p.group, p.queries[slot])
            commands += self._gather(owner, key, head, 1, kv)
            commands += self._gather(owner, p.products["v"], head, 1, Rows(kv.address + half, kv.stride))
        owned = range(self.index, model.kv_heads, config.tiles)
        if owned:
            count = (p.group + 2) * model.head_size // LANES * p.positions
            commands.append(Await(len(owned) * count, GATHERED))
        for slot, head in enumerate(owned):
            commands += self._attend(slot, head)
        return [*commands, Await(p.positions * model.hidden // BLOCK, ALL_BLOCKS)]

    def _gather(self, owner: Destination, source: Rows, head: int, heads: int, target: Rows) -> list[Command]:
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
                     GATHERED)
                for m in range(p.positions)
            ]  # fmt: skip
        return [
            Send(p.positions, share, Rows(first + n * share, source.stride), owner, place + n * half, target.stride,
                 GATHERED)
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
        """Products that share their activations, into vector memories; then wait for their results."""
        p, total = self.places, 0
        commands: list[Command] = []
        for name in names:
            product, placed, place = self.layer.products[name], p.placed[name], p.products[name]
            outputs = placed.outputs[self.index]
            everywhere = destination is self.all
            address = place.address + (self.index * len(outputs) // LANES if everywhere else 0)
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
            total += len(outputs) * (self.config.tiles if everywhere else 1)
        return [*commands, Await(p.positions * total // LANES, RESULTS)]

    def _send(self, name: str, place: Rows) -> Send:
        """This tile's part of a result to the host; of a row that is whole in every tile, its own share."""
        p, placed = self.places, self.places.placed[name]
        granules = len(placed.outputs[self.index]) // LANES
        share = self.index * granules if name in ("o", "down", "output") else 0
        source = Rows(place.address + share, place.stride)
        return Send(p.positions, granules, source, HOST, placed.offsets[self.index], placed.stride)
