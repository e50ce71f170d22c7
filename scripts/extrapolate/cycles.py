"""Cycles of matrix products: a closed formula of the tile's loop nest, with constants fitted on RTL runs.

cycles = start + max(array, unpack, memory_factor * stream, cycles_per_result * results)

`array`, `unpack`, `stream` and `results` follow from the shape and the tile alone (`Work`). The three constants are
what the RTL adds: how long a product takes to get going, how much longer the memory takes than at its peak, and what
gathering results at one port costs. They are fitted on some runs; their error is measured on others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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
    """What a product asks of the slowest tile.

    Cycles of its array, `ordered` of them waits for accumulators; cycles of its unpacker; cycles of its memory at its
    peak; granules of results at the gathering port. `bytes` and `macs` are those of all tiles.
    """

    array: float
    ordered: float
    unpack: float
    stream: float
    results: float
    bytes: float
    macs: int


def work(
    m: int, k: int, n: int, tile: TileShape, tiles: int, rate: float = 1.0, bits: float = 8.25, passes: int = 1
) -> Work:
    """Work of [m, k] times [n, k] transposed, outputs split over `tiles`.

    `rate` is the granules that a channel gives in a cycle at its peak, `bits` a weight's bits in memory, its scale
    included, `passes` how often the array takes each operand (2 for BF16). `array` counts one cycle for each slot, row
    pass and K block, and no fewer than the accumulate gap for each K block of a group; `ordered` is the part of it
    that waits for that gap.
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
    blocks = k_blocks * slot_columns * tile.columns
    size = blocks * BLOCK * bits / 8
    result = m * tiles * ceil(slot_columns * tile.columns / FP32_IN_GRANULE)
    unpack = blocks * passes / tile.channels / tile.blocks_per_cycle
    return Work(array, ordered, unpack, size / 32 / tile.channels / rate, result, size * tiles, m * k * n)


@dataclass(frozen=True)
class Run:
    """Products back to back as they ran on the RTL, and cycles of the slowest tile without waits for activations.

    `buffered` cycles of the memory's work were done before the first product began: it works through such waits, but
    for what it reads of the KV cache in them.
    """

    name: str
    mode: str
    works: tuple[Work, ...]
    cycles: float
    buffered: float = 0.0


WAITS = ("activations", "vector", "attention", "idle")
"""Stall causes that are not the product's own: its activations came late (from the host, the vector units, attention),
or nothing was asked for."""


def runs(products: Sequence[Mapping[str, Any]], tile: TileShape, tiles: int, rate: float, queue: int) -> list[Run]:
    """The products of a run's summary; `rate` as in `work`, `queue` the granules between a tile's memory and its array.

    Raises DescriptionError for a record that lacks what is needed.
    """
    found = []
    for record in products:
        try:
            waits = sum(record["stalls"].get(cause, 0) for cause in WAITS)
            shape = work(record["M"], record["K"], record["N"], tile, tiles, rate)
            free = max(0.0, waits - record.get("cache_bytes", 0) / 32 / rate)  # the memory had for weights alone
            buffered = min(free, queue / rate)
            found.append(Run(record["name"], record["mode"], (shape,), record["cycles"] - waits, buffered))
        except (KeyError, TypeError) as error:
            raise DescriptionError(f"a product's record lacks {error} that the extrapolation needs") from None
    return found


@dataclass(frozen=True)
class Constants:
    """The fitted constants, the runs behind them, and the largest and mean relative error on runs held out."""

    start: float
    memory_factor: float
    cycles_per_result: float
    fitted_on: tuple[str, ...]
    tested_on: tuple[str, ...]
    worst_error: float
    mean_error: float

    def cycles(self, work: Work) -> float:
        """Cycles of a product."""
        return self.start + self.bound(work)

    def bound(self, work: Work, buffered: float = 0.0) -> float:
        """Cycles without the start: what a product costs that follows others without a break."""
        stream = self.memory_factor * max(0.0, work.stream - buffered)
        return max(work.array, work.unpack - buffered, stream, self.cycles_per_result * work.results)

    def predict(self, run: Run) -> float:
        """Cycles of a run."""
        first, *others = run.works
        return self.start + self.bound(first, run.buffered) + sum(self.bound(work) for work in others)

    def error(self, run: Run) -> float:
        """Relative error of the prediction: positive where it is too long."""
        return self.predict(run) / run.cycles - 1


def _loss(parameters: tuple[float, float, float], chosen: Sequence[Run]) -> float:
    constants = Constants(*parameters, (), (), 0.0, 0.0)
    return sum(constants.error(run) ** 2 for run in chosen)


LEAST = (0.0, 1.0, 0.0)
"""Bounds of the constants: no product starts before it is asked for, no memory is faster than its peak."""


def _search(chosen: Sequence[Run]) -> tuple[float, float, float]:
    """Coordinate search with shrinking steps: three constants in their bounds, least relative square error."""
    best = (0.0, 1.0, 1.0)
    steps = [64.0, 0.25, 0.5]
    loss = _loss(best, chosen)
    for _ in range(400):
        improved = False
        for index, step in enumerate(steps):
            for sign in (1, -1):
                trial = list(best)
                trial[index] = max(LEAST[index], trial[index] + sign * step)
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
    shapes = {run.works for run in all_runs if run.name in tested}
    held = [run for run in all_runs if run.works in shapes]
    used = [run for run in all_runs if run.works not in shapes]
    if len(used) < 2 or not held:
        raise DescriptionError(f"too few runs to fit and to test the cycle formula: {len(used)} and {len(held)}")
    names = [tuple(f"{r.mode} {r.name}" for r in part) for part in (used, held)]
    constants = Constants(*_search(used), names[0], names[1], 0.0, 0.0)
    errors = [abs(constants.error(run)) for run in held]
    return replace(constants, worst_error=max(errors), mean_error=sum(errors) / len(errors))
