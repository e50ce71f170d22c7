"""Testbench of `hw.vector.attention_tile.AttentionTile`: attention on the tile's array."""

import os
from dataclasses import dataclass

from hw.tile.config import TileConfig
from hw.vector.attention_tile import AttentionTile
from hw.vector.merge import MemoryMap
from scripts.simulator import Model, Testbench


@dataclass(frozen=True)
class Size:
    """A build: the tile and the limits of its attention engine."""

    name: str
    config: TileConfig
    max_rows: int
    max_value_groups: int
    levels: int

    @property
    def map(self) -> MemoryMap:
        return MemoryMap(self.max_rows, self.max_value_groups, self.levels)

    def tile(self) -> AttentionTile:
        return AttentionTile(self.config, self.max_rows, self.max_value_groups, self.levels)

    @property
    def model(self) -> Model:
        return Model(
            self.name, self.tile, key=repr(self), optimise="-O1",
            compile_once=("vector_lane", "vector_reduce_level", f"array_row_{self.config.key}"),
        )  # fmt: skip


SIZES = {
    size.name: size
    for size in (
        Size("attention_tile", TileConfig(rows=4, columns=4, slots=8, passes=2, activation_depth=256), 8, 2, 6),
        # Twice the columns drain twice as fast: what eight heads on a head of 64 need.
        Size("attention_tile_wide", TileConfig(rows=4, columns=8, slots=4, passes=2, activation_depth=256), 8, 2, 6),
        # 16 heads on values of 512 channels: absorbed MLA.
        Size("attention_tile_latent", TileConfig(4, 8, slots=4, passes=4, activation_depth=1024), 16, 16, 3),
        # 16 rows of prefill.
        Size("attention_tile_16", TileConfig(rows=4, columns=4, slots=8, passes=4, activation_depth=1024), 16, 2, 3),
    )
}
SIZE = SIZES[os.environ.get("ATTENTION_SIZE", "attention_tile")]

# The build takes more than a minute of processor time, so this one waits for the long regression.
TESTBENCHES = [Testbench("vector_attention", SIZE.model, "tb.vector_attention.test_vector_attention", long=True)]
