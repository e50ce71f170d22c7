"""Proof of a safety property for all time: Amaranth to AIGER (pyosys) to the `pdr` engine of yosys-abc."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pyosys
from amaranth.hdl import Const, Module, ResetSignal, Signal, Value
from amaranth.lib import wiring

from hw.emit import emit

__all__ = ["Verdict", "prove", "require"]

ABC = Path(pyosys.__file__).with_name("yosys-abc")
# Merging what is equal in every reachable state makes a proof of 120 s one of 6 s, and now and then one of 15 s one of
# more than 120 s. So each way gets a part of the time, one after the other.
PLAIN, MERGED = "strash", "strash; scorr; dc2; scorr; dc2"
ATTEMPTS = ((PLAIN, 0.25), (MERGED, 0.5), (PLAIN, 1.0))  # preparation, share of the time


@dataclass(frozen=True)
class Verdict:
    """`holds`: True proven for all time, False refuted, None undecided in the time limit. `registers`: state bits."""

    holds: bool | None
    registers: int
    text: str


def require(m: Module, bad: Signal, holds: Value, assume: Value = Const(1)) -> None:
    """Drive `bad`: high where `holds` is low, every assumption has held so far, and there is no reset. All 1 bit."""
    broken, fine = Signal(reset_less=True), Signal()
    m.d.comb += fine.eq(assume & ~ResetSignal())
    m.d.sync += broken.eq(broken | ~fine)
    m.d.comb += bad.eq(~holds & fine & ~broken)


def _run(command: list[str], directory: Path, seconds: float) -> str:
    try:
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired as error:
        return error.stdout.decode() if isinstance(error.stdout, bytes) else (error.stdout or "timeout")
    if done.returncode:
        raise RuntimeError(f"{Path(command[0]).name} failed:\n{(done.stdout + done.stderr)[-2000:]}")
    return done.stdout + done.stderr


def prove(component: wiring.Component, seconds: int = 120) -> Verdict:
    """Prove that output `bad` of `component` is never high, from its initial state, for every sequence of inputs.

    The component states its assumptions itself: `bad` is low from the first cycle on in which one is broken. `seconds`
    is for the last of several attempts. Raises RuntimeError when a tool did not do its part, so that a proof that
    never ran cannot pass.
    """
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        files = emit(component, "harness", directory)
        others = "".join(f" {path}" for path in files)
        script = [
            f"read_verilog -sv{others}", "hierarchy -top harness", "flatten", "proc", "memory_map", "opt -full",
            "techmap", "opt -full", "dffunmap", "techmap", "opt_clean", "setundef -undriven -zero", "aigmap",
            "write_aiger -zinit harness.aig",
        ]  # fmt: skip
        program = "from pyosys import libyosys as y\nd=y.Design()\n" + "".join(
            f"y.run_pass({command!r}, d)\n" for command in script
        )
        log = _run([sys.executable, "-c", program], directory, 300)
        if not (directory / "harness.aig").exists():
            raise RuntimeError(f"no AIGER came out of Yosys:\n{log[-2000:]}")
        header = (directory / "harness.aig").read_bytes().split(b"\n", 1)[0].decode().split()
        for preparation, share in ATTEMPTS:
            limit = max(1, round(seconds * share))
            command = f"read_aiger harness.aig; {preparation}; pdr -T {limit}"
            verdict = _verdict(_run([str(ABC), "-c", command], directory, limit + 60), int(header[3]))
            if verdict.holds is not None:
                break
    return verdict


def _verdict(found: str, registers: int) -> Verdict:
    if re.search(r"Property proved", found):
        return Verdict(True, registers, found)
    if re.search(r"was asserted in frame|Output \d+ of miter", found):
        return Verdict(False, registers, found)
    if "gap" in found or "timeout" in found.lower() or "Reached" in found or "undecided" in found.lower():
        return Verdict(None, registers, found)
    raise RuntimeError(f"yosys-abc said nothing about the property:\n{found[-2000:]}")
