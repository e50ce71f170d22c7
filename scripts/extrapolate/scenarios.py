"""From a run's summary to the scenarios of its report: SmolLM2 on the simulated chip, large models on a described one.

`extrapolate(summary)` is what `make sim` calls. A scenario has the form of docs/summary-schema.md: quantities with
value, band, unit, kind (measured, derived, published, assumed) and source.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from scripts.extrapolate import chips, shapes
from scripts.extrapolate.chips import Band, Chip
from scripts.extrapolate.cycles import Constants, Run, fit, runs, work
from scripts.extrapolate.energy import energy, watts
from scripts.extrapolate.shapes import Model
from scripts.extrapolate.step import PARTS, Batch, Step, step
from scripts.published import published

LARGE = ("gpt_oss_120b", "deepseek_r1", "kimi_k2_5")
ASSUMED_PARTS = ("attention", "network", "link", "vector")
"""Parts of a step whose formulas no RTL run stands behind yet: halved and doubled for the band."""
CHUNK = 2048
WORDS = {
    "stream": "weights from HBM",
    "unpack": "unpacking weights",
    "array": "array beyond that",
    "order": "waits for accumulators",
    "start": "starting products",
    "attention": "attention",
    "network": "network",
    "link": "links between chips",
    "vector": "vector functions",
}

SMALL_BAND = (
    "layers as measured, output layer by formula, attention, gather and vector functions assumed; "
    "high: products alone, low: with the measured waits for activations and twice what is assumed"
)
BETWEEN = "What happens between the products is assumed, and measured as waits for activations at the low end."
BY_FORMULA = "cycle formula from this run; attention, network, links and vector functions assumed, halved and doubled"
BURST = "32 bytes in the burst time of the configured generation (hw/hbm/timing.py), in whole cycles"
EVENTS = "events times published energies, scaled to 3 nm"

Quantity = dict[str, Any]
Scenario = dict[str, Any]


def quantity(
    name: str, value: float | str, unit: str, kind: str, source: str = "", band: Band | None = None
) -> Quantity:
    """One row: `kind` is measured, derived, published or assumed; `band` is [low, high]."""
    row: Quantity = {"name": name, "value": value, "unit": unit, "kind": kind}
    if band:
        row["low"], row["high"] = band
    if source:
        row["source"] = source
    return row


def extrapolate(summary: Mapping[str, Any], chip: Chip | None = None) -> list[Scenario]:
    """All scenarios from the `products` and `config` of a summary; large models on `chip`, if absent the full-size one.

    Raises DescriptionError.
    """
    simulated, found = measured(summary)
    constants = fit(found)
    small = small_scenario(summary, found, simulated, constants)
    described = chip or chips.load("full_size")
    return [small, *(large_scenario(shapes.load(name), name, described, constants) for name in LARGE)]


def measured(summary: Mapping[str, Any]) -> tuple[Chip, list[Run]]:
    """The chip of a summary and its products as runs to fit on. Raises DescriptionError."""
    simulated = chips.simulated(summary["config"]["values"])
    tile = summary["config"]["values"]["tile"]
    queue = tile["columns"] * (tile["weight_sets"] - 1) * 33 // 32 if "weight_sets" in tile else 0
    return simulated, runs(summary["products"], simulated.tile, simulated.tiles, simulated.rate, queue)


def _formula(constants: Constants) -> list[Quantity]:
    source = f"fitted on {', '.join(constants.fitted_on)}; error on {', '.join(constants.tested_on)}"
    worst = 100 * constants.worst_error
    return [
        quantity("cycle formula, worst error on runs not fitted on", worst, "%", "measured", source),
        quantity("time of the memory over its peak's", constants.memory_factor, "", "derived", source),
        quantity("cycles to start a product", constants.start, "cycles", "derived", source),
    ]


def small_scenario(summary: Mapping[str, Any], found: Sequence[Run], chip: Chip, constants: Constants) -> Scenario:
    """SmolLM2 on the chip that ran: measured layer cycles times its layers, the rest by formula."""
    products = summary["products"]
    model = shapes.load("smollm2_135m")
    context = max((record["M"] for record in products if record["mode"] == "prefill"), default=0) + 1
    own = sum(run.cycles + run.buffered for run in found if run.mode == "decode")
    whole = sum(record["cycles"] for record in products if record["mode"] == "decode")
    by_formula = step(model, chip, constants, Batch(decode=1, context=context))
    head = model.matrices[-1]
    head_cycles = constants.cycles(work(1, head.k, head.n, chip.tile, chip.tiles, chip.rate))
    rest = sum(getattr(by_formula, part) for part in ASSUMED_PARTS)
    weights = model.layers * own + head_cycles
    rate = chip.clock_hz / (weights + rest)
    band = (chip.clock_hz / (model.layers * whole + head_cycles + 2 * rest), chip.clock_hz / weights)
    power = watts(by_formula, chip, 1 / rate)
    joules = energy(by_formula, chip).total
    used = 100 * by_formula.hbm_bytes * rate / chip.bandwidth
    peak = chip.bandwidth / 1e9
    without = f"{EVENTS}; without leakage, which needs an area"
    rows = [
        quantity("decode, products of a layer", own, "cycles", "measured", "without the waits for activations"),
        quantity("decode, one user", rate, "tok/s/user", "derived", f"{model.layers} {SMALL_BAND}", band),
        quantity("HBM bandwidth of this chip", peak, "GB/s", "derived", BURST),
        quantity("HBM bandwidth used by decode", used, "%", "derived", "bytes a token times tokens a second"),
        quantity("energy a token", 1e3 * sum(joules) / 2, "mJ", "derived", without, _scaled(joules, 1e3)),
        quantity("power at that rate", sum(power) / 2, "W", "derived", without, power),
        *_prefill(found, context - 1, model, chip),
        *_formula(constants),
    ]
    outside = "; ".join(part["what"] for part in summary["outside_rtl"])
    note = f"One pseudo-channel a tile, KV cache of {context} positions. Outside the RTL in this run: "
    note += f"{outside or 'nothing'}. {BETWEEN}"
    return {"model": model.name, "chip": chip.name, "note": note, "quantities": rows}


def _scaled(band: Band, factor: float) -> Band:
    return band[0] * factor, band[1] * factor


def _prefill(found: Sequence[Run], positions: int, model: Model, chip: Chip) -> list[Quantity]:
    cycles = sum(run.cycles for run in found if run.mode == "prefill")
    if not cycles:
        return []
    rate = positions * chip.clock_hz / (model.layers * cycles)
    source = f"a chunk of {positions} positions, products alone"
    return [quantity("prefill, products alone", rate, "tok/s", "derived", source)]


def _spread(found: Step, constants: Constants) -> tuple[float, float, float]:
    """Cycles of a step: least, middle, most. Assumed parts halved and doubled, products by the formula's error."""
    assumed = sum(getattr(found, part) for part in ASSUMED_PARTS)
    products = found.cycles - assumed
    error = constants.worst_error
    return products * (1 - error) + assumed / 2, found.cycles, products * (1 + error) + 2 * assumed


