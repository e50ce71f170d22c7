"""Cycles of one matrix product: a closed formula of the tile's loop nest, with constants fitted on RTL runs.

cycles = start + max(array, cycles_per_granule * stream, cycles_per_result * results)

`array`, `stream` and `results` follow from the shape and the tile alone (`Work`). The three constants are what the RTL
adds: how long a product takes to get going, how far the memory stays below one granule a cycle and channel, and what
gathering results at one port costs. They are fitted on some runs, and their error is measured on others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from scripts.extrapolate.chips import TileShape
from scripts.extrapolate.toml_object import DescriptionError

ACCUMULATE_GAP = 6
"""Cycles between two issues to one accumulator: the latency of hw.numerics.accumulate plus its memory's 2."""

BLOCK = 32
FP32_IN_GRANULE = 8


@dataclass(frozen=True)
class Work:
    """What a product asks of the slowest tile: cycles of its array, granules of one channel, granules of results."""

    array: float
    ordered: float
    stream: float
    results: float
    bytes: float
    macs: int


def work(m: int, k: int, n: int, tile: TileShape, tiles: int, bits: float = 8.25, passes: int = 1) -> Work:
    """Work of [m, k] times [n, k] transposed, outputs split over `tiles`.

    `bits` is a weight's bits in memory, its scale included; `passes` how often the array takes each operand (2 for
    BF16). `array` counts one cycle for each slot, row pass and K block, and no fewer than the accumulate gap for each
    K block of a group; `ordered` is the part of it that waits for that gap.
    """
    if min(m, k, n, tiles) < 1:
        raise ValueError(f"a product has at least 1 position, input, output and tile, not {m}, {k}, {n}, {tiles}")
    outputs = ceil(n / tiles)
    slot_columns = ceil(outputs / tile.columns)
    groups = ceil(slot_columns / tile.slots)
    slots = ceil(slot_columns / groups)
    k_blocks, row_passes = ceil(k / BLOCK), ceil(m / tile.rows) * passes
    array, ordered, left = 0.0, 0.0, slot_columns
    while left:
        step = min(slots, left) * row_passes
        wait = max(0, ACCUMULATE_GAP - step) * (k_blocks - 1)
        array += step * k_blocks + wait
        ordered += wait
        left -= min(slots, left)
    size = k_blocks * BLOCK * slot_columns * tile.columns * bits / 8
    result = m * tiles * ceil(slot_columns * tile.columns / FP32_IN_GRANULE)
    return Work(array, ordered, size / 32 / tile.channels, result, size * tiles, m * k * n)


@dataclass(frozen=True)
class Run:
    """One product as it ran on the RTL: shape, chip, cycles of the slowest tile without the wait for activations."""

    name: str
    mode: str
    m: int
    k: int
    n: int
    cycles: float
    tile: TileShape
    tiles: int

    @property
    def work(self) -> Work:
        return work(self.m, self.k, self.n, self.tile, self.tiles)


WAITS = ("activations", "idle")
"""Stall causes that are not the product's own: its activations came late from the host, or nothing was asked for."""


def runs(products: Sequence[Mapping[str, Any]], tile: TileShape, tiles: int) -> list[Run]:
    """The products of a run's summary. Raises DescriptionError for a record that lacks what is needed."""
    found = []
    for record in products:
        try:
            waits = sum(record["stalls"].get(cause, 0) for cause in WAITS)
            found.append(
                Run(
                    name=record["name"],
                    mode=record["mode"],
                    m=record["M"],
                    k=record["K"],
                    n=record["N"],
                    cycles=record["cycles"] - waits,
                    tile=tile,
                    tiles=tiles,
                )
            )
        except (KeyError, TypeError) as error:
            raise DescriptionError(f"a product's record lacks {error} that the extrapolation needs") from None
    return found


@dataclass(frozen=True)
class Constants:
    """The fitted constants, the runs behind them, and the largest and mean relative error on runs held out."""

    start: float
    cycles_per_granule: float
    cycles_per_result: float
    fitted_on: tuple[str, ...]
    tested_on: tuple[str, ...]
    worst_error: float
    mean_error: float

    def cycles(self, work: Work) -> float:
        """Cycles of a product."""
        return self.start + self.bound(work)

    def bound(self, work: Work) -> float:
        """Cycles without the start: what a product costs that follows others without a break."""
        return max(work.array, self.cycles_per_granule * work.stream, self.cycles_per_result * work.results)


def _predict(parameters: tuple[float, float, float], run: Run) -> float:
    start, granule, result = parameters
    return start + max(run.work.array, granule * run.work.stream, result * run.work.results)


def _loss(parameters: tuple[float, float, float], chosen: Sequence[Run]) -> float:
    return sum((_predict(parameters, run) / run.cycles - 1) ** 2 for run in chosen)


def _search(chosen: Sequence[Run]) -> tuple[float, float, float]:
    """Coordinate search with shrinking steps: three constants, none negative, least relative square error."""
    best = (0.0, 1.0, 1.0)
    steps = [64.0, 0.25, 0.5]
    loss = _loss(best, chosen)
    for _ in range(400):
        improved = False
        for index, step in enumerate(steps):
            for sign in (1, -1):
                trial = list(best)
                trial[index] = max(0.0, trial[index] + sign * step)
                found = (trial[0], trial[1], trial[2])
                if _loss(found, chosen) < loss:
                    best, loss, improved = found, _loss(found, chosen), True
        if not improved:
            steps = [step / 2 for step in steps]
            if steps[0] < 1e-3:
                break
    return best


def fit(all_runs: Sequence[Run], tested: Sequence[str] = ("gate", "down")) -> Constants:
    """Constants from the runs whose name is not in `tested`; error from those whose name is.

    A run of the same shape as a tested one is not fitted on either (`up` has the shape of `gate`).
    """
    shapes = {(r.m, r.k, r.n, r.tile, r.tiles) for r in all_runs if r.name in tested}
    held = [r for r in all_runs if (r.m, r.k, r.n, r.tile, r.tiles) in shapes]
    used = [r for r in all_runs if (r.m, r.k, r.n, r.tile, r.tiles) not in shapes]
    if len(used) < 2 or not held:
        raise DescriptionError(f"too few runs to fit and to test the cycle formula: {len(used)} and {len(held)}")
    parameters = _search(used)
    errors = [abs(_predict(parameters, run) / run.cycles - 1) for run in held]
    names = [tuple(f"{r.mode} {r.name}" for r in part) for part in (used, held)]
    return Constants(*parameters, names[0], names[1], max(errors), sum(errors) / len(errors))
