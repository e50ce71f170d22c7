"""Figures of the slice: how long a user waits, and what the testbench costs the simulation.

Waiting times are measured in a clone of the committed tree, so that nothing of this folder's builds helps. The long
run also measures the cold start, which downloads the environment anew, and the whole test suite.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scripts import simulator
from scripts.figures import ROOT, Figure

CHANGED = Path("hw") / "tile" / "tile.py"
TOUCH = 'm = Module(); from amaranth.hdl import Signal as S; m.d.sync += S(name="touched").eq(1)'
"""A one-line change of the tile: one more register, so that its Verilog differs."""
CORES = 2


@contextmanager
def clone() -> Iterator[Path]:
    """A clone of the committed tree in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="serrano-bench-") as folder:
        subprocess.run(["git", "clone", "-q", str(ROOT), f"{folder}/serrano"], check=True)
        yield Path(folder) / "serrano"


def seconds(folder: Path, *goals: str, environment: dict[str, str]) -> float:
    """Wall time of `make goals` in `folder` on two cores; raises SimulatorError where it fails."""
    cores = ",".join(map(str, sorted(os.sched_getaffinity(0))[:CORES]))
    pinned = ["taskset", "-c", cores] if shutil.which("taskset") else []
    begun = time.perf_counter()
    done = subprocess.run([*pinned, "make", *goals], cwd=folder, env=environment, text=True, capture_output=True)
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-8:])
        raise simulator.SimulatorError(f"'make {' '.join(goals)}' failed in a clone (exit {done.returncode})\n{tail}")
    return time.perf_counter() - begun


def outer(**changes: str) -> dict[str, str]:
    """The environment of a user's shell: nothing that the outer make or this environment's Python put there."""
    ours = ("SERRANO_", "MAKE", "MFLAGS", "VIRTUAL_ENV", "PYTHON", "CCACHE", "VERILATOR")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return kept | changes


def build_was_kept(folder: Path) -> bool:
    """Whether the last run in `folder` found its model up to date."""
    summary = json.loads((folder / "build" / "sim" / "summary.json").read_text())
    return all(stage["cached"] for stage in summary["stages"] if stage["name"] == "build")


def waiting(long: bool) -> list[Figure]:
    """Cold start and test suite (long only), a second run, and a run after a one-line change."""
    found = []
    with clone() as folder:
        environment = outer(VENV=str(ROOT / ".venv"))
        if long:
            environment = outer(VENV=".venv", PIP_NO_CACHE_DIR="1", XDG_CACHE_HOME=str(folder.parent / "cache"))
        cold = seconds(folder, "sim", environment=environment)
        if long:
            how = "fresh clone, no environment, no caches, two cores, downloads included"
            found.append(Figure("slice.cold_minutes", round(cold / 60, 2), "minutes", "<= 10", how=how))
        warm = seconds(folder, "sim", environment=environment)
        how, holds = "`make sim` again, nothing rebuilt", warm <= 60 and build_was_kept(folder)
        found.append(Figure("slice.warm_seconds", round(warm, 1), "s", "<= 60", holds, how=how))
        source = folder / CHANGED
        text, changes = re.subn(r"m = Module\(\)$", TOUCH, source.read_text(), count=1, flags=re.M)
        if changes != 1:
            raise simulator.SimulatorError(f"{CHANGED} has no line to change for slice.rebuild_seconds")
        source.write_text(text)
        rebuild = seconds(folder, "sim", environment=environment)
        how, holds = f"`make sim` after one more register in {CHANGED}", rebuild <= 180 and not build_was_kept(folder)
        found.append(Figure("slice.rebuild_seconds", round(rebuild, 1), "s", "<= 180", holds, how=how))
        source.write_text(text.replace(TOUCH, "m = Module()"))
        if long:
            test = seconds(folder, "test", environment=environment)
            how = "`make test` in the same clone, two cores, its own builds included"
            found.append(Figure("slice.test_minutes", round(test / 60, 2), "minutes", "<= 10", how=how))
    return found


def speed(seed: int = 1) -> Figure:
    """Simulation speed with cocotb in the loop against the same model, the same input, in a bare C++ loop."""
    from hw.config import DEFAULT, load
    from scripts import sim
    from tb.chip import images, model

    if code := sim.main(seed=seed):
        raise simulator.SimulatorError(f"make sim failed (exit {code}), so there is no speed to measure")
    summary = json.loads((sim.OUTPUT / "summary.json").read_text())
    with_cocotb = summary["simulation"]["cycles_per_second"]
    chip = load(DEFAULT)
    work, record = sim.OUTPUT / "work", sim.OUTPUT / "work" / "inputs.txt"
    testbench = simulator.Testbench(
        name="record", model=model(chip), module="tb.chip.test_layer", plusargs=images(chip),
        environment={"SERRANO_WORK": str(work), "SERRANO_RECORD": str(record)},
    )  # fmt: skip
    simulator.run(testbench, seed=seed, work=work)
    bare = replay(testbench, record, seed, work)
    if not bare["same"]:
        how = "not measured: the bare loop's last outputs are not those that the recorded run wrote down"
        return Figure("slice.cocotb_speed_ratio", None, "", ">= 0.8", how=how)
    rate = bare["cycles"] / bare["seconds"]
    return Figure("slice.cocotb_speed_ratio", round(with_cocotb / rate, 3), "", ">= 0.8",
                  reference=f"bare C++ loop over the same model and inputs: {rate:,.0f} cycles/s",
                  how=f"{with_cocotb:,.0f} cycles/s with cocotb in the loop, one run each, same outputs")  # fmt: skip


def replay(testbench: simulator.Testbench, record: Path, seed: int, work: Path) -> dict[str, float]:
    """Play recorded inputs to the model without Python: `cycles`, `seconds`, and whether the outputs are the `same`."""
    library = simulator.model_directory(testbench.model) / "obj" / "simulate.so"
    environment = simulator.tool_environment() | {
        "LD_PRELOAD": str(library), "SERRANO_REPLAY": str(record), "COCOTB_TOPLEVEL": testbench.model.name,
    }  # fmt: skip
    command = [sys.executable, *simulator.random_state(seed), *testbench.plusargs]
    done = subprocess.run(command, cwd=work, env=environment, text=True, capture_output=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        raise simulator.SimulatorError(f"the bare loop failed (exit {done.returncode}): {done.stderr[-300:]}")
    found: dict[str, float] = json.loads(lines[-1])
    return found


def figures(long: bool = False) -> list[Figure]:
    """The figures of `make bench-slice`; those that take minutes only with `long`."""
    return [*waiting(long), speed()]
