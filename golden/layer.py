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

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from golden import vector, weights
from golden.compiler import HOST, Bytes, activation_blocks
from golden.formats import BLOCK
from golden.fp32_ops import Bits, from_float
from golden.layer_places import Floats, Layer, Placed, Places
from golden.layer_program import TileProgram
from golden.model import KvCache, Product, QuantisedLayer, layer_steps
from golden.rope_tables import rope_table
from golden.smollm2 import ModelConfig
from golden.vector_functions import ChipFunctions
from hw.config import ChipConfig, ConfigError
from hw.tile.config import LANES
from hw.tile.program import Matmul, ProgramError, encode_program

__all__ = ["Layer", "LayerPlan", "Placed", "layer_problem", "lower_layer", "placed_values", "run_layer"]


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


def lower_layer(
    config: ChipConfig, layer: Layer, program: Callable[[ChipConfig, Layer, Places, int], TileProgram] = TileProgram
) -> LayerPlan:
    """Programs, images and host steps of one layer. Raises ConfigError (one line) where the chip is too small.

    `program`: what makes a tile's program, by its index (`golden.layer_batch` has another).
    """
    if problem := layer_problem(config, layer.model):
        raise ConfigError(f"chip '{config.name}': {problem}")
    places = Places(layer, config)
    try:
        tiles = [program(config, layer, places, index) for index in range(config.tiles)]
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
