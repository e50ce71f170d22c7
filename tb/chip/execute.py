"""Runs a plan on the chip: what the host's software does."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from golden.compiler import Plan
from golden.layer import LayerPlan
from tb.chip.host import Host


@dataclass
class Execution:
    """What came back: the result memory, counters of each tile, and the time of the run in cycles and seconds."""

    memory: NDArray[np.uint32]
    counters: list[dict[str, int]]
    cycles: int
    seconds: float
    phase_cycles: list[int] = field(default_factory=list)


async def execute(host: Host, plan: Plan | LayerPlan, progress: Callable[[str], None] = lambda text: None) -> Execution:
    """Load programs and rows, start all tiles, feed each step, read everything back. The memory images are loaded."""
    tiles = plan.config.tiles
    for tile, program in enumerate(plan.programs):
        await host.load_program(tile, program)
    for address, granules in plan.rows:
        await host.write_rows(address, granules)
    await host.write("clear", 1)
    start, begun = int(host.dut.cycle.value), time.perf_counter()
    for tile in range(tiles):
        await host.start(tile)
    phases = []
    for number, (text, blocks) in enumerate(plan.steps):
        await host.write_blocks(blocks)
        await host.signals(tiles * (number + 1))
        phases.append(int(host.dut.cycle.value) - start)
        progress(f"phase {number + 1} of {len(plan.steps)}: {text}")
    cycles, seconds = int(host.dut.cycle.value) - start, time.perf_counter() - begun
    counters = [await host.counters(tile) for tile in range(tiles)]
    return Execution(await host.results(plan.result_granules), counters, cycles, seconds, phases)
