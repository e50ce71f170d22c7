"""Where everything of a layer is: in the tiles' vector, activation and HBM memories, and in the host's memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from golden.attention import AttentionShape
from golden.attention_layout import leaf_granules
from golden.compiler import RECORD_GRANULES
from golden.formats import BLOCK
from golden.fp32_ops import Bits, from_float
from golden.model import PRODUCTS, Product, QuantisedLayer
from golden.smollm2 import ModelConfig
from hw.config import ChipConfig
from hw.tile.config import LANES
from hw.tile.vector_program import Rows

__all__ = ["Layer", "Placed", "Places"]

Floats = NDArray[np.float32]
Indices = NDArray[np.int64]


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


class Places:
    """The memory map: vector and activation memories are the same in every tile."""

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
