"""What a circuit of `dot_s8x32` changes in the tile and on the chip, beside the noise of the synthesis.

The tile's clock is set by the slowest stage of what stays as it is (`FusedAccumulate`, `Decode`, the rest of the dot
unit); the hand-written block dot and the variant are each taken at the least area that keeps up with it. Cycles are the
same: the variant has the latency of what it replaces. Rates and watts come from `scripts.extrapolate`.
"""

import dataclasses
import functools
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from hw.numerics.accumulate import FusedAccumulate
from hw.numerics.decode import Decode
from hw.numerics.dot import BlockDot, DotUnit
from hw.numerics.formats import FormatSet
from hw.variants import VariantBlockDot, VariantFile, crossings, thrifty_cuts, write
from hw.variants.circuit import Gates
from scripts.explore import sequential
from scripts.explore.baselines import VARIANTS
from scripts.explore.judge import block
from scripts.explore.measure import Recipe
from scripts.explore.sequential import Unit
from scripts.verify.netlist import Netlist

SPECIFICATION = "dot_s8x32"
FORMATS = FormatSet(["MXINT8"])
SUMMARY = Path("build") / "sim" / "summary.json"
TILE = (8, 4)
"""Rows and columns of the tile whose arithmetic is counted: `TileConfig`'s own."""
SLACKS = (2, 8)
"""Levels by which a stage may be longer than a third of the circuit: fewer flip-flops for a longer stage."""


@functools.cache
def hand_written(option: str) -> Netlist:
    """The tile's block dot for MXINT8 as emitted, by `synth` with an option."""
    return _as_specified(sequential.netlist(BlockDot(FORMATS), option))


def _as_specified(unit: Netlist) -> Netlist:
    return dataclasses.replace(unit, outputs={"y": unit.outputs["sums"]})


def pipelined(gates: Gates, cuts: Sequence[int]) -> Netlist:
    """The variant as it is emitted for the tile."""
    return _as_specified(sequential.netlist(VariantBlockDot(FORMATS, gates, cuts), None))


@functools.cache
def fixed_units(recipe: Recipe) -> dict[str, list[Unit]]:
    """Figures of the units that stay: the rest of the dot unit around a block dot of wires, accumulator, decoder."""
    wires = VariantFile(
        SPECIFICATION,
        (0, 0),
        {"a": list(range(2, 258)), "b": list(range(258, 514))},
        {"y": list(range(2, 23))},
        (),
    )
    units = {
        "rest": DotUnit(FORMATS, wires.block_dot(FORMATS)),
        "accumulate": FusedAccumulate(FORMATS),
        "decode": Decode(FORMATS, "a"),
    }
    return {name: sequential.figures(sequential.netlist(unit), recipe) for name, unit in units.items()}


@dataclasses.dataclass(frozen=True)
class Chosen:
    """A block dot at one point: its name, its figures and its netlist."""

    name: str
    unit: Unit
    netlist: Netlist
    cuts: tuple[int, ...] = ()

    @property
    def origin(self) -> str:
        """Name and flavour."""
        return f"{self.name}, {self.unit.flavour}"


@dataclasses.dataclass(frozen=True)
class Effect:
    """Both block dots at the tile's clock, the units that stay, and the noise of area, delay and energy."""

    clock_ps: float
    limit: str
    hand: Chosen
    variant: Chosen
    fixed: dict[str, Unit]
    noise: tuple[float, ...]

    @property
    def area_change(self) -> float:
        """Share by which the block dot changes, flip-flops included; negative is smaller."""
        return self.variant.unit.area / self.hand.unit.area - 1

    @property
    def energy_ratio(self) -> float:
        assert self.variant.unit.energy is not None and self.hand.unit.energy is not None
        return self.variant.unit.energy / self.hand.unit.energy

    def tile_area(self, chosen: Chosen, rows: int, columns: int) -> float:
        """GE of the arithmetic of `rows` x `columns` units: dot units, accumulators, decoders; no memories."""
        unit = chosen.unit.area + self.fixed["rest"].area + self.fixed["accumulate"].area
        return rows * columns * unit + (rows + columns) * self.fixed["decode"].area


def _least(ways: Iterable[Chosen], clock: float) -> Chosen:
    """The smallest that keeps up with the clock; where none does, the fastest."""
    ways = list(ways)
    fits = [way for way in ways if way.unit.delay <= clock]
    if fits:
        return min(fits, key=lambda way: way.unit.area)
    return min(ways, key=lambda way: way.unit.delay)


