"""The tile's block dot as it was first written by hand, against one compressor tree for the whole sum of products.

The hand-written unit is `hw.numerics.BlockDot` for MXINT8, as it is emitted. Its registers are taken out first (it is a
straight pipeline, which `scripts.verify.pipeline` checks), so that both are the same combinational function,
`dot_s8x32`, and go through the same recipe; `scripts.explore.effect` then compares them with their flip-flops.
"""

import dataclasses

from golden.specifications import Specification
from scripts.explore import effect, graphs, measure, pareto
from scripts.explore.baselines import VARIANTS, candidates
from scripts.explore.judge import block, circuit, correctness
from scripts.explore.measure import Recipe
from scripts.figures import Figure
from scripts.verify import pipeline
from scripts.verify.netlist import Netlist

VARIANT_GRAPHS = [
    {"kind": "compressor", "rows": rows, "tree": tree, "adder": adder}
    for rows in ("booth", "and")
    for tree, adder in (("three_greedy", "arrival"), ("three_greedy", "arrival_2"), ("dadda", "arrival_4"))
]
MAC_GRAPHS = [
    {"kind": "compressor", "rows": "booth", "tree": tree, "adder": adder}
    for tree in ("arrival", "wallace", "three_greedy")
    for adder in ("arrival_1", "arrival_4", "serial")
]


def _combinational(unit: Netlist) -> Netlist:
    if pipeline.stages(unit) is None:
        raise RuntimeError("the hand-written block dot is not a straight pipeline any more")
    return pipeline.collapse(unit)


def _points(netlist: Netlist, specification: Specification, recipe: Recipe, origin: str) -> list[dict]:
    wrong, how = correctness(netlist, specification, certified=True)
    if wrong is not None:
        raise RuntimeError(f"{origin} does not compute {specification.name}: {how}: {wrong}")
    return [
        {"origin": origin, **dataclasses.asdict(point)} for point in measure.measure(netlist, specification, recipe)
    ]


def saving(given: list[dict], ours: list[dict]) -> tuple[float, str]:
    """(share of area saved, at no more delay, on the given point of least area times delay; every point in words)."""
    best = min(given, key=lambda row: row["area"] * row["delay"])
    share, words = 0.0, []
    for row in given:
        fits = [point for point in ours if point["delay"] <= row["delay"]]
        text = f"{row['origin']} {row['flavour']} {row['area']:.0f} GE@{row['delay']:.0f} ps"
        if not fits:
            words.append(f"{text}: none as fast")
            continue
        mine = min(fits, key=lambda point: point["area"])
        saved = 1 - mine["area"] / row["area"]
        share = saved if row is best else share
        text += " (its best area x delay)" if row is best else ""
        words.append(f"{text} -> {mine['area']:.0f}@{mine['delay']:.0f} ({mine['origin']}), {100 * saved:.1f} %")
    return share, "; ".join(words)


def figures() -> list[Figure]:
    """`explore.dot_area_saving`, `explore.mac_area_saving`, and what the best block dot changes in tile and chip."""
    recipe, dot = Recipe(), block(effect.SPECIFICATION)
    given = []
    for name, option in VARIANTS.items():
        given += _points(_combinational(effect.hand_written(option)), dot, recipe, f"hand, {name}")
    ours, made = [], {}
    for graph in VARIANT_GRAPHS:
        name = f"{graph['rows']} {graph['tree']} {graph['adder']}"
        made[name] = graphs.render(graph, dot)
        ours += _points(made[name], dot, recipe, name)
    share, words = saving(pareto.front(given), ours)
    result = [
        Figure(
            "explore.dot_area_saving",
            round(share, 3),
            "",
            ">= 0.1",
            how=f"combinational part at no more delay, recipe {recipe.hash}; {words}",
        ),
        _mac(recipe),
    ]
    order = sorted(ours, key=lambda point: point["area"] * point["delay"])
    best = list(dict.fromkeys(point["origin"] for point in order))[:2]
    return result + in_the_tile([(name, made[name]) for name in best], recipe)


def _mac(recipe: Recipe) -> Figure:
    mac = block("mac_s8")
    given = [
        point
        for name, candidate in candidates(mac)
        for point in _points(circuit(candidate, mac), mac, recipe, f"hand, {name}")
    ]
    ours = [
        point
        for graph in MAC_GRAPHS
        for point in _points(
            graphs.render(graph, mac), mac, recipe, f"{graph['rows']} {graph['tree']} {graph['adder']}"
        )
    ]
    share, words = saving(pareto.front(given), ours)
    return Figure("explore.mac_area_saving", round(share, 3), "", ">= 0.1", how=words)


def in_the_tile(best: list[tuple[str, Netlist]], recipe: Recipe) -> list[Figure]:
    """`explore.tile_*` and `explore.chip_*`: change in percent, and the noise floor of the synthesis."""
    found = effect.effect(best, recipe)
    models = effect.carried(found)
    lines = effect.notes(found, models)
    area, delay, spent = (100 * value for value in found.noise)
    old, new = found.hand.unit, found.variant.unit
    tile = found.tile_area(found.variant, *effect.TILE) / found.tile_area(found.hand, *effect.TILE) - 1
    result = [
        Figure("explore.synthesis_noise", round(area, 2), "%", "report",
               how=f"area; delay {delay:.2f} %, energy {spent:.2f} %; {lines[1]}"),
        Figure("explore.tile_dot_area", round(100 * found.area_change, 1), "%", "report",
               how=f"block dot with flip-flops, {old.area:.0f} GE, {old.flops} flip-flops -> {new.area:.0f} GE, "
               f"{new.flops}, at the tile's clock ({found.clock_ps:.0f} ps, {found.limit}); {lines[0]}"),
        Figure("explore.tile_dot_energy", round(100 * (found.energy_ratio - 1), 1), "%", "report",
               how=f"{old.energy} -> {new.energy} fJ a block dot on SmolLM2's operands"),
        Figure("explore.tile_area", round(100 * tile, 1), "%", "report",
               how=f"dot units, accumulators and decoders of {effect.TILE[0]} x {effect.TILE[1]} units; no memories"),
    ]  # fmt: skip
    if not models:
        return result
    rates: list[float] = [100 * (entry["rate_after"] / entry["rate_before"] - 1) for entry in models]
    largest: float = max(rates, key=abs)
    ends = [100 * (after / before - 1) for entry in models
            for before, after in zip(entry["watts_before"], entry["watts_after"], strict=True)]  # fmt: skip
    words = "; ".join(
        f"{entry['model']} {entry['rate_before']:.1f} -> {entry['rate_after']:.1f} tok/s, "
        f"{entry['watts_before'][0]:.1f} to {entry['watts_before'][1]:.1f} -> {entry['watts_after'][0]:.1f} to "
        f"{entry['watts_after'][1]:.1f} W a chip"
        for entry in models
    )
    return [
        *result,
        Figure("explore.chip_tok_per_user", round(largest, 2), "%", "report",
               how=f"largest change of three models, one user; clock {max(found.clock_ps, old.delay):.0f} -> "
               f"{max(found.clock_ps, new.delay):.0f} ps; {words}"),
        Figure("explore.chip_watts", round(min(ends), 2), "%", "report",
               how=f"largest change of both ends of the band of three models ({max(ends):.2f} % the smallest)"),
    ]  # fmt: skip
