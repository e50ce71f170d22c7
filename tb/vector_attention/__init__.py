"""Testbench of `hw.vector.attention_tile.AttentionTile`: attention on the tile's array."""

from hw.tile.config import TileConfig
from hw.vector.attention_tile import AttentionTile
from scripts.simulator import Model, Testbench

CONFIG = TileConfig(rows=4, columns=4, slots=8, passes=2, activation_depth=256)
MAX_ROWS, MAX_VALUE_GROUPS, LEVELS = 8, 2, 4


def _tile() -> AttentionTile:
    return AttentionTile(CONFIG, MAX_ROWS, MAX_VALUE_GROUPS, LEVELS)


MODEL = Model(
    "attention_tile", _tile, key=f"{CONFIG.key}, {MAX_ROWS}, {MAX_VALUE_GROUPS}, {LEVELS}", optimise="-O1",
    compile_once=("vector_lane", "vector_reduce_level", f"array_row_{CONFIG.key}"),
)  # fmt: skip

TESTBENCHES = [Testbench("vector_attention", MODEL, "tb.vector_attention.test_vector_attention")]
