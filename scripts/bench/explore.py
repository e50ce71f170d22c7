"""`make bench-explore`: what verification and exploration reach, from a clean archive."""

import os
import resource
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from scripts.explore import anneal, dots, graphs, pareto, prefix, protocol
from scripts.explore.archive import Archive
from scripts.explore.cli import command
from scripts.explore.judge import block, judge_named
from scripts.explore.measure import Recipe
from scripts.explore.session import Budget, Session
from scripts.figures import Figure
from scripts.verify import mutate
from scripts.verify.engine import Engine

PREFIX = {32: 74, 64: 167}
BEST = "best known (and, by Sergeev 2013, least possible) at least depth; Sklansky 80 and 192"


def figures(long: bool = False) -> list[Figure]:
    """All figures of the area; with `long` more candidates and more mutants."""
    result = prefix_nodes()
    result.append(exhaustive())
    result.append(mutants(1000 if long else 200))
    with tempfile.TemporaryDirectory() as folder:
        archive = Archive(Path(folder) / "archive.sqlite")
        result += multipliers(archive, "mul_u8", 400 if long else 48)
        result += multipliers(archive, "mul_u16", 120 if long else 40)
        archive.close()
    return result + dots.figures()


def prefix_nodes() -> list[Figure]:
    """Prefix graphs of least depth, annealed from Sklansky's."""
    result = []
    for width, target in PREFIX.items():
        start = time.monotonic()
        nodes, seeds = anneal.best(width, target)
        result.append(
            Figure(
                f"explore.prefix{width}_nodes",
                len(nodes),
                "nodes",
                f"<= {target}",
                reference=BEST,
                how=f"depth {prefix.depth(width, nodes)}; simulated annealing from Sklansky's graph, {seeds} seed(s), "
                f"{time.monotonic() - start:.1f} s",
            )
        )
    return result


def exhaustive() -> Figure:
    """A 16x16 multiplier against its specification, on all 2^32 operand pairs, on one core."""
    found = block("mul_u16")
    start = time.monotonic()
    engine = Engine(graphs.render({"kind": "compressor", "tree": "dadda", "adder": "sklansky"}, found), found)
    build = time.monotonic() - start
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime, time.monotonic()
    result = engine.exhaustive(jobs=1)
    wall, cpu = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    right = result.wrong == 0 and result.checked == 1 << 32
    return Figure(
        "verify.exhaustive16_seconds",
        round(cpu, 1) if right else None,
        "s",
        "<= 60",
        how=f"{result.checked} operand pairs, {result.wrong} wrong; CPU time of the one process ({wall:.1f} s wall, "
        f"load {os.getloadavg()[0]:.1f}); compiled in {build:.1f} s",
    )


def mutants(count: int) -> Figure:
    """One-gate mutants of multipliers of 8, 16 and 32 bits, array and Booth."""
    total, parts = mutate.Score(), []
    for width in (8, 16, 32):
        for rows in ("and", "booth"):
            found = block(f"mul_u{width}")
            netlist = graphs.render({"kind": "compressor", "rows": rows, "tree": "dadda", "adder": "sklansky"}, found)
            share = count if width < 32 else count // 2
            score = mutate.score(netlist, found, share, seed=width)
            parts.append(
                f"{width} bits {rows}: {score.caught}/{score.faults}, {score.equivalent} equivalent, "
                f"{score.unsettled} unsettled"
            )
            for name in ("faults", "caught", "equivalent", "unsettled"):
                setattr(total, name, getattr(total, name) + getattr(score, name))
    return Figure("verify.mutants_caught", round(total.share, 4), "", ">= 1", how="; ".join(parts))


def multipliers(archive: Archive, name: str, count: int) -> list[Figure]:
    """The built-in search on a multiplier against Yosys's `*`, plain and with `-booth`, by the same recipe."""
    found, recipe = block(name), Recipe()
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        session = Session(found, archive, recipe, pool, judge_named, f"bench {name}", 2)
        start = time.monotonic()
        outcome = session.run(protocol.Proposer(command("evolve", 1)), Budget.parse(str(count)))
        seconds = time.monotonic() - start
    points = pareto.rows(archive.circuits(name, recipe.hash))
    given = [row for row in points if row["origin"].startswith("baseline: ")]
    best = pareto.front([row for row in points if row not in given])
    beaten = {row["origin"]: 0 for row in given}
    for row in given:
        beaten[row["origin"]] += any(pareto.dominates(point, row) for point in best)
    worse = sum(any(pareto.dominates(row, point) for row in given) for point in best)
    holds = len(beaten) == 2 and all(beaten.values()) and not worse

    def product(rows: list[dict]) -> str:
        row = min(rows, key=lambda row: row["area"] * row["delay"])
        return f"{row['area']:.0f} GE x {row['delay']:.0f} ps = {row['area'] * row['delay'] / 1000:.1f}k"

    text = "; ".join(
        f"{origin.removeprefix('baseline: ')}: {hits} of 3 points dominated, least area x delay "
        f"{product([row for row in given if row['origin'] == origin])}"
        for origin, hits in beaten.items()
    )
    key = "mul8" if name == "mul_u8" else "mul16"
    result = [
        Figure(
            f"explore.{key}_dominates",
            "both" if holds else "not both",
            "",
            "dominate both, be dominated nowhere",
            holds,
            how=f"{text}; the front: {product(best)}, {worse} of {len(best)} dominated; {outcome.judged} candidates, "
            f"recipe {recipe.hash}",
        )
    ]
    if key == "mul8":
        result.append(
            Figure(
                "explore.candidates_per_minute",
                round(outcome.judged / seconds * 60, 1),
                "1/min",
                ">= 30",
                how=f"{outcome.judged} candidates of {name} in {seconds:.1f} s, 2 processes, baselines included, "
                f"load {os.getloadavg()[0]:.1f}",
            )
        )
    return result