def effect(candidates: Sequence[tuple[str, Gates]], recipe: Recipe | None = None, cuts: Sequence[int] = ()) -> Effect:
    """The effect of the best of some circuits of `dot_s8x32`; `cuts`: with these stages and no others."""
    recipe, dot = recipe or Recipe(), block(SPECIFICATION)
    stay = fixed_units(recipe)
    stages = {name: min(unit.delay for unit in units) for name, units in stay.items()}
    limit = max(stages, key=stages.__getitem__)
    clock = stages[limit]
    fixed = {name: _least((Chosen(name, u, Netlist({}, {}, [])) for u in units), clock).unit
             for name, units in stay.items()}  # fmt: skip
    hand = [
        Chosen(f"BlockDot, {name}", unit, hand_written(option))
        for name, option in VARIANTS.items()
        for unit in sequential.figures(hand_written(option), recipe, dot)
    ]
    ours = []
    for name, gates in candidates:
        third = -(-(len(crossings(gates)) - 1) // VariantBlockDot.LATENCY)
        for places in [tuple(cuts)] if cuts else [thrifty_cuts(gates, 3, third + slack) for slack in SLACKS]:
            unit = pipelined(gates, places)
            ours += [Chosen(name, found, unit, places)
                     for found in sequential.figures(unit, recipe, dot)]  # fmt: skip
    before, after = _least(hand, clock), _least(ours, clock)
    spreads = [sequential.noise(chosen.netlist, recipe, chosen.unit.flavour, dot) for chosen in (before, after)]
    return Effect(clock, limit, before, after, fixed, tuple(max(pair) for pair in zip(*spreads, strict=True)))


def carried(found: Effect, summary: Path = SUMMARY) -> list[dict[str, Any]]:
    """Rate and watts of each model before and after; empty where there is no run of `make sim` to start from."""
    from scripts.extrapolate import chips, shapes
    from scripts.extrapolate.cycles import fit
    from scripts.extrapolate.energy import energy, mac_parts, watts_of
    from scripts.extrapolate.scenarios import LARGE, measured, request
    from scripts.published import published

    if not summary.exists():
        return []
    constants = fit(measured(json.loads(summary.read_text()))[1])
    chip = chips.load("full_size")
    slow = max(found.clock_ps, found.variant.unit.delay) / max(found.clock_ps, found.hand.unit.delay)
    faster = dataclasses.replace(chip, clock_hz=int(chip.clock_hz / slow))
    scale = 1 - mac_parts()[0] / sum(mac_parts()) * (1 - found.energy_ratio)
    inputs, outputs = (round(published(f"inferencex.mean_{end}").number) for end in ("input", "output"))
    rows = []
    for name in LARGE:
        model = shapes.load(name)
        row: dict[str, Any] = {"model": model.name}
        for when, on, factor in (("before", chip, 1.0), ("after", faster, scale)):
            _, each, step = request(model, on, constants, inputs, outputs)
            spent = energy(step, on)
            low, high = spent.arithmetic
            row[f"rate_{when}"] = 1 / each
            row[f"watts_{when}"] = watts_of(
                dataclasses.replace(spent, arithmetic=(low * factor, high * factor)), on, each
            )
        rows.append(row)
    return rows


def table(found: Effect, rows: int, columns: int, models: Sequence[dict[str, Any]]) -> Table:
    """Block dot, tile arithmetic, rates and watts: by hand, with the variant, change; the noise below."""
    made = Table(title="The variant in the tile", title_justify="left")
    for head in ("what", "by hand", "variant", "change"):
        made.add_column(head, justify="left" if head == "what" else "right")

    def row(what: str, before: float, after: float, unit: str, digits: int = 0, noise: float = 0.0) -> None:
        change = 100 * (after / before - 1)
        text = "no change" if abs(change) < 0.005 else f"{change:+.2f} %"
        text += " (within the noise)" if 0.005 <= abs(change) < 100 * noise else ""
        made.add_row(what, f"{before:,.{digits}f} {unit}", f"{after:,.{digits}f} {unit}", text)

    old, new = found.hand.unit, found.variant.unit
    area, delay, spent = found.noise
    row("block dot, area with flip-flops", old.area, new.area, "GE", noise=area)
    row("block dot, flip-flops", old.flops, new.flops, "")
    row("block dot, longest stage", old.delay, new.delay, "ps", noise=delay)
    row("block dot, energy on SmolLM2's operands", (old.energy or 0) / 1e3, (new.energy or 0) / 1e3, "pJ", 2, spent)
    before, after = (found.tile_area(chosen, rows, columns) / 1e3 for chosen in (found.hand, found.variant))
    row(f"tile of {rows} x {columns}, arithmetic", before, after, "kGE", 1)
    before, after = (max(found.clock_ps, unit.delay) for unit in (old, new))
    row(f"clock of the tile ({found.limit})", before, after, "ps")
    for entry in models:
        row(f"{entry['model']}, one user", entry["rate_before"], entry["rate_after"], "tok/s", 1)
        for index, name in enumerate(("low", "high")):
            before, after = (entry[f"watts_{when}"][index] for when in ("before", "after"))
            row(f"{entry['model']}, a chip, {name} end", before, after, "W", 1)
    return made


def notes(found: Effect, models: Sequence[dict[str, Any]]) -> list[str]:
    """What the table stands on, a line each."""
    area, delay, spent = (100 * value for value in found.noise)
    lines = [
        f"by hand: {found.hand.origin}; variant: {found.variant.origin}, cut after levels {found.variant.cuts}",
        f"noise floor, the same gates in {sequential.SHUFFLES} orders, largest less smallest: area {area:.1f} %, "
        f"delay {delay:.1f} %, energy {spent:.1f} %",
    ]
    if not models:
        lines.append(f"no rates and watts: {SUMMARY} is not there (make sim)")
    return lines


def keep(found: Effect, gates: Gates, path: Path, recipe: Recipe) -> None:
    """Write the variant where `make ... VARIANT=path` finds it."""
    figures = dataclasses.asdict(found.variant.unit)
    labels = {"origin": found.variant.origin, "recipe": recipe.hash, "figures": figures}
    write(path, SPECIFICATION, found.variant.cuts, gates, labels)
