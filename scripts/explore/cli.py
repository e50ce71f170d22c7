"""`python -m scripts explore`: search circuit variants of a block. Values may come from `SERRANO_*` variables."""

import json
import sys
from pathlib import Path

import typer
from rich.console import Console

from scripts.explore import effect, pareto, protocol
from scripts.explore.archive import Archive, text
from scripts.explore.judge import Candidate, block, judge, judge_named
from scripts.explore.measure import MeasureError, Recipe
from scripts.explore.proposers.evolve import supported
from scripts.explore.session import Budget, Session
from scripts.explore.variant import archived
from scripts.explore.workers import executor
from scripts.verify import sandbox
from scripts.verify.netlist import Netlist

app = typer.Typer(help="Explore circuit variants of an arithmetic block.", no_args_is_help=False)
STORE = Path("build") / "explore"
BUILT_IN = {"evolve": "evolve", "optuna": "tuner", "files": "files", "chat": "chat"}


def _fail(text_: str, code: int = 2) -> None:
    typer.echo(f"explore: {text_}", err=True)
    raise typer.Exit(code)


def command(proposer: str, seed: int) -> str | list[str]:
    """The command line of a proposer: empty or `evolve` is built in, `optuna`, `files FOLDER`, `chat --url ...` too."""
    words = proposer.split(" ", 1)
    if not proposer or words[0] in BUILT_IN:
        name = BUILT_IN[words[0]] if proposer else "evolve"
        start = [sys.executable, "-m", f"scripts.explore.proposers.{name}"]
        if name in ("evolve", "tuner") and len(words) == 1:
            start += ["--seed", str(seed)]
        return start + protocol.shlex.split(words[1] if len(words) > 1 else "")
    return proposer


@app.callback(invoke_without_command=True)
def run(
    context: typer.Context,
    block_name: str = typer.Option(
        "", "--block", envvar="SERRANO_BLOCK", help="Specification: mul_s8, add_u32, dot_s8x32, ..."
    ),
    budget: str = typer.Option(
        "2m", envvar="SERRANO_BUDGET", help="90s, 10m, a number of candidates, or both: 10m,200."
    ),
    proposer: str = typer.Option("", envvar="SERRANO_PROPOSER", help="Program, or evolve, optuna, files DIR, chat ..."),
    liberty: str = typer.Option("", envvar="SERRANO_LIBERTY", help="Liberty file; else the built-in library."),
    archive: Path = typer.Option(STORE / "archive.sqlite", help="Archive; it is made if it is not there."),
    name: str = typer.Option("", "--run", help="Name of this series; the same name goes on where it was killed."),
    seed: int = typer.Option(1, help="Seed of the built-in searches."),
    workers: int = typer.Option(2, help="Candidates judged at a time."),
    parsl: Path | None = typer.Option(None, help="TOML file of a Parsl provider: judge on a cluster."),
    out: Path = typer.Option(STORE, help="Folder of the front: front.json, front.svg, index.html."),
) -> None:
    """Search within a budget, then show the Pareto front."""
    if context.invoked_subcommand is not None:
        return
    if not block_name:
        _fail("give BLOCK, the specification to explore")
    try:
        sandbox.available()
        specification, limits = block(block_name), Budget.parse(budget or "2m")
        if (proposer.split(" ", 1)[0] or "evolve") in ("evolve", "optuna"):
            supported(specification)
        recipe = Recipe(Path(liberty).read_text() if liberty else "")
        recipe.probe()
    except sandbox.SandboxUnavailable as error:
        _fail(f"refused: {error}", 5)
    except OSError as error:
        _fail(f"LIBERTY={liberty}: {error.strerror}")
    except (ValueError, MeasureError) as error:
        _fail(str(error))
    # A series goes on only with the figures of its own recipe: another library or tool begins anew.
    label = name or f"{block_name} {proposer or 'evolve'} {seed}"
    series = f"{label} @ {recipe.hash}"
    store = Archive(archive)
    with executor(workers, parsl) as pool:
        session = Session(specification, store, recipe, pool, judge_named, series, workers)
        try:
            program = protocol.Proposer(command(proposer, seed))
        except protocol.ProposerGone as error:
            _fail(str(error))
        outcome = session.run(program, limits)
    typer.echo(
        f"{outcome.judged} candidates judged ({outcome.replayed} were in the archive) in {outcome.seconds:.1f} s: "
        f"{', '.join(f'{count} {verdict}' for verdict, count in sorted(outcome.verdicts.items())) or 'none'}; "
        f"{outcome.reason}"
    )
    best = write_front(store, block_name, recipe, out / block_name)
    if block_name == effect.SPECIFICATION and not liberty:
        ours = [row for row in best if not (row["origin"] or "").startswith("baseline: ")]
        order = sorted(ours, key=lambda row: row["area"] * row["delay"])
        keys = list(dict.fromkeys(row["candidate"] for row in order))[:2]
        show_effect({key: archived(archive, key, block_name) for key in keys}, out / block_name / "variant.json")


