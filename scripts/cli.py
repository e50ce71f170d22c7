"""The commands behind the Makefile's targets. Each option is also read from the environment as SERRANO_<NAME>.

Commands import what they need when they run: `figures` and `report` start at once, and a fault in one block cannot
take the command line down.
"""

import errno
import importlib
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

ROOT = Path(__file__).resolve().parent.parent
VARIABLES = ("CONFIG", "PROMPT", "LAYER", "SEED", "BLOCK", "BENCH", "TEST", "WAVES", "DUT", "SPEC", "TOP", "MAP",
             "BUDGET", "PROPOSER", "LIBERTY", "VARIANT", "LONG")  # fmt: skip

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False,
                  help="Simulate, verify and explore the Serrano accelerator.")  # fmt: skip


def option(help_text: str, name: str, **settings: Any) -> Any:
    """An option that is also read from the environment variable SERRANO_<NAME>."""
    return typer.Option(f"--{name.lower()}", envvar=f"SERRANO_{name}", help=help_text, **settings)


Block = Annotated[str, option("a folder of tb/", "BLOCK")]
Bench = Annotated[str, option("one testbench of the block", "BENCH")]
Test = Annotated[str, option("one test of the testbench", "TEST")]
Seed = Annotated[int, option("seed of everything random", "SEED", min=0)]
Waves = Annotated[bool, option("write waveforms", "WAVES")]
Long = Annotated[bool, option("also what takes minutes", "LONG")]
Config = Annotated[str, option("chip configuration (TOML)", "CONFIG")]


class UserError(Exception):
    """Something the user can put right; the message is printed alone."""


@app.command()
def sim(
    config: Config = "",
    prompt: Annotated[str, option("text that the model reads", "PROMPT")] = "",
    layer: Annotated[int, option("transformer layer", "LAYER", min=0)] = 0,
    seed: Seed = 1,
    block: Block = "",
    bench: Bench = "",
    test_name: Test = "",
    waves: Waves = False,
) -> None:
    """Run a real transformer layer on the RTL, or with BLOCK one block's testbench alone."""
    if block:
        run_block(block, bench, test_name, seed, waves)
        return
    slice_run = importlib.import_module("scripts.sim")
    path = existing(config, "CONFIG") if config else None
    raise typer.Exit(slice_run.main(config=path, prompt=prompt or None, layer=layer, seed=seed, waves=waves))


@app.command()
def test(
    block: Annotated[str, typer.Argument(help="a folder of tb/; without it, the whole suite")] = "",
    bench: Bench = "",
    test_name: Test = "",
    seed: Seed = 1,
    waves: Waves = False,
    long: Long = False,
) -> None:
    """Run the whole test suite, or the testbenches of one block."""
    if block:
        run_block(block, bench, test_name, seed, waves, long)
        return
    workers = min(8, len(os.sched_getaffinity(0)))
    command = [sys.executable, "-m", "pytest", "-n", str(workers), "--dist", "worksteal", "-q", f"--seed={seed}",
               f"--junitxml={ROOT / 'build' / 'test' / 'junit.xml'}"]  # fmt: skip
    command += ["--long"] if long else []
    command += ["-k", test_name] if test_name else []
    raise typer.Exit(subprocess.run(command, cwd=ROOT).returncode)


@app.command()
def bench(name: Annotated[str, typer.Argument(help="a module of scripts/bench/")], long: Long = False) -> None:
    """Measure the figures of one area, print them and keep them in build/bench/."""
    from scripts import figures as store

    known = modules("scripts.bench")
    if name not in known:
        raise UserError(f"there is no benchmark '{name}'; there are: {', '.join(known)}")
    measured = importlib.import_module(f"scripts.bench.{name}").figures(long=long)
    path = store.record(name, measured)
    store.show(measured, title=f"make bench-{name}")
    print(f"kept in {path.relative_to(ROOT)}")


@app.command()
def figures(
    markdown: Annotated[bool, typer.Option("--markdown", help="as a table for README or docs")] = False,
    prefix: Annotated[str, typer.Argument(help="only ids that begin with this")] = "",
) -> None:
    """Print the newest of every figure, with the commit and the command that made it."""
    from scripts import figures as store

    newest = [entry for entry in store.newest() if entry["id"].startswith(prefix)]
    if not newest:
        raise UserError("no such figure has been measured here yet; run 'make sim' or 'make bench-<name>'")
    if markdown:
        print(store.markdown(newest))
    else:
        store.show(newest, made=True)


@app.command()
def report() -> None:
    """Show the last run again: on the terminal and as build/sim/report.html."""
    from scripts.report import load, show, write_page

    summary = load(ROOT / "build" / "sim" / "summary.json")
    show(summary)
    print(f"page: {write_page(summary, ROOT / 'build' / 'sim' / 'report.html')}")


@app.command()
def waves(block: Block = "", bench: Bench = "", test_name: Test = "", seed: Seed = 1) -> None:
    """Run a block's testbench with waveforms, and write a saved view beside them."""
    from scripts import waveforms

    for testbench in choose(block or "chip", bench, long=True)[:1]:
        waveforms.capture(testbench, seed, test_name or None)


