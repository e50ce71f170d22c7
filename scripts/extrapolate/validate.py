"""The cycle formula against RTL runs that it was not fitted on: other tiles, other shapes, 4-bit weights.

The runs are those of `make bench-tile`: a tile with its memory controller and DRAM, products one after the other,
cycles from the start of the program to the last result sent.
"""

from __future__ import annotations

import json
from math import ceil
from pathlib import Path

from rich.table import Table

from scripts.extrapolate.chips import TileShape
from scripts.extrapolate.cycles import FP32_IN_GRANULE, Constants, Run, work
from scripts.extrapolate.toml_object import DescriptionError

BITS = {"MXINT8": 8.25, "E2M1": 4.25}


def tile_runs(folder: Path) -> list[Run]:
    """Runs of `make bench-tile` under `folder` (build/runs). DescriptionError where there is none."""
    from tb.tile_memory import CONFIGS

    found = []
    for path in sorted(folder.glob("*/measured.json")):
        name, _, _ = path.parent.name.partition("-")
        if name not in CONFIGS:
            continue
        record = json.loads(path.read_text())
        config, asked = CONFIGS[name], record["work"]
        tile = TileShape(config.rows, config.columns, config.slots)
        shapes, positions = asked["shapes"], asked["positions"]
        works = tuple(work(positions, k, n, tile, 1, bits=BITS[asked["weight_format"]]) for n, k in shapes)
        # The last group's results leave after its last operand, a granule a cycle.
        outputs = ceil(shapes[-1][0] / tile.columns) * tile.columns
        tail = positions * ceil(min(outputs, tile.slots * tile.columns) / FP32_IN_GRANULE)
        cycles = record["counters"]["cycles"] - tail
        found.append(Run(path.parent.name, "decode" if positions == 1 else "prefill", works, cycles))
    if not found:
        raise DescriptionError(f"{folder} has no run of `make bench-tile`")
    return found


def table(constants: Constants, found: list[Run]) -> Table:
    """Measured and predicted cycles of each run, and what sets the time."""
    made = Table(title="The cycle formula on tiles and shapes that it was not fitted on", title_justify="left")
    made.add_column("run")
    for column in ("measured", "formula", "error"):
        made.add_column(column, justify="right")
    made.add_column("set by")
    for run in found:
        limits = {
            "array": sum(w.array - w.ordered for w in run.works),
            "accumulators": sum(w.array for w in run.works),
            "unpacker": sum(w.unpack for w in run.works),
            "memory": sum(w.stream * constants.memory_factor for w in run.works),
            "results": sum(w.results for w in run.works),
        }
        error = f"{100 * constants.error(run):+.1f} %"
        limit = max(limits, key=limits.__getitem__)
        made.add_row(run.name, f"{run.cycles:,.0f}", f"{constants.predict(run):,.0f}", error, limit)
    made.caption = "a cold start of 150 to 400 cycles a program is not in the formula: it shows in the smallest runs"
    return made
