"""Testbench of `hw.vector.attention_tile.AttentionTile`: attention on the tile's array."""

import os

from hw.tile.config import TileConfig
from hw.vector.attention_tile import AttentionTile
from hw.vector.leaves import AttentionSize
from scripts.simulator import Model, Testbench

FORMATS = ("MXINT8", "E4M3")


def model(name: str, size: AttentionSize) -> Model:
    """The model of a build."""
    return Model(
        name, lambda: AttentionTile(size), key=repr(size), optimise="-O1",
        compile_once=(f"attention_slice_{size.key}", f"array_row_{size.tile.key}"),
    )  # fmt: skip


SIZES = {
    # The tile of the small chip, 32 rows at a time: decode and prefill.
    "attention_tile": AttentionSize(TileConfig(4, 4, slots=8, passes=8, activation_depth=512, formats=FORMATS), 32, 2),
    # As little as there can be, for the default suite.
    "attention_tile_small": AttentionSize(
        TileConfig(2, 2, slots=16, passes=4, activation_depth=128, formats=FORMATS), 8, 2, 4, leaf_buffer=True
    ),
    # 16 heads on values of 512 channels: absorbed MLA.
    "attention_tile_latent": AttentionSize(
        TileConfig(4, 8, slots=4, passes=4, activation_depth=1024), 16, 16, 4, 4, leaf_buffer=True
    ),
}
NAME = os.environ.get("ATTENTION_SIZE", "attention_tile")
SIZE = SIZES[NAME]

SMALL = "attention_tile_small"


def _bench(name: str, long: bool) -> Testbench:
    environment = {"ATTENTION_SIZE": name}
    module = "tb.vector_attention.test_vector_attention"
    return Testbench(f"vector_{name}", model(name, SIZES[name]), module, long, environment)


# Every test on the small build, and again on the chip's where minutes do not matter. The one for MLA is measured.
TESTBENCHES = [_bench(SMALL, False), _bench("attention_tile", True)]
