"""Scenarios and the published record as Rich tables, for the terminal; `published_rows` as data, for a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from scripts.extrapolate.agents import AgentOutcome
from scripts.extrapolate.chips import Chip
from scripts.extrapolate.serving import Outcome, per_kilowatt
from scripts.published import figures, published

MODELS = {"gpt_oss_120b": "GPT-OSS-120B", "deepseek_r1": "DeepSeek-R1", "kimi_k2_5": "Kimi-K2.5"}


def number(value: float | str) -> str:
    """Three or four significant digits, thousands separated."""
    if isinstance(value, str):
        return value
    if value and abs(value) < 1:
        return f"{value:.3g}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.4g}"


def render(scenarios: Sequence[Mapping[str, Any]]) -> Table:
    """All quantities of all scenarios with band, kind and source."""
    table = Table(title="From cycles to tok/s and watts", title_justify="left")
    table.add_column("quantity")
    for name in ("value", "low", "high"):
        table.add_column(name, justify="right")
    for name in ("unit", "kind", "source"):
        table.add_column(name, overflow="fold")
    for scenario in scenarios:
        table.add_section()
        table.add_row(f"[bold]{scenario['model']}[/] on {scenario['chip']}")
        for q in scenario["quantities"]:
            ends = [number(q[end]) if end in q else "" for end in ("low", "high")]
            table.add_row(f" {q['name']}", number(q["value"]), *ends, q["unit"], q["kind"], q.get("source", ""))
    return table


def published_rows() -> list[dict[str, str]]:
    """Benchmark rows of the record: model, system, what, value, unit, tag, source, remark (notes and conflicts).

    TPS/kW of InferenceX's rows is worked out on both bases of power, chip TDP and all-in utility, and named.
    """
    rows = []
    for model, title in MODELS.items():
        for name, figure in figures().items():
            if not name.startswith((f"jalapeno.{model}.", f"inferencex.{model}.")):
                continue
            system, what = ("Jalapeño", name.rsplit(".", 1)[1]) if name.startswith("jal") else (
                name.rsplit(".", 1)[1], "peak, input and output")  # fmt: skip
            if what.startswith("baseline"):
                system, what = "unnamed Blackwell", what.removeprefix("baseline_")
            remark = "; ".join(part for part in (_extra(figure.extra), figure.note, figure.conflict) if part)
            rows.append(_row(title, system, what, figure.value, figure.unit, figure.tag, figure.source, remark))
            if name.startswith("inferencex"):
                rows += _per_kilowatt(title, system, figure.number)
    rubin = published("gpu.Rubin.results")
    rows.append(_row("all three", "Rubin", "results", rubin.tag, rubin.unit, rubin.tag, rubin.source, rubin.note))
    return rows


def _row(model: str, system: str, what: str, value: float | str, unit: str, tag: str, source: str, remark: str
         ) -> dict[str, str]:  # fmt: skip
    return {"model": model, "system": system, "what": what.replace("_", " "), "value": number(value), "unit": unit,
            "tag": tag, "source": source, "remark": remark}  # fmt: skip


def _extra(extra: Mapping[str, float]) -> str:
    names = {"ttft": "TTFT {:,.0f} ms", "tpot": "TPOT {:.1f} ms", "concurrency": "concurrency {:,.0f}"}
    return ", ".join(text.format(extra[key]) for key, text in names.items() if key in extra)


def _per_kilowatt(model: str, system: str, rate: float) -> list[dict[str, str]]:
    rows = []
    for key, basis in (("tdp", "chip TDP"), ("all_in", "all-in utility")):
        power = figures().get(f"gpu.{system}.{key}")
        if power:
            remark = f"at {power.number:g} kW ({power.tag})"
            rows.append(_row(model, system, f"tok/s/kW, {basis}", rate / power.number, "tok/s/kW", "derived",
                             power.source, remark))  # fmt: skip
    return rows


def published_tables() -> list[Table]:
    """One table a model: what is published, how far it is to be trusted, where it contradicts itself."""
    tables: dict[str, Table] = {}
    for row in published_rows():
        if row["model"] not in tables:
            table = Table(title=f"Published: {row['model']}, 8k/1k", title_justify="left")
            for column in ("system", "what"):
                table.add_column(column)
            table.add_column("value", justify="right")
            for column in ("unit", "tag", "remark"):
                table.add_column(column, overflow="fold")
            tables[row["model"]] = table
        tables[row["model"]].add_row(*(row[c] for c in ("system", "what", "value", "unit", "tag", "remark")))
    return list(tables.values())


def serving_tables(model: str, outcomes: Sequence[Outcome], chip: Chip) -> list[Table]:
    """A concurrency sweep: latencies (median, p95) and rates; power as bands, and tokens per kW on each basis."""
    times = _numbers(f"Serving {model} 8k/1k on {chip.name}: median, p95",
                     "users", "TTFT s", "TPOT ms", "end to end s", "tok/s/user", "tok/s/chip in+out")  # fmt: skip
    bases = [f"tok/s/kW, {name}" for name in per_kilowatt(outcomes[0], chip)]
    power = _numbers("Power a chip, and input and output tokens a second and kW on each basis",
                     "users", "mean W", "peak W", *bases)  # fmt: skip
    for o in outcomes:
        tpot = (1e3 * o.tpot[0], 1e3 * o.tpot[1])
        pairs = (_pair(p) for p in (o.ttft, tpot, o.end_to_end))
        times.add_row(str(o.concurrency), *pairs, number(o.per_user), number(o.rate_a_chip))
        rates = (_band(value) for value in per_kilowatt(o, chip).values())
        power.add_row(str(o.concurrency), _band(o.chip_watts), _band(o.peak_watts), *rates)
    power.caption = "derived from the cycle formula and published energies; the TDP is assumed"
    return [times, power]


def _numbers(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    for name in columns:
        table.add_column(name, justify="right")
    return table


def agents_table(rows: Sequence[tuple[str, bool, AgentOutcome]], chip: Chip) -> Table:
    """Turns of agents by model, with the context kept between turns and without."""
    table = Table(title=f"Multi-turn agents on {chip.name}: median, p95", title_justify="left")
    table.add_column("model")
    for name in (
        "context",
        "turns",
        "TTFT s",
        "turn end to end s",
        "1 / P90(E2E / tokens)",
        "tok/s out",
        "longest context",
    ):
        table.add_column(name, justify="right")
    for model, kept, o in rows:
        context = f"kept, {100 * o.reused:.0f} % reused" if kept else "computed again"
        table.add_row(model, context, str(o.turns), _pair(o.ttft), _pair(o.end_to_end), number(o.headline),
                      number(o.output_rate), f"{o.longest_context:,}")  # fmt: skip
    table.caption = "lengths and pauses are assumed, the recorded traces are not public"
    return table


def _pair(values: tuple[float, float]) -> str:
    return f"{number(values[0])}, {number(values[1])}"


def _band(value: float | tuple[float, float]) -> str:
    return number(value) if isinstance(value, float) else f"{number(value[0])} to {number(value[1])}"
