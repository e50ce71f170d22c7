"""From what came out of the chip to the records of the summary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.compiler import RECORD_GRANULES, PlacedProduct, Plan
from golden.layer import LayerPlan, Placed
from hw.config import ChipConfig
from hw.tile.isa import COUNTERS
from scripts.sim.work import Work

STALLS = {
    "weights": "stall_weights",
    "activations": "stall_activations",
    "results": "stall_results",
    "order": "stall_order",
    "vector": "stall_vector",
    "attention": "attention",
    "idle": "idle",
}


def first_difference(
    work: Work, mode: str, plan: Plan | LayerPlan, memory: NDArray[np.uint32]
) -> tuple[set[str], dict[str, Any] | None]:
    """Names of the results that are bit-exact, and the first element that differs (None where all are equal)."""
    exact, difference = set(), None
    for name, found in plan.values(memory).items():
        expected = work.expected[mode][name]
        wrong = np.argwhere(expected != found)
        if not len(wrong):
            exact.add(name)
        elif difference is None:
            index = tuple(int(i) for i in wrong[0])
            difference = {
                "product": f"{mode} {name}",
                "index": list(index),
                "expected": f"0x{int(expected[index]):08x}",
                "found": f"0x{int(found[index]):08x}",
            }
    return exact, difference


def _snapshots(placed: PlacedProduct | Placed, memory: NDArray[np.uint32]) -> list[dict[str, int] | None]:
    """Each tile's counters at the end of the product."""
    found: list[dict[str, int] | None] = []
    for address in placed.records:
        if address is None:
            found.append(None)
            continue
        words = memory[address : address + RECORD_GRANULES].reshape(-1)
        found.append({name: int(word) for name, word in zip(COUNTERS, words, strict=False)})
    return found


def product_records(
    mode: str, plan: Plan | LayerPlan, memory: NDArray[np.uint32], exact: set[str]
) -> list[dict[str, Any]]:
    """The summary's record of each product. A product's window is from the end of the one before to its own end."""
    config, records = plan.config, []
    before = [dict.fromkeys(COUNTERS, 0) for _ in range(config.tiles)]
    for placed in plan.products:
        windows = []
        for tile, snapshot in enumerate(_snapshots(placed, memory)):
            if snapshot is not None:
                windows.append({name: snapshot[name] - before[tile][name] for name in COUNTERS})
                before[tile] = snapshot
        records.append(_record(mode, config, placed, windows, placed.name in exact))
    return records


def _record(
    mode: str, config: ChipConfig, placed: PlacedProduct | Placed, windows: Sequence[dict[str, int]], exact: bool
) -> dict[str, Any]:
    slowest = max(windows, key=lambda window: window["cycles"])
    cycles = slowest["cycles"]
    outputs, positions, inputs = placed.n, placed.positions, placed.k
    macs = outputs * positions * inputs
    granules = sum(window["weight_granules"] for window in windows)
    return {
        "name": placed.name,
        "mode": mode,
        "M": positions,
        "K": inputs,
        "N": outputs,
        "cycles": cycles,
        "macs": macs,
        "array_utilisation": macs / (cycles * config.tiles * config.tile.macs_per_cycle),
        "hbm_bytes": 32 * granules,
        "hbm_utilisation": granules * config.hbm.cycles.bl / (cycles * config.tiles),
        "cache_bytes": 32 * slowest["cache_granules"],
        "stalls": {cause: slowest[counter] for cause, counter in STALLS.items()},
        "bit_exact": exact,
    }