def request(model: Model, chip: Chip, constants: Constants, inputs: int, outputs: int) -> tuple[float, float, Step]:
    """Seconds to the first token and for each further one of a request alone on the domain, and the middle step."""
    first, done = 0.0, 0
    while done < inputs:
        now = min(CHUNK, inputs - done)
        batch = Batch(prefill=now, history=done, last=done + now == inputs)
        first += step(model, chip, constants, batch).cycles
        done += now
    middle = step(model, chip, constants, Batch(decode=1, context=inputs + outputs / 2))
    return first / chip.clock_hz, middle.cycles / chip.clock_hz, middle


def fits(model: Model, chip: Chip) -> bool:
    """Whether the weights, and a context of 8192 positions, fit in the domain's memory."""
    return model.resident + 8192 * model.kv_token <= chip.capacity


def large_scenario(model: Model, name: str, chip: Chip, constants: Constants) -> Scenario:
    """A large model at concurrency 1 on InferenceX's mean 8k/1k request, beside what is published."""
    inputs, outputs = (round(published(f"inferencex.mean_{end}").number) for end in ("input", "output"))
    first, each, middle = request(model, chip, constants, inputs, outputs)
    least, _, most = _spread(middle, constants)
    band = (chip.clock_hz / most, chip.clock_hz / least)
    end = first + (outputs - 1) * each
    ends = (first / 2 + (outputs - 1) * least / chip.clock_hz, 2 * first + (outputs - 1) * most / chip.clock_hz)
    power = watts(middle, chip, each)
    shape = f"from the published shape: {published(f'model.{name}.bytes_per_token').source}"
    peak = f"of {chip.bandwidth / 1e12:.1f} TB/s"
    used = 100 * middle.hbm_bytes / each / chip.bandwidth
    both = (first / 2, 2 * first)
    domain = all_in(power, chip)
    ratio = "chip power times the all-in ratio of GB200 and B200"
    rows = [
        quantity("decode, one user, 8k/1k", 1 / each, "tok/s/user", "derived", BY_FORMULA, band),
        quantity("time to first token, one user", first, "s", "derived", f"chunks of {CHUNK}; {BY_FORMULA}", both),
        quantity("end to end, one user", end, "s", "derived", f"{inputs} in, {outputs} out", ends),
        quantity("weight bytes a token", model.weight_bytes() / 1e9, "GB", "derived", shape),
        quantity("HBM bandwidth used", used, "%", "derived", peak),
        quantity("power a chip, one user", sum(power) / 2, "W", "derived", f"{EVENTS}, and static power", power),
        quantity("power of the domain, all-in utility", sum(domain) / 2, "kW", "derived", ratio, domain),
        *_shares(middle),
        *_published_rows(name),
    ]
    size = f"{chip.hbm.stacks:g} HBM4 stacks and {chip.tiles} tiles a chip, {chip.domain.chips} chips"
    note = f"A described chip, not a product: {size}. Its size is a free parameter."
    if not fits(model, chip):
        note += " The model does not fit in its memory."
    return {"model": model.name, "chip": chip.name, "note": note, "quantities": rows}


