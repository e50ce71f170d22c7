"""The compiler: a layer's matrix products to tile programs, memory images and activation blocks.

Products that share their activations form a phase. A tile's program awaits a phase's activation blocks, runs its
products one after the other, and signals the host. Outputs are split over the tiles, K never.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from golden import weights
from golden.formats import BLOCK
from golden.model import Product
from hw.config import ChipConfig, ConfigError
from hw.tile.config import LANES, TileConfig
from hw.tile.isa import ROW_BITS
from hw.tile.program import Await, Command, Destination, Halt, Matmul, ProgramError, Signal, encode_program

HOST = Destination(0, 0, 1)
RECORD_GRANULES = 2

Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class PlacedProduct:
    """Where a product's results are in the host's memory: position m of tile t at `offsets[t] + m * stride`."""

    name: str
    positions: int
    shards: tuple[range, ...]
    offsets: tuple[int, ...]
    stride: int
    records: tuple[int | None, ...]
    commands: tuple[Matmul | None, ...]

    @property
    def n(self) -> int:
        return self.shards[-1].stop

    @property
    def k(self) -> int:
        return next(command.inputs for command in self.commands if command is not None)


@dataclass(frozen=True)
class Phase:
    """Activation blocks to write (remote-write address, elements, scale), then the products that use them."""

    blocks: tuple[tuple[int, Bytes, int], ...]
    products: tuple[PlacedProduct, ...]


@dataclass
class Plan:
    """What the host does: load images and programs, start, and for each phase write its blocks and await signals."""

    config: ChipConfig
    programs: list[list[int]]
    images: list[Bytes]
    phases: list[Phase]
    result_granules: int

    @property
    def rows(self) -> list[tuple[int, NDArray[np.uint32]]]:
        """What the vector memories get before the start: nothing."""
        return []

    @property
    def steps(self) -> list[tuple[str, tuple[tuple[int, Bytes, int], ...]]]:
        """What runs in each phase, and the blocks that it needs."""
        return [(", ".join(product.name for product in phase.products), phase.blocks) for phase in self.phases]

    @property
    def products(self) -> list[PlacedProduct]:
        """All products in order."""
        return [product for phase in self.phases for product in phase.products]

    def values(self, memory: NDArray[np.uint32]) -> dict[str, NDArray[np.uint32]]:
        """Every product's FP32 bits [M, N] by its name, from the host's result memory, uint32 [granules, 8]."""
        return {product.name: results(self.config, product, memory) for product in self.products}


@dataclass
class _Builder:
    config: ChipConfig
    commands: list[list[Command]] = field(default_factory=list)
    images: list[list[Bytes]] = field(default_factory=list)
    granules: list[int] = field(default_factory=list)
    result: int = 0
    activation: int = 0

    def __post_init__(self) -> None:
        tiles = self.config.tiles
        self.commands = [[] for _ in range(tiles)]
        self.images = [[] for _ in range(tiles)]
        self.granules = [0] * tiles

    def product(self, product: Product) -> PlacedProduct:
        """Append the product to every tile that has outputs of it."""
        tile, tiles = self.config.tile, self.config.tiles
        shards = weights.split_outputs(product.n, tiles)
        commands = [self._command(product, shard, index) if shard else None for index, shard in enumerate(shards)]
        widths = [command.position_granules(tile) if command else 0 for command in commands]
        offsets = [self.result + sum(widths[:index]) for index in range(tiles)]
        stride = sum(widths)
        self.result += stride * product.m
        records: list[int | None] = []
        for index, command in enumerate(commands):
            records.append(self.result if command else None)
            if command:
                command = _replaced(command, offsets[index], stride, self.result)
                commands[index] = command
                self.commands[index].append(command)
                self.result += RECORD_GRANULES
                self._image(product, shards[index], index, command)
        return PlacedProduct(
            product.name, product.m, tuple(shards), tuple(offsets), stride, tuple(records), tuple(commands)
        )

    def _command(self, product: Product, shard: range, index: int) -> Matmul:
        return Matmul(
            rows=product.m, inputs=product.k, outputs=len(shard), weight_address=self.granules[index],
            activation_base=self.activation, destination=HOST, result_address=0, result_stride=0,
            activation_format=product.activations.format.name, weight_format=product.weights.format.name,
        )  # fmt: skip

    def _image(self, product: Product, shard: range, index: int, command: Matmul) -> None:
        part = slice(shard.start, shard.stop)
        codes, scales = product.weights.codes[part], product.weights.scales[part]
        image = weights.pack(
            codes, scales, command.group(self.config.tile), self.config.tile.columns, product.weights.format
        )
        self.images[index].append(image)
        self.granules[index] += len(image) // weights.GRANULE

    def phase(self, number: int, products: Sequence[Product]) -> Phase:
        first = products[0].activations
        if any(other.activations.codes is not first.codes for other in products[1:]):
            raise ProgramError(f"The products of phase {number} do not share their activations")
        blocks = tuple(activation_blocks(self.config.tile, self.activation, first.codes, first.scales))
        for commands in self.commands:
            commands.append(Await(len(blocks)))
        placed = tuple(self.product(product) for product in products)
        for commands in self.commands:
            commands.append(Signal(number, HOST))
        self.activation += -(-products[0].m // self.config.tile.rows) * (products[0].k // BLOCK)
        return Phase(blocks, placed)


def activation_blocks(
    tile: TileConfig, base: int, codes: Bytes, scales: NDArray[np.unsignedinteger]
) -> Iterator[tuple[int, Bytes, int]]:
    """Blocks of [positions, inputs] from block `base` on, with their addresses; rows of the array innermost."""
    rows, (positions, inputs) = tile.rows, codes.shape
    for start in range(0, positions, rows):
        for k in range(inputs // BLOCK):
            index = base + start // rows * (inputs // BLOCK) + k
            for m in range(start, min(start + rows, positions)):
                yield index << ROW_BITS | (m - start), codes[m, k * BLOCK : (k + 1) * BLOCK], int(scales[m, k])


def _replaced(command: Matmul, address: int, stride: int, record: int) -> Matmul:
    return replace(command, result_address=address, result_stride=stride, record_address=record)


def lower(config: ChipConfig, phases: Sequence[Sequence[Product]]) -> Plan:
    """Programs, images and activation blocks for `phases` of products that share their activations.

    Raises ConfigError (one line: what does not fit, what is allowed) when the chip's memories are too small.
    """
    builder = _Builder(config)
    try:
        placed = [builder.phase(number, products) for number, products in enumerate(phases)]
        for commands in builder.commands:
            commands.append(Halt())
        programs = [encode_program(config.tile, commands) for commands in builder.commands]
    except ProgramError as error:
        raise ConfigError(f"chip '{config.name}': {error}") from None
    if builder.result > config.result_granules:
        raise ConfigError(
            f"chip '{config.name}': the results take {builder.result} granules; chip.result_granules is "
            f"{config.result_granules}"
        )
    if max(builder.granules) > config.hbm.granules:
        raise ConfigError(
            f"chip '{config.name}': a tile's weights take {max(builder.granules)} granules; hbm.capacity holds "
            f"{config.hbm.granules}"
        )
    joined = [np.concatenate(parts) if parts else np.zeros(0, np.uint8) for parts in builder.images]
    return Plan(config, programs, joined, placed, builder.result)


def results(config: ChipConfig, product: PlacedProduct, memory: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """The FP32 bits [M, N] of a product from the host's result memory, uint32 [granules, 8]."""
    tile = config.tile
    found = np.zeros((product.positions, product.shards[-1].stop), np.uint32)
    for shard, offset, command in zip(product.shards, product.offsets, product.commands, strict=True):
        if command is None:
            continue
        lines = offset + np.arange(product.positions)[:, None] * product.stride
        part = memory[lines + np.arange(command.position_granules(tile))]
        found[:, shard.start : shard.stop] = _outputs(config, command, part)
    return found


def _outputs(config: ChipConfig, command: Matmul, granules: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """[positions, outputs] from [positions, granules, 8]: each group's slots, `columns` values a slot."""
    tile, parts, start = config.tile, [], 0
    left = -(-command.outputs // tile.columns)
    slots = command.group(tile) // tile.columns
    while left:
        now = min(left, slots)
        lanes = granules[:, start : start + tile.group_granules(now)]
        if tile.columns >= LANES:
            values = lanes.reshape(len(lanes), now, -1)[..., : tile.columns]
        else:
            values = lanes[..., : tile.fragments * tile.columns].reshape(len(lanes), -1, tile.columns)[:, :now]
        parts.append(values.reshape(len(lanes), -1))
        start += tile.group_granules(now)
        left -= now
    return np.concatenate(parts, axis=1)[:, : command.outputs]
