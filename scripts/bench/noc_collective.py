"""Multicast, all-gather (alone and beside bulk) and link figures of `scripts.bench.noc`."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from golden.noc import gather_bound, goodput_ratio, path, spread_bound, tree
from hw.noc import MeshConfig
from hw.noc.link import frame_beats
from scripts.figures import Figure
from scripts.simulator import run
from tb.link import SHAPES, link_bench
from tb.mesh.load import build, gather_beside, spread

FLITS = 224  # of a multicast run: 7,168 elements
BULK = ("uniform", "bitcomp", "hotcorners")  # patterns of the bulk transfer
ELEMENTS = 32  # of a flit: one MX block with its scale, as the chip's remote writes


def multicast_figure(program: Path) -> Figure:
    """Node (0, 0) to all of 4x4: cycles against the bound of one flit a cycle on every link of the tree."""
    nodes = [(x, y) for y in range(4) for x in range(4)]
    links = len(tree((0, 0), nodes))
    unicast = sum(len(path((0, 0), node)) for node in nodes)
    cycles, bound = spread(program, 4, FLITS, everyone=False), spread_bound(4, FLITS)
    return Figure(
        "noc.multicast_bound_ratio", round(cycles / bound, 4), "", "<= 1.10",
        reference=f"bound {bound} cycles: {FLITS} flits through one output, and the way of the last",
        how=f"{FLITS} flits to 16 nodes in {cycles} cycles; {links} link loads a flit, {unicast} with one unicast each",
    )  # fmt: skip


def gather_figures(program: Path) -> list[Figure]:
    figures = []
    for side in (4, 8):
        for elements in (576, 7168):
            flits = elements // ELEMENTS
            cycles, bound = spread(program, side, flits, everyone=True), gather_bound(side, flits)
            figures.append(
                Figure(
                    f"noc.{side}x{side}.allgather_{elements}_bound_ratio",
                    round(cycles / bound, 4),
                    "",
                    "<= 1.15",
                    reference=f"ejection bound {bound} cycles (one flit a cycle into the farthest node, "
                    "none before its way is done)",
                    how=f"{flits} flits from all nodes, multicast to all: {cycles} cycles",
                )
            )
    return figures


def qos_figures(urgent: Path, plain: Path) -> list[Figure]:
    """All-gather on an urgent class beside a saturating bulk transfer on another, against the same alone."""
    figures = []
    for side in (4, 8):
        for elements in (576, 7168):
            flits = elements // ELEMENTS
            alone = gather_beside(urgent, side, flits)
            runs = {
                (pattern, seed): gather_beside(urgent, side, flits, pattern, 1.0, seed=seed, warm=2000 + 37 * seed)
                for pattern in BULK
                for seed in (1, 2, 3)
            }
            worst = max(runs, key=lambda run: runs[run])
            ordinary = gather_beside(plain, side, flits, worst[0], 1.0, seed=worst[1], warm=2000 + 37 * worst[1])
            figures.append(
                Figure(
                    f"noc.{side}x{side}.allgather_{elements}_qos_ratio",
                    round(runs[worst] / alone, 4),
                    "",
                    "<= 1.05",
                    reference=f"alone {alone} cycles; beside bulk without urgency {ordinary / alone:.2f} times that",
                    how=f"{runs[worst]} cycles beside packets of 16 flits at an offered load of 1.0; worst of "
                    f"{', '.join(BULK)} and 3 seeds ({worst[0]}); 2 classes, urgent_limit {MeshConfig.urgent_limit}",
                )
            )
    return figures


def link_figures(long: bool) -> list[Figure]:
    """Goodput of the link at three bit error rates against go-back-N's closed form; payloads checked in hardware."""
    width, lanes, window, latency = SHAPES["link_64"]
    beats = frame_beats(width, window, lanes)
    rates = (1e-6, 1e-5, 1e-4)
    with tempfile.NamedTemporaryFile(suffix=".json") as results:
        environment = {"RATES": json.dumps(rates), "RESULTS": results.name, "CYCLES": str(4000000 if long else 1000000)}
        outcome = run(link_bench("link_64", environment=environment), test="test_flood")
        if not all(result.passed for result in outcome):
            raise RuntimeError(f"the link lost or changed payloads: {outcome}")
        measured = json.loads(Path(results.name).read_text())
    figures = []
    for entry in measured:
        goodput = entry["count"] * beats / entry["cycles"]
        expected = goodput_ratio(entry["ber"], beats, lanes + 1, latency)
        figures.append(
            Figure(
                f"noc.link_goodput_ratio.{entry['ber']:.0e}".replace("e-0", "e-"),
                round(goodput / expected, 4),
                "",
                ">= 0.95",
                reference=f"go-back-N: {expected:.4f} of the error-free rate",
                how=f"{goodput:.4f} of the error-free rate; {entry['count']} payloads, {entry['errors']} bit errors, "
                f"{entry['retries']} retries, none lost",
            )
        )
    return figures


def collective_figures(program: Path, long: bool) -> list[Figure]:
    qos = qos_figures(build(1, 4, classes=2, urgent=(1,)), build(1, 4, classes=2))
    return [multicast_figure(program), *gather_figures(program), *qos, *link_figures(long)]
