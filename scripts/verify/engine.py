"""Compile a netlist and a specification into one program that compares them on millions of operands a second.

Each gate becomes one statement on vectors of 256 or 512 bits, one operand set a bit. The expected results come from the
specification's C++ text, lane by lane, and are transposed; so neither side is derived from the other.
"""

import dataclasses
import functools
import hashlib
import json
import os
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from golden import specifications
from golden.specifications import Specification, Values
from golden.specifications.core import mask
from scripts.verify.cache import cache
from scripts.verify.netlist import FLIP_FLOP, GATES, ONE, ZERO, Netlist

HERE = Path(__file__).resolve().parent
REFERENCE = Path(specifications.__file__).resolve().parent / "reference.hpp"
EXHAUSTIVE_BITS = 32
"""Operand bits up to which every operand set is tried."""


class EngineError(RuntimeError):
    """The compiled program could not be built or run, or it disagrees with the golden function."""


@dataclasses.dataclass(frozen=True)
class Difference:
    """Operand sets of one class where circuit and specification differ, with the first of them."""

    name: str
    count: int
    inputs: dict[str, list[int]]
    want: dict[str, int]
    got: dict[str, int]


@dataclasses.dataclass(frozen=True)
class Comparison:
    """What was compared: `checked` operand sets, `wrong` of them; for bounded functions the errors in ulp."""

    checked: int
    wrong: int
    differences: tuple[Difference, ...]
    worst: float
    mean: float


@functools.lru_cache(maxsize=1)
def vector_bytes() -> int:
    """64 where this machine has AVX-512, 32 where it has AVX2, else 16."""
    try:
        flags = Path("/proc/cpuinfo").read_text()
    except OSError:
        return 16
    return 64 if "avx512f" in flags else 32 if "avx2" in flags else 16


def slots(specification: Specification) -> list[tuple[str, int, int]]:
    """(port, element, width) of every operand, in order."""
    return [(port.name, i, port.width) for port in specification.inputs for i in range(port.elements)]


def _circuit(netlist: Netlist | None, specification: Specification) -> str:
    """`dut()`: one statement a gate; inputs and outputs in the specification's order."""
    if netlist is None:
        return "static void dut(const V *, V *out) { memset(out, 0, sizeof(V) * OUT_BITS); }"
    name = {ZERO: "zero", ONE: "one"}
    position = 0
    for port in specification.inputs:
        for index, net in enumerate(netlist.inputs[port.name]):
            name[net] = f"in[{position + index}]"
        position += port.bits
    lines = []
    for cell in netlist.cells:
        if cell.kind == FLIP_FLOP:
            raise EngineError("the netlist has registers")
        name[cell.output] = f"n{cell.output}"
        text = GATES[cell.kind][1].format(*(name[net] for net in cell.inputs))
        lines.append(f"  const V n{cell.output} = {text};")
    position = 0
    for port in specification.outputs:
        for index in range(port.bits):
            lines.append(f"  out[{position + index}] = {name[netlist.outputs[port.name][index]]};")
        position += port.bits
    body = "\n".join(lines)
    return f"static void dut(const V *in, V *out) {{\n  const V zero = {{}}, one = ~zero; (void)one;\n{body}\n}}"


def _operand_text(specification: Specification, lane: str) -> str:
    lines, position = [], 0
    for port in specification.inputs:
        if port.elements > 1:
            lines.append(f"const auto {port.name} = [&](int i) {{ return {lane.format(f'{position} + i')}; }};")
        else:
            lines.append(f"const u64 {port.name} = {lane.format(position)};")
        lines.append(f"(void){port.name};")
        position += port.elements
    return " ".join(lines)


