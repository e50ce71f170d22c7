"""Figures of the tile, from the RTL's counters: utilisation, share of the memory, cycles beside SCALE-Sim's.

Each run is a tile with its memory controller and DRAM device; weights come from DRAM, activations are loaded before
the start, every output is compared with the golden model, and cycles count from the start to the last result sent.
"""

from __future__ import annotations

import json
from typing import Any

from rich.console import Console

from scripts.bench import dot
from scripts.figures import Figure
from scripts.simulator import BUILD, SimulatorError, run
from tb.tile_memory import CONFIGS, LAYERS, bench

SIDES = {"tile_256": 16, "tile_1024": 32}
"""Side of the square systolic array with as many multipliers."""
SCALESIM = "SCALE-Sim 3.0.0, best of its three dataflows, no memory stalls"
LAYER_POSITIONS = (1, 8, 32, 128)
LONG_POSITIONS = (512,)
EXPERT_POSITIONS = (1, 32, 128)


def measure(tile: str, work: str) -> dict[str, Any]:
    """Run one piece of work on one array; raises SimulatorError when an output differs."""
    testbench = bench(tile, work)
    folder = BUILD / "runs" / testbench.name
    failed = [result for result in run(testbench, work=folder) if not result.passed]
    if failed:
        raise SimulatorError(f"{testbench.name}: {failed[0].message}")
    found: dict[str, Any] = json.loads((folder / "measured.json").read_text())
    return found["counters"] | {"deliverable": found["deliverable"]}


def scalesim(side: int, layer: str, positions: int) -> int:
    """Cycles of SCALE-Sim's best dataflow on a `side` x `side` array: the closed forms that match the tool."""

    def folds(a: int, b: int) -> int:
        return -(-a // side) * -(-b // side)

    total = [0, 0, 0]
    for n, k in LAYERS[layer]:
        total[0] += folds(positions, n) * (k + 2 * side - 2)
        total[1] += folds(k, n) * (positions + 3 * side - 2)
        total[2] += folds(k, positions) * (n + 3 * side - 2)
    return min(total)


def utilisation(tile: str, counters: dict[str, Any]) -> float:
    """Useful block dots a unit and cycle."""
    config = CONFIGS[tile]
    return counters["block_dots"] / (counters["cycles"] * config.rows * config.columns)


def memory_share(counters: dict[str, Any]) -> float:
    """Granules a cycle that reached the array, over what the same memory delivers when nothing holds it up."""
    free = counters["deliverable"]
    return (counters["weight_granules"] / counters["cycles"]) / (free["delivered"] / free["delivery_cycles"])


def figures(long: bool = False) -> list[Figure]:
    console = Console()
    found: dict[tuple[str, str], dict[str, Any]] = {}

    def case(tile: str, work: str) -> dict[str, Any]:
        if (tile, work) not in found:
            console.print(f"  {tile} {work}", highlight=False)
            found[tile, work] = measure(tile, work)
        return found[tile, work]

    decode_four = case("tile_1024", "prefill-1-E2M1")
    prefill, decode = case("tile_1024", "prefill-128"), case("tile_1024", "prefill-1")
    layer = case("tile_1024", "smollm2-128")
    result = [
        Figure(
            "tile.prefill_utilisation", 100 * utilisation("tile_1024", prefill), "%", ">= 99",
            reference="RedMulE 99.4 %, O-POPE 99.97 %", how="M=128 K=576 N=1536, MXINT8, 8x4 units, from DRAM",
        ),
        Figure(
            "tile.prefill_utilisation_layer", 100 * utilisation("tile_1024", layer), "%", ">= 99",
            how="M=128, the seven products of a SmolLM2 layer back to back",
        ),
        Figure(
            "tile.decode_hbm_share", 100 * memory_share(decode), "%", ">= 98",
            how="M=1 K=576 N=1536, MXINT8, against the same granules asked for as one range and never held up",
        ),
        Figure(
            "tile.decode_hbm_share_E2M1", 100 * memory_share(decode_four), "%", ">= 98",
            how="the same with MXFP4 weights: two blocks a granule",
        ),
    ]  # fmt: skip
    return result + _against_scalesim(case, long) + dot.figures(long)


def _against_scalesim(case: Any, long: bool) -> list[Figure]:
    """One figure a shape, and the worst ratio of all."""
    rows = []
    for tile, side in SIDES.items():
        macs = tile.removeprefix("tile_")
        works = [("smollm2", m, "MXINT8") for m in LAYER_POSITIONS + (LONG_POSITIONS if long else ())]
        works += [("gptoss", m, "E2M1") for m in EXPERT_POSITIONS]
        for layer, positions, format in works:
            work = f"{layer}-{positions}" + ("" if format == "MXINT8" else f"-{format}")
            cycles, theirs = case(tile, work)["cycles"], scalesim(side, layer, positions)
            rows.append(
                Figure(
                    f"tile.cycles.{macs}.{layer}.{positions}", cycles, "cycles", f"< {theirs}", reference=SCALESIM,
                    how=f"{side}x{side} multipliers each; weights {format}; memory and its refresh included here",
                )
            )  # fmt: skip
    ratios = [row.value / float(row.bar.split()[1]) for row in rows]  # type: ignore[operator]
    worst = Figure(
        "tile.cycles_vs_scalesim", max(ratios), "", "< 1", reference=SCALESIM,
        how=f"largest ratio of cycles over {len(rows)} shapes",
    )  # fmt: skip
    return [worst, *rows]
