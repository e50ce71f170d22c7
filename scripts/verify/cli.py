"""`python -m scripts verify`: check a circuit against a specification. Values may come from `SERRANO_*` variables."""

import os
import shlex
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table

from golden import specifications
from scripts.verify import sandbox, verdict
from scripts.verify.check import Effort, read_sources, verify

app = typer.Typer(help="Check a Verilog circuit against an arithmetic specification.", no_args_is_help=False)
DEFAULT_FOLDER = Path("build") / "verify"


def _fail(text: str) -> None:
    typer.echo(f"verify: {text}", err=True)
    raise typer.Exit(verdict.EXIT[verdict.Verdict.ERROR])


@app.callback(invoke_without_command=True)
def run(
    context: typer.Context,
    dut: str = typer.Option("", envvar="SERRANO_DUT", help="Verilog file, or several with spaces between them."),
    spec: str = typer.Option("", envvar="SERRANO_SPEC", help="Name of a specification; `list` shows them."),
    top: str = typer.Option("", envvar="SERRANO_TOP", help="Top module, if there are several."),
    map_file: str = typer.Option("", "--map", envvar="SERRANO_MAP", help="TOML file that says which port is which."),
    seed: int = typer.Option(1, help="Seed of the random operands."),
    random: int = typer.Option(1 << 24, help="Random operand sets where not all can be tried."),
    seconds: float = typer.Option(20.0, help="Limit of an equivalence proof."),
    jobs: int = typer.Option(1, help="Processes of an exhaustive test."),
    out: Path = typer.Option(DEFAULT_FOLDER, help="Folder for summary.json, junit.xml and the waveform."),
) -> None:
    """Check DUT against SPEC.

    Exit code: 0 right, 1 wrong, 3 wrong in a corner only, 4 simulators disagree, 5 not judged.
    """
    if context.invoked_subcommand is not None:
        return
    if not dut or not spec:
        _fail("give DUT (a Verilog file) and SPEC (`python -m scripts verify list`)")
    try:
        sources = read_sources([Path(part) for part in shlex.split(dut)])
        map_text = Path(map_file).read_text() if map_file else ""
        specification = specifications.find(spec)
    except OSError as error:
        _fail(f"{error.filename}: {error.strerror}")
    except UnicodeDecodeError:
        _fail(f"{dut}: not a text file")
    except ValueError as error:
        _fail(str(error))
    folder = out / f"{Path(shlex.split(dut)[0]).stem}-{spec}"
    try:
        report = verify(sources, specification, top, map_text, folder, Effort(seed, random, seconds, jobs))
    except sandbox.SandboxUnavailable as error:
        _fail(f"refused: {error}")
    used = (
        specification
        if not report.differences
        else specification.reduced(
            {port.name for port in specification.inputs if port.name in report.differences[0].inputs}
            | set(report.differences[0].want)
        )
    )
    verdict.write(report, used, folder)
    typer.echo(verdict.as_text(report, used))
    typer.echo(f"  written: {os.path.join(folder, 'summary.json')}, junit.xml")
    raise typer.Exit(report.exit_code)


@app.command("list")
def list_specifications(word: str = typer.Argument("", help="Show only names that contain this.")) -> None:
    """The catalogue of specifications; integer families take any width."""
    table = Table("name", "function", "operands", "result")
    for name in specifications.catalogue():
        if word in name:
            found = specifications.find(name)
            inputs = ", ".join(f"{port.name}[{port.bits}]" for port in found.inputs if not port.optional)
            table.add_row(name, found.title, inputs, f"{found.outputs[0].name}[{found.outputs[0].bits}]")
    Console().print(table)