def _functions(specification: Specification) -> str:
    """`expected()`, `error_of()` and `class_of()` from the specification's C++ text."""
    declare = "".join(f"u64 {port.name} = 0; " for port in specification.outputs) + "double error = 0; (void)error; "
    store = " ".join(
        f"want[{i}][p] = {port.name} & 0x{mask(port.width):x}ull;" for i, port in enumerate(specification.outputs)
    )
    head = _operand_text(specification, "slots[{0}][p]")
    per_lane = f"{head} {declare} const u64 got = ::got[0][p]; (void)got; {specification.cpp}"
    first = specification.outputs[0].name
    return "\n".join(
        [
            f"static void expected() {{ for (int p = 0; p < LANES; p++) {{ {per_lane} {store} }} }}",
            f"static double error_of(int p) {{ {per_lane} (void){first}; return error; }}",
            "static int class_of(const u64 *operand, u64 want, u64 got) { (void)want; (void)got; "
            f"{_operand_text(specification, 'operand[{0}]')} return {specification.classify}; }}",
        ]
    )


def source(netlist: Netlist | None, specification: Specification) -> str:
    """The C++ program, one text."""
    operand = slots(specification)
    widths = [width for _, _, width in operand]
    offsets = [sum(widths[i + 1 :]) for i in range(len(widths))]
    outputs = specification.outputs
    bound = specification.bound

    def table(name: str, values: list[int]) -> str:
        return f"static const int {name}[] = {{{', '.join(map(str, values))}}};"

    return "\n".join(
        [
            REFERENCE.read_text().replace("#pragma once", ""),
            "#include <cstring>",
            "typedef uint32_t u32;",
            f"enum {{ LANES = {8 * vector_bytes()}, N_SLOTS = {len(operand)}, N_OUT = {len(outputs)}, "
            f"IN_BITS = {sum(widths)}, OUT_BITS = {sum(port.bits for port in outputs)}, "
            f"BOUNDED = {int(bound is not None)} }};",
            f"static const double BOUND = {bound or 0};",
            f"typedef u32 V __attribute__((vector_size({vector_bytes()})));",
            table("SLOT_WIDTH", widths),
            table("SLOT_OFFSET", offsets),
            table("SLOT_BIT", [sum(widths[:i]) for i in range(len(widths))]),
            table("OUT_WIDTH", [port.bits for port in outputs]),
            "alignas(64) static u64 slots[N_SLOTS][LANES], want[N_OUT][LANES], got[N_OUT][LANES];",
            _circuit(netlist, specification),
            _functions(specification),
            (HERE / "engine.cpp").read_text(),
        ]
    )