def all_in(chip_watts: Band, chip: Chip) -> Band:
    """All-in utility kW of the domain for a chip's watts."""
    low, high = (chip_watts[i] * chip.domain.chips * chip.power.all_in_ratio[i] / 1e3 for i in (0, 1))
    return low, high


def _shares(found: Step) -> list[Quantity]:
    """What the step's time is spent on, in percent."""
    rows = []
    for part in PARTS:
        kind = "assumed" if part in ASSUMED_PARTS else "derived"
        rows.append(quantity(f"share: {WORDS[part]}", 100 * getattr(found, part) / found.cycles, "%", kind))
    return rows


def _published_rows(name: str) -> list[Quantity]:
    rows = []
    for key, label, unit in (
        ("tok_per_user", "Jalapeño, concurrency 1", "tok/s/user"),
        ("e2e", "Jalapeño, end to end", "s"),
        ("baseline_e2e", "unnamed Blackwell system, end to end", "s"),
    ):
        figure = published(f"jalapeno.{name}.{key}")
        source = "; ".join(part for part in (figure.source, figure.note, figure.conflict) if part)
        rows.append(quantity(label, figure.number, unit, "published", source))
    return rows


def resized(chip: Chip, chips_in_domain: int, expert_groups: int | None = None) -> Chip:
    """`chip` in a domain of another size, each expert on one chip unless said otherwise."""
    groups = chips_in_domain if expert_groups is None else expert_groups
    domain = replace(chip.domain, chips=chips_in_domain, expert_groups=groups)
    return replace(chip, name=f"{chip.name} ({chips_in_domain} in the domain)", domain=domain)
