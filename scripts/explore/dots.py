"""The tile's block dot as it was first written by hand, against one compressor tree for the whole sum of products.

The hand-written unit is `hw.numerics.BlockDot` for MXINT8, as it is emitted: its registers are taken out (it is a
straight pipeline, which `scripts.verify.pipeline` checks), so that both are the same combinational function,
`dot_s8x32`, and go through the same recipe. Flip-flops are counted apart.
"""

import dataclasses
import tempfile
from pathlib import Path

from golden.specifications import Specification
from scripts.explore import graphs, measure, pareto
from scripts.explore.baselines import VARIANTS, candidates
from scripts.explore.judge import block, circuit, correctness
from scripts.explore.measure import Recipe
from scripts.figures import Figure
from scripts.verify import elaborate, pipeline, sandbox
from scripts.verify.netlist import Netlist, parse, prune, tie

SPECIFICATION = "dot_s8x32"
LIMITS = sandbox.Limits(seconds=300, memory=4 << 30)
VARIANT_GRAPHS = [
    {"kind": "compressor", "rows": rows, "tree": tree, "adder": adder}
    for rows in ("and", "booth")
    for tree in ("dadda", "arrival")
    for adder in ("ladner_fischer", "serial")
]


def hand_written(option: str) -> tuple[Netlist, int]:
    """(combinational netlist of the tile's MXINT8 block dot, its flip-flops), by `synth` with an option."""
    from hw.emit import emit
    from hw.numerics.dot import BlockDot
    from hw.numerics.formats import FormatSet

    with tempfile.TemporaryDirectory() as folder:
        emit(BlockDot(FormatSet(["MXINT8"])), "unit", Path(folder))
        files = {path.name: path.read_text() for path in sorted(Path(folder).glob("*.v"))}
    commands = [
        *(f"read_verilog /in/{name}" for name in files),
        f"synth -noabc -flatten {option} -top unit",
        "dfflegalize -cell $_DFF_P_ 01",
        "simplemap",
        "opt_expr",
        "opt_merge",
        "opt_clean",
        "write_json netlist.json",
    ]
    raw = parse(elaborate.yosys(commands, ["netlist.json"], files, LIMITS)["netlist.json"], "unit")
    tied = prune(tie(raw, {"enable": 1, "rst": 0}))
    inputs = {name: tied.inputs[name] for name in ("a", "b")}
    tied = dataclasses.replace(tied, inputs=inputs, outputs={"y": tied.outputs["sums"]})
    stages = pipeline.stages(tied)
    if stages is None:
        raise RuntimeError("the hand-written block dot is not a straight pipeline any more")
    return pipeline.collapse(tied), len(tied.registers)


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
    """`explore.dot_area_saving` and `explore.mac_area_saving`."""
    recipe, result = Recipe(), []
    dot = block(SPECIFICATION)
    given, flops = [], 0
    for name, option in VARIANTS.items():
        netlist, flops = hand_written(option)
        given += _points(netlist, dot, recipe, f"hand, {name}")
    ours = []
    for graph in VARIANT_GRAPHS:
        name = f"{graph['rows']} {graph['tree']} {graph['adder']}"
        ours += _points(graphs.render(graph, dot), dot, recipe, name)
    share, words = saving(pareto.front(given), ours)
    result.append(
        Figure(
            "explore.dot_area_saving",
            round(share, 3),
            "",
            ">= 0.1",
            how=f"combinational part at no more delay, recipe {recipe.hash}; {words}; the hand-written unit "
            f"has {flops} flip-flops besides, a variant's depend on where it is cut",
        )
    )
    mac = block("mac_s8")
    given = [
        point
        for name, candidate in candidates(mac)
        for point in _points(circuit(candidate, mac), mac, recipe, f"hand, {name}")
    ]
    ours = [
        point
        for graph in VARIANT_GRAPHS
        for point in _points(
            graphs.render(graph, mac), mac, recipe, f"{graph['rows']} {graph['tree']} {graph['adder']}"
        )
    ]
    share, words = saving(pareto.front(given), ours)
    result.append(Figure("explore.mac_area_saving", round(share, 3), "", ">= 0.1", how=words))
    return result
