"""Runs a plan on the chip: what the host's software does."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from golden.compiler import Plan
from tb.chip.host import Host


@dataclass
class Execution:
    """What came back: the result memory, counters of each tile, and the time of the run in cycles and seconds."""

    memory: NDArray[np.uint32]
    counters: list[dict[str, int]]
    cycles: int
    seconds: float
    phase_cycles: list[int] = field(default_factory=list)


async def execute(host: Host, plan: Plan, progress: Callable[[str], None] = lambda text: None) -> Execution:
    """Load programs, start all tiles, feed each phase, read everything back. The memory images are loaded already."""
    tiles = plan.config.tiles
    for tile, program in enumerate(plan.programs):
        await host.load_program(tile, program)
    await host.write("clear", 1)
    start, begun = int(host.dut.cycle.value), time.perf_counter()
    for tile in range(tiles):
        await host.start(tile)
    phases = []
    for number, phase in enumerate(plan.phases):
        await host.write_blocks(phase.blocks)
        await host.signals(tiles * (number + 1))
        phases.append(int(host.dut.cycle.value) - start)
        progress(f"phase {number + 1} of {len(plan.phases)}: {', '.join(p.name for p in phase.products)}")
    cycles, seconds = int(host.dut.cycle.value) - start, time.perf_counter() - begun
    counters = [await host.counters(tile) for tile in range(tiles)]
    return Execution(await host.results(plan.result_granules), counters, cycles, seconds, phases)
