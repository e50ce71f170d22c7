"""Figures of the network: latency, load, multicast and all-gather, the link, and the router's longest path.

Traffic comes from hardware generators (rtl/noc_traffic.sv) on verilated RTL; see tb/mesh/load.py. BookSim's figures are
for the same mesh, virtual channels, buffer depth, packet length and pattern (router `fast3`: 3 cycles a hop).
"""

from __future__ import annotations

import json
from pathlib import Path

from golden.noc import mean_hops, throughput_bound
from scripts.bench.noc_collective import collective_figures
from scripts.bench.noc_path import path_figure
from scripts.figures import Figure
from scripts.simulator import BUILD, SimulatorError, run
from tb.mesh import TESTBENCHES
from tb.mesh.load import build, measure

SEEDS = (1, 2, 3)
COLUMNS = ((1, 4), (1, 8), (2, 4), (2, 8), (4, 4), (4, 8))  # virtual channels, buffer depth
# Accepted flits a node and cycle, uniform traffic, offered 1.0: BookSim 2, dor, fast3. (side, flits): by COLUMNS.
BOOKSIM_UNIFORM = {
    (4, 1): (0.512, 0.678, 0.713, 0.759, 0.761, 0.778),
    (4, 4): (0.426, 0.598, 0.664, 0.730, 0.715, 0.755),
    (8, 1): (0.271, 0.368, 0.386, 0.402, 0.403, 0.403),
    (8, 4): (0.223, 0.326, 0.351, 0.383, 0.386, 0.412),
}
# Highest stable load: BookSim 2, fast3, 2 virtual channels, 4 deep, 1 flit.
BOOKSIM_STABLE = {
    (4, "transpose"): 0.333, (4, "bitcomp"): 0.45, (4, "neighbour"): 0.95, (4, "hotcorners"): 0.2375,
    (8, "transpose"): 0.136, (8, "bitcomp"): 0.225, (8, "neighbour"): 0.95,
}  # fmt: skip
LATENCY_LIMIT = 100  # cycles: well above the 46 at which BookSim's rows end


def hop_figure() -> Figure:
    """Cycles a hop without load, from every pair of endpoints of a 4x2 mesh, one flit at a time."""
    testbench = next(bench for bench in TESTBENCHES if bench.name == "mesh_4x2")
    folder = BUILD / "runs" / "bench_noc_hops"
    failed = [result for result in run(testbench, test="test_every_pair", work=folder) if not result.passed]
    if failed:
        raise SimulatorError(f"{testbench.name}: {failed[0].message}")
    found = {int(hops): taken for hops, taken in json.loads((folder / "latencies.json").read_text()).items()}
    value = max((max(taken) - min(found[0])) / hops for hops, taken in found.items() if hops)
    pairs = sum(map(len, found.values()))
    return Figure(
        "noc.cycles_per_hop", value, "cycles", "<= 2", reference="BookSim fast3: 3",
        how=f"zero load: the slowest of {pairs} pairs on 4x2, over a flit to the own node",
    )  # fmt: skip


def light_load_figure(program: Path) -> Figure:
    """Cycles a hop from the difference between two meshes' mean latency at 1 % load (source and sink cancel out)."""
    small, large = (measure(program, side, "uniform", 0.01, 1, cycles=40000) for side in (4, 8))
    hops = mean_hops("uniform", 8, 8) - mean_hops("uniform", 4, 4)
    value = (large["latency"] - small["latency"]) / hops
    return Figure(
        "noc.cycles_per_hop_1_percent", round(value, 2), "cycles", "report", reference="BookSim fast3: 3",
        how=f"uniform 1 %: {small['latency']:.2f} cycles on 4x4, {large['latency']:.2f} on 8x8, birth to arrival",
    )  # fmt: skip


def uniform_figures(programs: dict[tuple[int, int], Path], long: bool) -> list[Figure]:
    figures = []
    for (side, flits), row in BOOKSIM_UNIFORM.items():
        for column, reference in zip(COLUMNS, row, strict=True):
            runs = [
                measure(programs[column], side, "uniform", 1.0, flits, seed, cycles=20000 if long else 6000)["accepted"]
                for seed in (SEEDS if long else SEEDS[:1])
            ]
            value = sum(runs) / len(runs)
            figures.append(
                Figure(
                    f"noc.{side}x{side}.{column[0]}_{column[1]}.{flits}.uniform",
                    round(value, 4),
                    "flits/node/cycle",
                    f">= {reference}",
                    reference=f"BookSim fast3: {reference}; ratio {value / reference:.3f}",
                    how=f"{value / reference:.2f}x BookSim; offered 1.0, {len(runs)} seed(s)",
                )
            )
    ratios = [
        figure.value / reference for figure, reference in zip(figures, sum(BOOKSIM_UNIFORM.values(), ()), strict=True)
    ]
    share = sum(ratio >= 1.05 for ratio in ratios) / len(ratios)
    figures.append(
        Figure("noc.uniform_share_above_1.05", share, "", ">= 0.5", how=f"lowest ratio {min(ratios):.3f}, 24 columns")
    )
    return figures


def stable_load(program: Path, side: int, pattern: str, long: bool) -> tuple[float, float]:
    """Highest load that the mesh bears (all packets arrive, mean latency within LATENCY_LIMIT), and its latency."""
    bound = throughput_bound(pattern, side, side)
    best = (0.0, 0.0)
    for share in (0.90, 0.91, 0.92, 0.94, 0.96, 0.98, 0.99, 1.0):
        run = measure(program, side, pattern, share * bound, 1, cycles=30000 if long else 12000)
        if run["latency"] > LATENCY_LIMIT or run["arrived"] < 0.999:
            break
        best = (share, run["latency"])
    return best[0] * bound, best[1]


def pattern_figures(program: Path, long: bool) -> list[Figure]:
    figures = []
    for (side, pattern), reference in BOOKSIM_STABLE.items():
        bound = throughput_bound(pattern, side, side)
        value, latency = stable_load(program, side, pattern, long)
        bar = 0.98 * bound if reference >= 0.98 * bound else reference
        figures.append(
            Figure(
                f"noc.{side}x{side}.{pattern}.load",
                round(value, 4),
                "flits/node/cycle",
                f"{'>=' if reference >= 0.98 * bound else '>'} {bar:.4f}",
                reference=f"BookSim fast3: {reference}; analytic bound {bound:.4f}",
                how=f"highest stable load, {value / bound:.0%} of the bound, latency {latency:.0f} cycles; "
                "2 virtual channels, 4 deep, 1 flit",
            )
        )
    return figures


def figures(long: bool = False) -> list[Figure]:
    """All figures of `make bench-noc`; `long` measures longer and over several seeds."""
    programs = {column: build(*column) for column in COLUMNS}
    return [
        hop_figure(),
        light_load_figure(programs[2, 4]),
        *uniform_figures(programs, long),
        *pattern_figures(programs[2, 4], long),
        *collective_figures(programs[1, 4], long),
        path_figure(),
    ]
