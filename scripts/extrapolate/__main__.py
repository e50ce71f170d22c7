"""`python -m scripts.extrapolate`: the last run's cycles carried to whole models and chips, beside the record."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from scripts.extrapolate import (
    DescriptionError,
    chips,
    explore,
    extrapolate,
    published_tables,
    render,
    shapes,
    validate,
)
from scripts.extrapolate.agents import Agents, simulate_agents
from scripts.extrapolate.cycles import Constants, fit
from scripts.extrapolate.disaggregated import simulate_disaggregated
from scripts.extrapolate.scenarios import LARGE, measured
from scripts.extrapolate.serving import Load, Policy, sweep
from scripts.extrapolate.tables import agents_table, serving_tables
from scripts.report.summary import SummaryError, load

SUMMARY = Path("build/sim/summary.json")
RUNS = Path("build/runs")
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, no_args_is_help=True, help=__doc__)
Summary = Annotated[Path, typer.Option(help="summary of the run to start from")]
Folder = Annotated[Path, typer.Option(help="where `make bench-tile` keeps its runs")]
ChipName = Annotated[str, typer.Option(help="a chip of scripts/extrapolate/chips/, or a TOML file")]


def _constants(summary: Path) -> Constants:
    return fit(measured(load(summary))[1])


def _chip(name: str) -> chips.Chip:
    return chips.load(Path(name) if name.endswith(".toml") else name)


@app.command("report")
def report_command(summary: Summary = SUMMARY, chip: ChipName = "full_size") -> None:
    """One user: SmolLM2 on the simulated chip, large models on a described one, and what is published."""
    console = Console()
    console.print(render(extrapolate(load(summary), _chip(chip))))
    for table in published_tables():
        console.print(table)


@app.command("serve")
def serve_command(
    summary: Summary = SUMMARY,
    chip: ChipName = "full_size",
    model: Annotated[
        str, typer.Option(help="a model of scripts/extrapolate/models/; all three large ones if empty")
    ] = "",
    concurrency: Annotated[list[int] | None, typer.Option(help="users at a time; may be repeated")] = None,
    budget: Annotated[int, typer.Option(help="positions of an iteration")] = 2048,
    draft: Annotated[int, typer.Option(help="speculative tokens a step; 0: none, as in the published runs")] = 0,
    acceptance: Annotated[float, typer.Option(help="probability that a speculative token is accepted")] = 0.0,
    draft_cost: Annotated[float, typer.Option(help="time of drafting, as a share of a step")] = 0.0,
    disaggregate: Annotated[bool, typer.Option(help="prefill on a second, equal domain")] = False,
    seed: int = 1,
) -> None:
    """8k/1k with continuous batching: TTFT, TPOT, end to end (median, p95) over concurrencies."""
    console, constants, described = Console(), _constants(summary), _chip(chip)
    policy = Policy(budget, draft, acceptance, draft_cost)
    for name in [model] if model else LARGE:
        shape = shapes.load(name)
        users = concurrency or [1, 4, 16, 64, 256]
        if disaggregate:
            loads = [Load(count, max(16, 4 * count), seed=seed) for count in users]
            outcomes = [simulate_disaggregated(shape, described, described, constants, load, policy) for load in loads]
        else:
            outcomes = sweep(shape, described, constants, users, policy=policy, seed=seed)
        for table in serving_tables(shape.name, outcomes, described):
            console.print(table)


@app.command("agents")
def agents_command(
    summary: Summary = SUMMARY,
    chip: ChipName = "full_size",
    model: Annotated[str, typer.Option(help="a model of scripts/extrapolate/models/; empty: all large ones")] = "",
    concurrency: Annotated[int, typer.Option(help="sessions at a time")] = 8,
    turns: Annotated[int, typer.Option(help="turns of a session")] = 20,
    seed: int = 1,
) -> None:
    """Multi-turn agents with assumed lengths: turns with their context kept, and with all of it computed again."""
    console, constants, described = Console(), _constants(summary), _chip(chip)
    load = Agents(concurrency, 2 * concurrency, turns, seed=seed)
    rows = []
    for name in [model] if model else LARGE:
        shape = shapes.load(name)
        rows += [
            (shape.name, kept, simulate_agents(shape, described, constants, load, reuse=kept)) for kept in (True, False)
        ]
    console.print(agents_table(rows, described))


@app.command("check")
def check_command(summary: Summary = SUMMARY, folder: Folder = RUNS) -> None:
    """The cycle formula, as fitted on the last run, against tiles and shapes of `make bench-tile`."""
    Console().print(validate.table(_constants(summary), validate.tile_runs(folder)))


@app.command("explore")
def explore_command(summary: Summary = SUMMARY, chip: ChipName = "full_size") -> None:
    """Which sizes of chip and domain reach the published latencies of all three models."""
    Console().print(explore.table(explore.explore(_chip(chip), _constants(summary))))


def main(run: Callable[[], None] = app) -> None:
    """Run the command line; what the user can put right is one line on stderr and exit code 2."""
    try:
        run()
    except (DescriptionError, SummaryError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
