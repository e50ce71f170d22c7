"""Testbench of `hw.tile.tile.Tile`: whole programs against the golden machine, at several sizes of the array."""

from hw.tile.attention import attention_size
from hw.tile.config import TileConfig
from hw.tile.tile import Tile
from scripts.simulator import Model, Testbench

CONFIGS = {
    "tile_1x1": TileConfig(rows=1, columns=1, slots=3, passes=4, activation_depth=64),
    "tile_2x3": TileConfig(rows=2, columns=3, slots=4, passes=4, activation_depth=64, weight_sets=24),
    "tile_2x2_formats": TileConfig(
        rows=2,
        columns=2,
        slots=4,
        passes=4,
        activation_depth=64,
        formats=("MXINT8", "E4M3", "E2M1", "INT4"),
        weight_sets=33,
    ),
    "tile_2x2_widths": TileConfig(
        rows=2, columns=2, slots=4, passes=3, activation_depth=64, formats=("E5M2", "E2M3", "E3M2", "E2M1")
    ),
    "tile_2x3_groups": TileConfig(
        rows=2, columns=3, slots=4, passes=4, activation_depth=64, formats=("E4M3_FP32", "INT4_BF16", "NVFP4", "E2M3")
    ),
    "tile_1x1_offsets": TileConfig(
        rows=1,
        columns=1,
        slots=8,
        passes=3,
        activation_depth=64,
        formats=("MXINT8", "Q4_1", "UINT4_ZERO"),
        weight_sets=65,
    ),
    "tile_8x1": TileConfig(rows=8, columns=1, slots=8, passes=2, activation_depth=64),
    "tile_8x4": TileConfig(rows=8, columns=4, slots=3, passes=2, activation_depth=64, weight_sets=17),
    "tile_3x2": TileConfig(rows=3, columns=2, slots=8, passes=2, activation_depth=64, weight_sets=40),
    "tile_4x8": TileConfig(rows=4, columns=8, slots=2, passes=3, activation_depth=64),
    "tile_2x16": TileConfig(rows=2, columns=16, slots=2, passes=2, activation_depth=64),
    "tile_2x4_vector": TileConfig(
        rows=2, columns=4, slots=2, passes=4, activation_depth=64, instruction_depth=128, vector_depth=768
    ),
    "tile_2x4_attention": TileConfig(
        rows=2,
        columns=4,
        slots=8,
        passes=4,
        activation_depth=128,
        instruction_depth=128,
        vector_depth=2048,
        weight_sets=25,
        formats=("MXINT8", "E4M3"),
        attention_rows=8,
        attention_leaf_buffer=True,
    ),
    "tile_4x8_attention": TileConfig(
        rows=4,
        columns=8,
        slots=4,
        passes=4,
        activation_depth=256,
        instruction_depth=256,
        vector_depth=8192,
        formats=("MXINT8", "E2M1", "E5M2"),
        attention_rows=16,
        attention_channels=96,
    ),
    "tile_3x2_vector": TileConfig(
        rows=3,
        columns=2,
        slots=4,
        passes=3,
        activation_depth=64,
        instruction_depth=128,
        vector_depth=1024,
        formats=("E4M3", "MXINT8", "E2M1"),
    ),
}
DEFAULT_SUITE = (
    "tile_1x1_offsets", "tile_2x3", "tile_2x2_formats", "tile_2x3_groups", "tile_3x2", "tile_4x8", "tile_8x4",
    "tile_2x4_attention",
)  # fmt: skip
"""Rows and columns of 1, 2, 3, 4 and 8, and every format; weight buffers that are full soon, and the usual one."""


def _model(name: str, config: TileConfig) -> Model:
    slices = (f"attention_slice_{attention_size(config).key}",) if config.attention_rows else ()
    return Model(name=name, component=lambda: Tile(config), key=repr(config), optimise="-O0", compile_once=slices)


def _bench(name: str, config: TileConfig) -> Testbench:
    return Testbench(
        name=name,
        model=_model(name, config),
        module="tb.tile.test_tile_vector" if config.vector_depth else "tb.tile.test_tile",
        long=name not in DEFAULT_SUITE,
        environment={"TILE_CONFIG": name},
    )


def _attention(name: str, config: str, **long: str) -> Testbench:
    """Programs of attention, on the model of the bench `config`."""
    return Testbench(
        name=name,
        model=_model(config, CONFIGS[config]),
        module="tb.tile.test_tile_attention",
        long=bool(long),
        environment={"TILE_CONFIG": config, **long},
    )


TESTBENCHES = [
    *(_bench(name, config) for name, config in CONFIGS.items()),
    _attention("tile_attention", "tile_2x4_attention"),
    _attention("tile_attention_long", "tile_4x8_attention", TILE_ATTENTION_LONG="1"),
]
