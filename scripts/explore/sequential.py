"""Area, longest stage and energy of pipelined units of the tile, by the same recipe as combinational candidates.

A unit is emitted, lowered to gates and flip-flops, and cut at its flip-flops: their outputs become inputs, their data
inputs outputs. What is left is combinational and goes through the recipe; its delay is that of the longest stage.
"""

import dataclasses
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path

from amaranth.lib import wiring

from golden.specifications import Specification
from scripts.explore import library, measure, operands
from scripts.explore.measure import Recipe
from scripts.verify import elaborate, pipeline, sandbox
from scripts.verify.netlist import Cell, Netlist, evaluate, parse, prune, sort, tie
from scripts.verify.proof import blif

LIMITS = sandbox.Limits(seconds=300, memory=4 << 30)
SHUFFLES = 5
"""Orders of the same circuit that the noise of the recipe is measured on."""


@dataclasses.dataclass(frozen=True)
class Unit:
    """Figures of one flavour: area in GE with flip-flops, ps of the longest stage with a flip-flop's own time, fJ for
    one operation (None where it was not counted), flip-flops."""

    flavour: str
    area: float
    delay: float
    energy: float | None
    flops: int


def netlist(component: wiring.Component, option: str | None = "") -> Netlist:
    """A unit of the tile as gates and flip-flops, always enabled.

    `option`: for Yosys's `synth`, such as `-booth`; None for a unit that is gates already.
    """
    from hw.emit import emit

    with tempfile.TemporaryDirectory() as folder:
        emit(component, "unit", Path(folder))
        files = {path.name: path.read_text() for path in sorted(Path(folder).glob("*.v"))}
    if option is None:
        raw, why, _ = elaborate.lower(files, "unit", LIMITS, cxxrtl=False)
        if raw is None:
            raise RuntimeError(f"the emitted unit: {why}")
        return _enabled(raw)
    commands = [
        *(f"read_verilog -sv /in/{name}" for name in files),
        f"synth -noabc -flatten {option} -top unit",
        "dfflegalize -cell $_DFF_P_ 01",
        "simplemap",
        "opt_expr",
        "opt_merge",
        "opt_clean",
        "write_json netlist.json",
    ]
    return _enabled(parse(elaborate.yosys(commands, ["netlist.json"], files, LIMITS)["netlist.json"], "unit"))


def _enabled(raw: Netlist) -> Netlist:
    held = {"enable": 1, "rst": 0}
    unit = prune(tie(raw, {name: value for name, value in held.items() if name in raw.inputs}))
    return dataclasses.replace(unit, inputs={name: nets for name, nets in unit.inputs.items() if name != "clk"})


def cut(unit: Netlist) -> Netlist:
    """The unit without its flip-flops: `q` are further inputs, `d` further outputs."""
    registers = unit.registers
    return dataclasses.replace(
        unit,
        inputs={**unit.inputs, "q": [cell.output for cell in registers]},
        outputs={**unit.outputs, "d": [cell.inputs[0] for cell in registers]},
        cells=unit.gates,
        clock=None,
    )


def _drive(unit: Netlist, specification: Specification) -> dict[str, int]:
    """What inputs and flip-flops of a straight pipeline see over the operand sequence.

    A flip-flop sees the data of an earlier step; how often it toggles does not depend on how much earlier.
    """
    drive = measure.drive_bits(specification, operands.sequence(specification, measure.STEPS))
    flat = pipeline.collapse(unit)
    values = {name: [drive[f"{name}_{i}"] for i in range(len(nets))] for name, nets in flat.inputs.items()}
    state = evaluate(flat, values, measure.STEPS)
    for cell in flat.cells:
        state.setdefault(cell.output, 0)
    data = {cell.output: cell.inputs[0] for cell in unit.registers}

    def behind(net: int) -> int:
        while net in data:
            net = data[net]
        return state[net]

    return drive | {f"q_{index}": behind(cell.output) for index, cell in enumerate(unit.registers)}


def figures(
    unit: Netlist,
    recipe: Recipe,
    specification: Specification | None = None,
    flavours: tuple[str, ...] = tuple(measure.FLAVOURS),
    seed: int = 0,
) -> list[Unit]:
    """One entry a flavour. `specification`: count energy too (a straight pipeline with these operands). `seed`: the
    gates in another order."""
    bare = cut(unit)
    if seed:
        bare = shuffled(bare, seed)
    drive = _drive(unit, specification) if specification else None
    flops = len(unit.registers)
    own = 0.0
    if drive:
        moved = sum(measure.toggles(drive[f"q_{index}"]) for index in range(flops)) / (measure.STEPS - 1)
        own = moved * library.FLIP_FLOP_DATA / 2 + flops * library.FLIP_FLOP_CLOCK
        own *= library.CAPACITANCE_FF * library.VOLTAGE**2
    return [
        Unit(
            point.flavour,
            round(point.area + flops * library.FLIP_FLOP_AREA, 1),
            round(point.delay + library.FLIP_FLOP_PS, 1),
            None if point.energy is None else round(point.energy + own, 1),
            flops,
        )
        for point in measure.synthesise(blif(bare), drive, recipe, True, flavours)
    ]


def shuffled(bare: Netlist, seed: int) -> Netlist:
    """The same circuit with its gates in another topological order and the inputs of symmetric gates exchanged."""
    generator = random.Random(seed)
    cells = []
    for cell in bare.cells:
        pins = list(cell.inputs)
        if len(pins) == 2 and cell.kind not in ("$_ANDNOT_", "$_ORNOT_"):
            generator.shuffle(pins)
        cells.append(Cell(cell.kind, tuple(pins), cell.output))
    generator.shuffle(cells)
    return dataclasses.replace(bare, cells=sort(cells, [net for nets in bare.inputs.values() for net in nets]))


def noise(unit: Netlist, recipe: Recipe, flavour: str, specification: Specification | None = None) -> tuple[float, ...]:
    """(largest - smallest) / mean of area, delay and energy over `SHUFFLES` orders of the same gates."""
    runs = [figures(unit, recipe, specification, (flavour,), seed)[0] for seed in range(1, SHUFFLES + 1)]
    return tuple(_spread([getattr(entry, key) for entry in runs]) for key in ("area", "delay", "energy"))


def _spread(values: Sequence[float | None]) -> float:
    known = [value for value in values if value is not None]
    return (max(known) - min(known)) / (sum(known) / len(known)) if known else 0.0
