"""Area, delay and toggle energy of a netlist by one pinned Yosys/ABC recipe.

Three flavours of the recipe give three points: `fast`, `balanced` and `small`. All are deterministic; the recipe's hash
covers the scripts, the library and the programs, so that figures of different tools never meet in one archive.
"""

import dataclasses
import functools
import hashlib
import re
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from pyosys import libyosys

from golden.specifications import Specification, Values
from scripts.explore import library, operands
from scripts.verify.netlist import Netlist
from scripts.verify.ports import to_bits
from scripts.verify.proof import ABC, blif

SIZE = "topo; buffer -c -N 12; topo; upsize; dnsize; topo; stime"
FLAVOURS = {
    "fast": f"strash; dch; map -B 0.9; {SIZE}",
    "balanced": f"strash; &get -n; &fraig -x; &put; scorr; dc2; dch -f; strash; &get -n; &dch -f; &nf; &put; {SIZE}",
    "small": f"strash; ifraig; scorr; dc2; dch -f; amap; {SIZE}",
}
#: For circuits with more operand bits than `LARGE_BITS`: the same without SAT-based choices, which take hours there.
LARGE_FLAVOURS = {
    "fast": f"strash; balance; map -B 0.9; {SIZE}",
    "balanced": f"strash; dc2; map -a; {SIZE}",
    "small": f"strash; dc2; amap; {SIZE}",
}
LARGE_BITS = 128
SECONDS = 300
STEPS = 1024
"""Operand sets of the toggle count."""


class MeasureError(RuntimeError):
    """ABC gave no figures; the message holds the end of its output."""


@dataclasses.dataclass(frozen=True)
class Point:
    """Figures of one flavour. Area in gate equivalents (or the given library's unit), delay in ps, energy in fJ for
    one operation (None for a given library: its capacitances are not read)."""

    flavour: str
    area: float
    delay: float
    energy: float | None


@dataclasses.dataclass(frozen=True)
class Recipe:
    """What measures: the flavours' scripts and a library (built in, or Liberty text given by the user)."""

    liberty: str = ""

    @property
    def library(self) -> str:
        return self.liberty or _built_in()

    def probe(self) -> None:
        """Try the library on one gate; raises `MeasureError` where it cannot be used."""
        if not self.liberty:
            return
        gate = ".model m\n.inputs a b\n.outputs y\n.names a b y\n11 1\n.end\n"
        try:
            synthesise(gate, None, self, True, ("small",))
        except MeasureError as error:
            raise MeasureError(
                "the Liberty library gives no figures for one AND gate: is it a cell library?"
            ) from error

    @functools.cached_property
    def hash(self) -> str:
        """Identity of script, library, operands and programs, 16 hex digits."""
        parts = [
            repr((FLAVOURS, LARGE_FLAVOURS, LARGE_BITS)),
            self.library,
            str(STEPS),
            operands.IDENTITY,
            *tool_hashes().values(),
        ]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


@functools.lru_cache(maxsize=1)
def _built_in() -> str:
    return library.liberty()


@functools.lru_cache(maxsize=1)
def tool_hashes() -> dict[str, str]:
    """SHA-256 of the programs whose results are kept."""
    paths = {"yosys-abc": ABC, "libyosys": Path(libyosys.__file__).resolve()}
    return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in paths.items()}


def measure(
    netlist: Netlist, specification: Specification, recipe: Recipe, flavours: tuple[str, ...] = tuple(FLAVOURS)
) -> list[Point]:
    """One point a flavour; raises `MeasureError`."""
    drive = None if recipe.liberty else drive_bits(specification, operands.sequence(specification, STEPS))
    large = specification.input_bits > LARGE_BITS
    return synthesise(blif(netlist, specification), drive, recipe, large, flavours)


