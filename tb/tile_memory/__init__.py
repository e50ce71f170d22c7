"""Testbenches of a tile with its memory: the shapes of `make bench-tile`, small ones in the default suite."""

from dataclasses import dataclass

from hw.chip.tile_memory import TileMemory
from hw.hbm import SOURCES, HbmConfig
from hw.tile.config import TileConfig
from scripts.simulator import Model, Testbench

HBM = HbmConfig(capacity=16 << 20)
FORMATS = ("MXINT8", "E2M1")
CONFIGS = {
    # Multiply-accumulates a cycle, as a square systolic array of 16 or 32 would have them.
    "tile_256": TileConfig(rows=4, columns=2, slots=4, passes=32, activation_depth=4096, formats=FORMATS),
    "tile_1024": TileConfig(rows=8, columns=4, slots=4, passes=16, activation_depth=2048, formats=FORMATS),
}


@dataclass(frozen=True)
class Work:
    """Products [outputs, inputs] one after the other, all on `positions` positions."""

    shapes: tuple[tuple[int, int], ...]
    positions: int
    weight_format: str = "MXINT8"

    @property
    def inputs(self) -> list[int]:
        return [inputs for _, inputs in self.shapes]


LAYERS = {
    # SmolLM2-135M: q, k, v, o, gate, up, down.
    "smollm2": ((576, 576), (192, 576), (192, 576), (576, 576), (1536, 576), (1536, 576), (576, 1536)),
    "gptoss": ((2880, 2880),),
    "prefill": ((1536, 576),),
    "small": ((70, 96), (33, 160), (64, 96)),
}


def work_named(name: str) -> Work:
    """`<layer>-<positions>[-<weight format>]`, such as `gptoss-32-E2M1`."""
    layer, positions, *format = name.split("-")
    return Work(LAYERS[layer], int(positions), *format)


def bench(name: str, work: str, long: bool = True) -> Testbench:
    """The testbench of one array and one piece of work."""
    config = CONFIGS[name]
    model = Model(
        name=f"{name}_memory",
        component=lambda: TileMemory(config, HBM, name),
        sources=SOURCES,
        key=repr((config, HBM)),
        compile_once=(f"array_row_{config.key}", f"hbm_{name}"),
    )
    return Testbench(
        name=f"{name}-{work}",
        model=model,
        module="tb.tile_memory.test_tile_memory",
        long=long,
        environment={"TILE_CONFIG": name, "TILE_WORK": work},
        plusargs=("+hbm0_image=hbm0.bin",),
    )


TESTBENCHES = [bench("tile_256", "small-5-E2M1"), bench("tile_1024", "small-13")]