class Engine:
    """One compiled program. `netlist` None makes one that only judges results from elsewhere.

    Raises `EngineError` if g++ fails.
    """

    def __init__(self, netlist: Netlist | None, specification: Specification, optimise: str = "-O2") -> None:
        self.specification = specification
        text = source(netlist, specification)
        digest = hashlib.sha256(f"{optimise}{vector_bytes()}{text}".encode()).hexdigest()[:32]
        self.program = cache() / digest
        if not self.program.exists():
            self._build(text, optimise)

    def _build(self, text: str, optimise: str) -> None:
        with tempfile.TemporaryDirectory(dir=self.program.parent) as work:
            file = Path(work) / "engine.cpp"
            file.write_text(text)
            command = ["g++", "-std=gnu++17", optimise, "-march=native", "-w", "-o", f"{work}/engine", str(file)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=600)
            if done.returncode:
                raise EngineError(f"g++ failed: {done.stderr[:2000]}")
            os.replace(f"{work}/engine", self.program)

    def _run(self, *arguments: str, timeout: float) -> dict:
        done = subprocess.run([str(self.program), *arguments], capture_output=True, text=True, timeout=timeout)
        if done.returncode:
            raise EngineError(f"the comparison program ended with {done.returncode}: {done.stderr[:500]}")
        return json.loads(done.stdout)

    def exhaustive(self, jobs: int = 1, timeout: float = 600) -> Comparison:
        """Compare on every operand set; at most `EXHAUSTIVE_BITS` operand bits."""
        bits = self.specification.input_bits
        if bits > EXHAUSTIVE_BITS:
            raise ValueError(f"{bits} operand bits are too many to try all; at most {EXHAUSTIVE_BITS}")
        total = max(1 << bits, 8 * vector_bytes())
        jobs = jobs if total >= 1 << 24 else 1
        step = total // jobs // 4096 * 4096 if jobs > 1 else total
        parts = [(i * step, step if i < jobs - 1 else total - i * step) for i in range(jobs)]
        with ThreadPoolExecutor(jobs) as pool:
            results = list(pool.map(lambda part: self._run("exhaustive", *map(str, part), timeout=timeout), parts))
        comparison = self._merge(results)
        if total > 1 << bits:  # fewer operand sets than lanes: each was tried several times
            repeats = total >> bits
            smaller = [dataclasses.replace(d, count=d.count // repeats) for d in comparison.differences]
            comparison = dataclasses.replace(
                comparison, checked=1 << bits, wrong=comparison.wrong // repeats, differences=tuple(smaller)
            )
        return comparison

    def random(self, seed: int, vectors: int, timeout: float = 600) -> Comparison:
        """Compare on at least `vectors` operand sets, uniform and near corners, made from `seed`."""
        batches = -(-vectors // (8 * vector_bytes()))
        return self._merge([self._run("random", str(seed), str(batches), timeout=timeout)])

    def judge(self, inputs: Values, got: Values) -> Comparison:
        """Compare results from elsewhere; the same arrays as a golden function takes and gives."""
        columns = []
        for port in self.specification.inputs:
            columns.append(np.asarray(inputs[port.name], np.uint64).reshape(-1, port.elements))
        count = len(columns[0])
        for port in self.specification.outputs:
            columns.append(np.asarray(got.get(port.name, np.zeros(count)), np.uint64).reshape(-1, 1))
        with tempfile.NamedTemporaryFile(prefix="serrano-judge-") as file:
            file.write(np.ascontiguousarray(np.hstack(columns)).tobytes())
            file.flush()
            return self._merge([self._run("file", file.name, timeout=300)])

    def _merge(self, results: list[dict]) -> Comparison:
        specification = self.specification
        operand = slots(specification)
        found: dict[int, Difference] = {}
        for result in results:
            self._compare_with_golden([int(text, 16) for text in result["samples"]])
            for key, entry in result["classes"].items():
                inputs: dict[str, list[int]] = {}
                for (name, _, _), text in zip(operand, entry["inputs"], strict=True):
                    inputs.setdefault(name, []).append(int(text, 16))
                names = [port.name for port in specification.outputs]
                want, got = (
                    {name: int(text, 16) for name, text in zip(names, entry[side], strict=True)}
                    for side in ("want", "got")
                )
                earlier = found.get(int(key))
                count = entry["count"] + (earlier.count if earlier else 0)
                first = earlier or Difference(specification.classes[int(key)], 0, inputs, want, got)
                found[int(key)] = dataclasses.replace(first, count=count)
        checked = sum(result["checked"] for result in results)
        mean = sum(result["mean"] * result["checked"] for result in results) / max(checked, 1)
        return Comparison(
            checked,
            sum(result["wrong"] for result in results),
            tuple(found[key] for key in sorted(found)),
            max(result["worst"] for result in results),
            mean,
        )

    def _compare_with_golden(self, samples: list[int]) -> None:
        """The two statements of the specification, NumPy and C++, must agree; raises `EngineError`."""
        specification = self.specification
        width = len(slots(specification)) + len(specification.outputs)
        rows = np.array(samples, np.uint64).reshape(-1, width)
        inputs, at = {}, 0
        for port in specification.inputs:
            part = rows[:, at : at + port.elements]
            inputs[port.name] = part if port.elements > 1 else part[:, 0]
            at += port.elements
        golden = specification.function(inputs)
        for index, port in enumerate(specification.outputs):
            unequal = np.flatnonzero(golden[port.name] != rows[:, at + index])
            if len(unequal):
                row = rows[unequal[0]]
                raise EngineError(
                    f"{specification.name}: golden function and mirror differ on {len(unequal)} of {len(rows)} "
                    f"samples, first {[hex(v) for v in row]}: golden {int(golden[port.name][unequal[0]]):#x}"
                )