def synthesise(
    circuit: str, drive: dict[str, int] | None, recipe: Recipe, large: bool, flavours: tuple[str, ...] = tuple(FLAVOURS)
) -> list[Point]:
    """One point a flavour of a combinational circuit in BLIF; raises `MeasureError`.

    `drive`: what its inputs see (one Python integer each, one bit a step); without it no energy is counted. `large`:
    with the cheaper scripts.
    """
    with tempfile.TemporaryDirectory(prefix="serrano-abc-") as folder:
        place = Path(folder)
        (place / "library.lib").write_text(recipe.library)
        (place / "circuit.blif").write_text(circuit)
        scripts = LARGE_FLAVOURS if large else FLAVOURS
        runs = "; ".join(f"read_blif circuit.blif; {scripts[name]}; write_blif {name}.blif" for name in flavours)
        try:
            done = subprocess.run(
                [str(ABC), "-c", f"read_lib -w library.lib; {runs}"],
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=SECONDS,
                env={"LC_ALL": "C"},
            )
        except subprocess.TimeoutExpired as error:
            raise MeasureError(f"ABC took longer than {SECONDS} s") from error
        found = re.findall(r"Area\s*=\s*([\d.]+).*?Delay\s*=\s*([\d.]+)", done.stdout)
        if len(found) != len(flavours):
            raise MeasureError(f"ABC gave {len(found)} figures instead of {len(flavours)}: {done.stdout[-400:]}")
        points = []
        for name, (area, delay) in zip(flavours, found, strict=True):
            energy = None if drive is None else toggle_energy((place / f"{name}.blif").read_text(), drive)
            points.append(Point(name, round(float(area), 2), round(float(delay), 2), energy))
    return points


@functools.lru_cache(maxsize=1)
def _functions() -> dict[str, tuple]:
    """Cell name to (input pins, function on Python integers)."""
    result = {}
    for name, (_, function, _, _, _) in library.cells().items():
        pins = sorted(set(function) & set("ABCD"))
        text = function.replace("!", "~").replace("*", "&").replace("+", "|")
        result[name] = (pins, eval(f"lambda {','.join(pins)}: {text}"))  # the text comes from the built-in library
    return result


def toggle_energy(mapped: str, drive: dict[str, int]) -> float:
    """fJ for one operation: toggles of every net over the operand sequence times its capacitance times V^2 / 2.

    Zero-delay toggles: glitches are not counted. `mapped` is BLIF with cells of the built-in library, `drive` what its
    inputs see.
    """
    ones = (1 << STEPS) - 1
    state = {**drive, "0": 0, "1": ones}
    cells, functions = library.cells(), _functions()
    load: dict[str, float] = {}
    for line in mapped.replace("\\\n", " ").splitlines():
        words = line.split()
        if not words or words[0] == ".names":
            if words and len(words) == 2:
                state.setdefault(words[1], 0)  # a constant; it never toggles whatever its value
            elif words and len(words) == 3:
                state[words[2]] = state[words[1]]
            continue
        if words[0] != ".gate":
            continue
        pins = dict(word.split("=") for word in words[2:])
        names, function = functions[words[1]]
        _, _, capacitance, parasitic, strength = cells[words[1]]
        state[pins["Y"]] = function(*(state[pins[name]] for name in names)) & ones
        load[pins["Y"]] = load.get(pins["Y"], 0.0) + parasitic * strength
        for name in names:
            load[pins[name]] = load.get(pins[name], 0.0) + capacitance
    total = sum(toggles(state[net]) * load[net] for net in load)
    return round(total / (STEPS - 1) * library.CAPACITANCE_FF * library.VOLTAGE**2 / 2, 3)


def toggles(values: int) -> int:
    """Changes of a net from step to step over the operand sequence."""
    return ((values ^ (values >> 1)) & ((1 << (STEPS - 1)) - 1)).bit_count()


def drive_bits(specification: Specification, values: Values) -> dict[str, int]:
    """Input nets of the BLIF, one Python integer each, one bit a step."""
    state = {}
    for port in specification.inputs:
        packed = np.packbits(to_bits(values[port.name], port).T, axis=1, bitorder="little")
        for index, row in enumerate(packed):
            state[f"{port.name}_{index}"] = int.from_bytes(row.tobytes(), "little")
    return state


__all__ = ["FLAVOURS", "MeasureError", "Point", "Recipe", "measure", "synthesise", "tool_hashes"]
