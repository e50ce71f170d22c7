"""Testbenches of the whole chip with its DRAM devices.

`chip`: registers, data port and small products on the chip of `make sim`, the same model that it runs. `chip_layer`:
a small layer on it; `chip_attention`: one sequence on one, two and four of its tiles;
`chip_invariances_<n>`: a layer's rows of several users on n tiles.
"""

from functools import cache
from pathlib import Path

from hw.chip.simulated import SimulatedChip
from hw.config import DEFAULT, ChipConfig, load
from hw.hbm import SOURCES
from hw.tile.attention import attention_size
from scripts.simulator import Model, Testbench


def model(config: ChipConfig) -> Model:
    """The simulated chip of a configuration."""
    vector = (f"vector_path_{config.tile.vector_key}",) if config.tile.vector_depth else ()
    if config.tile.attention_rows:
        vector += (f"attention_slice_{attention_size(config.tile).key}",)
    return Model(
        name=f"simulated_{config.name}",
        component=lambda: SimulatedChip(config),
        sources=SOURCES,
        key=repr(config),
        optimise="-O1",
        compile_once=(f"array_row_{config.tile.key}", f"hbm_{config.name}", *vector),
    )


def images(config: ChipConfig, folder: str = ".") -> tuple[str, ...]:
    """Plusargs that load each channel's image from `folder`/hbm<t>.bin at time zero."""
    return tuple(f"+hbm{tile}_image={Path(folder) / f'hbm{tile}.bin'}" for tile in range(config.tiles))


@cache
def default() -> ChipConfig:
    return load(DEFAULT)


TESTBENCHES = [
    Testbench(name="chip", model=model(default()), module="tb.chip.test_chip", plusargs=images(default())),
    Testbench(name="chip_layer", model=model(default()), module="tb.chip.test_whole_layer", plusargs=images(default())),
    Testbench(
        name="chip_attention", model=model(default()), module="tb.chip.test_attention", plusargs=images(default())
    ),
    *(
        Testbench(
            name=f"chip_invariances_{tiles}",
            model=model(default()),
            module="tb.chip.test_invariances",
            plusargs=images(default()),
            environment={"LAYER_TILES": str(tiles)},
        )
        for tiles in (1, 2, 4)
    ),
    Testbench(
        name="chip_environment", model=model(default()), module="tb.chip.test_environment", plusargs=images(default())
    ),
]