@app.command()
def rtl(config: Config = "") -> None:
    """Write the chip's Verilog to rtl/gen, for another flow."""
    path = existing(config, "CONFIG") if config else None
    from scripts.rtl import write

    write(path, ROOT / "rtl" / "gen")


@app.command()
def lint() -> None:
    """Check the emitted Verilog, the Python style and the types."""
    from scripts import lint as checks

    raise typer.Exit(checks.main())


@app.command("format")
def format_sources() -> None:
    """Put the Python sources into the project's style."""
    for arguments in (["check", "--fix", "--quiet", "."], ["format", "."]):
        subprocess.run([sys.executable, "-m", "ruff", *arguments], cwd=ROOT)


@app.command()
def typecheck() -> None:
    """Check the types."""
    raise typer.Exit(subprocess.run([sys.executable, "-m", "mypy"], cwd=ROOT).returncode)


@app.command()
def blocks() -> None:
    """List the blocks that have testbenches, and their testbenches."""
    from scripts import simulator

    for name, benches in simulator.discover().items():
        print(f"{name}: {', '.join(item.name + (' (long)' if item.long else '') for item in benches)}")


def add_packages(wanted: list[str]) -> None:
    """Add the commands that are packages with a Typer application of their own, if one is `wanted` or help is."""
    for name in ("verify", "explore"):
        if (not wanted or wanted[0] in (name, "--help")) and (ROOT / "scripts" / name / "cli.py").is_file():
            app.add_typer(importlib.import_module(f"scripts.{name}.cli").app, name=name)


def modules(package: str) -> list[str]:
    """Names of the public modules of a package folder."""
    folder = ROOT.joinpath(*package.split("."))
    return sorted(path.stem for path in folder.glob("*.py") if not path.stem.startswith("_"))


def existing(path: str, variable: str) -> Path:
    """`path` as a Path; UserError when there is no such file."""
    if not Path(path).is_file():
        raise UserError(f"{variable}: there is no file '{path}'")
    return Path(path)


def choose(block: str, bench: str, long: bool) -> list[Any]:
    """The testbenches of a block, or the one that is named; UserError lists what there is."""
    known = sorted(path.parent.name for path in (ROOT / "tb").glob("*/__init__.py") if path.parent.name != "common")
    if block not in known:
        raise UserError(f"there is no block '{block}' under tb/; there are: {', '.join(known)}")
    found = importlib.import_module(f"tb.{block}").TESTBENCHES  # this one only: the others may be half-written
    named = [item for item in found if item.name == bench]
    if bench and not named:
        raise UserError(f"block '{block}' has no testbench '{bench}'; it has: {', '.join(item.name for item in found)}")
    return named or [item for item in found if long or not item.long] or found


def run_block(block: str, bench: str, test_name: str, seed: int, waves: bool, long: bool = False) -> None:
    """Run testbenches of one block and print what each test did; exit 1 when one failed."""
    from scripts import simulator, waveforms

    failures = []
    for testbench in choose(block, bench, long):
        print(f"{testbench.name}: building and running (seed {seed})", flush=True)
        try:
            if waves:
                results = waveforms.capture(testbench, seed, test_name or None)
            else:
                results = simulator.check(testbench, seed, test_name or None)
            for result in results:
                print(f"  passed {result.test} ({result.sim_time_ns:,.0f} ns simulated, {result.wall_seconds:.1f} s)")
        except simulator.SimulatorError as error:
            failures.append(testbench.name)
            print(error, file=sys.stderr)
    if failures:
        raise UserError(f"failed: {', '.join(failures)}")


def command_line() -> str:
    """What the user typed: the `make` call where there was one, else this program's arguments."""
    goal = os.environ.get("SERRANO_GOAL")
    if not goal:
        return shlex.join(["python", "-m", "scripts", *sys.argv[1:]])
    values = [f"{name}={shlex.quote(os.environ[f'SERRANO_{name}'])}" for name in VARIABLES
              if os.environ.get(f"SERRANO_{name}")]  # fmt: skip
    return " ".join(["make", goal, *values])


def stop(message: str, code: int = 1) -> NoReturn:
    """Print one line, where there is something to say, and end."""
    if message:
        print(f"error: {message}", file=sys.stderr)
    sys.exit(code)


def main() -> None:
    """Run the command line; an error that the user can put right is one line and a non-zero exit."""
    os.environ.setdefault("SERRANO_COMMAND", command_line())
    for name in VARIABLES:  # the Makefile exports what was not given as an empty text
        if not os.environ.get(f"SERRANO_{name}"):
            os.environ.pop(f"SERRANO_{name}", None)
    add_packages(sys.argv[1:])
    try:
        code = app(standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except typer.Abort:
        stop("interrupted", 130)
    except KeyboardInterrupt:
        stop("interrupted", 130)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        stop(f"disk full while writing {error.filename or 'a file'}; what was built before is untouched")
    except Exception as error:
        if hasattr(error, "format_message"):  # a usage error of the command line
            stop(" ".join(error.format_message().split()), 2)
        # The error classes that carry a finished message; anything else is a fault of ours and shows its trace.
        if type(error).__name__ not in ("UserError", "SimulatorError", "ConfigError", "SummaryError", "ModelError",
                                        "VariantError"):  # fmt: skip
            raise
        stop(str(error))
