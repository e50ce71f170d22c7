"""Waveforms of a testbench: run it with tracing and write a saved view for GTKWave beside the dump."""

import re
from collections.abc import Iterable
from pathlib import Path

from scripts import simulator
from scripts.simulator import Model, Result, SimulatorError, Testbench

STREAM = re.compile(r"(.*?)__?(payload|valid|ready|data|last)\b.*")
DECLARATION = re.compile(
    r"^\s*(?:input|output)\s+(?:wire|reg|logic)?\s*(?:signed\s*)?(?:\[(\d+):(\d+)\]\s*)?(\\\S+|\w+)\s*[;,)]?\s*$", re.M
)


def capture(testbench: Testbench, seed: int = 1, test: str | None = None) -> list[Result]:
    """Run `testbench` with tracing, write the view, say where both are. Raises SimulatorError where a test fails."""
    if not simulator.fst_available():
        print("waves: VCD, for FST (smaller, faster) install: apt-get install liblz4-dev zlib1g-dev")
    try:
        return simulator.check(testbench, seed, test, waves=True)
    finally:
        dump = newest_dump(simulator.BUILD / "runs" / testbench.name)
        if dump is not None:
            view = dump.with_suffix(".gtkw")
            view.write_text(view_text(dump, testbench.model.name, ports(testbench.model)))
            print(f"waves: {dump}\n  open: gtkwave {dump} {view}   or: surfer {dump}")


def newest_dump(work: Path) -> Path | None:
    """The newest FST or VCD in a run's folder, None where there is none."""
    dumps = [*work.glob("*.fst"), *work.glob("*.vcd")]
    return max(dumps, key=lambda path: path.stat().st_mtime, default=None)


def ports(model: Model) -> list[str]:
    """Names of the top module's ports as a dump has them, vectors with their range."""
    folder = simulator.model_directory(model, waves=True)
    sources = [folder / f"{model.name}.v", *(simulator.ROOT / source for source in model.sources)]
    for source in sources:
        if source.exists() and (
            body := re.search(rf"^module {model.name}\b.*?^endmodule", source.read_text(), re.S | re.M)
        ):
            return [
                name.lstrip("\\") + (f"[{high}:{low}]" if high else "")
                for high, low, name in DECLARATION.findall(body.group(0))
            ]
    raise SimulatorError(f"waves: no source of model '{model.name}' has its top module")


def view_text(dump: Path, top: str, names: Iterable[str]) -> str:
    """A GTKWave save file: clock and reset first, then each stream under its own heading."""
    groups: dict[str, list[str]] = {}
    for name in names:
        stream = STREAM.fullmatch(name.split("[")[0])
        groups.setdefault(stream[1] if stream else "", []).append(name)
    lines = [f'[dumpfile] "{dump.resolve()}"', "[timestart] 0", "[sst_expanded] 1"]
    for heading in sorted(groups):
        lines += [f"-{heading}"] if heading else []
        lines += [f"{top}.{name}" for name in sorted(groups[heading])]
    return "\n".join(lines) + "\n"