def show_effect(circuits: dict[str, Netlist], keep: Path) -> None:
    """What the best of the circuits changes in the tile and on the chip; it is kept in a file for `VARIANT=`."""
    if not circuits:
        typer.echo("no candidate is on the front: no change in the tile")
        return
    found = effect.effect(list(circuits.items()))
    effect.keep(found, circuits[found.variant.name], keep, Recipe())
    models = effect.carried(found)
    console = Console()
    console.print(effect.table(found, *effect.TILE, models))
    for line in effect.notes(found, models):
        console.print(line)
    console.print(f"switch: make test-tile VARIANT={keep}")


def write_front(store: Archive, name: str, recipe: Recipe, out: Path) -> list[dict]:
    """Table on the terminal; front.json, front.svg and index.html in `out`. Returns the front."""
    points = pareto.rows(store.circuits(name, recipe.hash))
    best = pareto.front(points)
    out.mkdir(parents=True, exist_ok=True)
    given = [row for row in points if (row["origin"] or "").startswith("baseline: ")]
    title = f"{name}: area and delay after synthesis"
    unit = "Liberty" if recipe.liberty else "GE"
    pareto.plot(points, best, given, out / "front.svg", title, unit)
    notes = [
        f"recipe {recipe.hash}; built-in library" if not recipe.liberty else f"recipe {recipe.hash}; given library"
    ]
    for mine in ("yosys", "yosys booth"):
        rows = [row for row in given if row["origin"] == f"baseline: {mine}"]
        if rows:
            beaten = sum(any(pareto.dominates(point, row) for point in best) for row in rows)
            notes.append(f"{beaten} of {len(rows)} points of {mine} are dominated by the front")
    (out / "index.html").write_text(pareto.page(points, best, "front.svg", title, notes))
    (out / "front.json").write_text(json.dumps({"block": name, "recipe": recipe.hash, "front": best}, indent=1) + "\n")
    console = Console()
    console.print(pareto.table(best, f"{title}: the front", unit))
    for note in notes:
        console.print(note)
    console.print(f"written: {out / 'index.html'}")
    return best


@app.command("check")
def check(file: Path, block_name: str = typer.Option(..., "--block")) -> None:
    """Judge one candidate file (graph text `.json`, or Verilog) and print the result. Exit code 1 if it is wrong."""
    try:
        kind = "graph" if file.suffix == ".json" else "verilog"
        judged = judge(Candidate(kind, file.read_text(), f"file: {file.name}"), block(block_name), Recipe())
    except sandbox.SandboxUnavailable as error:
        _fail(f"refused: {error}", 5)
    except (OSError, ValueError) as error:
        _fail(str(error))
    typer.echo(json.dumps(judged.result, indent=1))
    raise typer.Exit(0 if judged.result["verdict"] == "correct" else 1)


@app.command("export")
def export(archive: Path = typer.Option(STORE / "archive.sqlite")) -> None:
    """The archive as JSON lines; the same candidates give the same bytes."""
    for line in Archive(archive).export():
        typer.echo(line, nl=False)


@app.command("show")
def show(candidate: str, archive: Path = typer.Option(STORE / "archive.sqlite")) -> None:
    """The text of a candidate by its id."""
    found = Archive(archive).candidate(candidate)
    if found is None:
        _fail(f"no candidate {candidate!r} in {archive}")
    else:
        typer.echo(found["content"] if found["kind"] == "verilog" else text(json.loads(found["content"])))
