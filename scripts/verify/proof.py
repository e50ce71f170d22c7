"""Equivalence of a circuit with a specification's Verilog text, by ABC's combinational equivalence checker."""

import dataclasses
import re
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from pyosys import libyosys

from golden.specifications import Specification
from golden.specifications.core import Port
from scripts.verify import elaborate
from scripts.verify.netlist import EVALUATE, GATES, ONE, ZERO, Netlist

ABC = Path(libyosys.__file__).resolve().parent / "yosys-abc"


@dataclasses.dataclass(frozen=True)
class Proof:
    """`equal` None: not settled within the limit. `by` says what settled it. A counterexample is per port."""

    equal: bool | None
    by: str
    counterexample: dict[str, list[int]] | None = None


def reference(specification: Specification) -> Netlist:
    """The specification's Verilog text as a netlist; raises `ValueError` if it has none."""
    if not specification.verilog:
        raise ValueError(f"{specification.name} has no Verilog text")
    ports = [f"input [{port.bits - 1}:0] {port.name}" for port in specification.inputs]
    ports += [f"output [{port.bits - 1}:0] {port.name}" for port in specification.outputs]
    text = f"module specification({', '.join(ports)});\n{specification.verilog}\nendmodule\n"
    netlist, why, _ = elaborate.lower({"specification.v": text}, "specification", cxxrtl=False)
    if netlist is None:
        raise ValueError(f"{specification.name}: {why}")
    return netlist


def _order(ports: Iterable[str], named: Sequence[Port] | None) -> list[str]:
    return [port.name for port in named] if named is not None else list(ports)


def blif(netlist: Netlist, specification: Specification | None = None) -> str:
    """The gates of a netlist for ABC, ports in the specification's order (without one, in their own)."""
    name = {ZERO: "zero", ONE: "one"}
    inputs, outputs, lines = [], [], [".names zero", ".names one", "1"]
    for port in _order(netlist.inputs, specification.inputs if specification else None):
        for index, net in enumerate(netlist.inputs[port]):
            name[net] = f"{port}_{index}"
            inputs.append(name[net])
    for cell in netlist.gates:
        name[cell.output] = f"n{cell.output}"
    for cell in netlist.gates:
        pins = len(GATES[cell.kind][0])
        lines.append(f".names {' '.join(name[net] for net in cell.inputs)} n{cell.output}")
        for row in range(1 << pins):
            values = [row >> index & 1 for index in range(pins)]
            if EVALUATE[cell.kind](*values) & 1:
                lines.append(f"{''.join(map(str, values))} 1")
    for port in _order(netlist.outputs, specification.outputs if specification else None):
        for index, net in enumerate(netlist.outputs[port]):
            lines += [f".names {name[net]} o_{port}_{index}", "1 1"]
            outputs.append(f"o_{port}_{index}")
    return "\n".join([".model m", f".inputs {' '.join(inputs)}", f".outputs {' '.join(outputs)}", *lines, ".end", ""])


def equivalent(left: Netlist, right: Netlist, specification: Specification, seconds: float) -> Proof:
    """Whether two netlists are the same function, within `seconds` of wall time."""
    with tempfile.TemporaryDirectory(prefix="serrano-cec-") as folder:
        for name, netlist in (("left", left), ("right", right)):
            (Path(folder) / f"{name}.blif").write_text(blif(netlist, specification))
        read = "".join(f"read_blif {name}.blif; strash; write_aiger {name}.aig; " for name in ("left", "right"))
        script = f"{read}&r -s left.aig; &cec -T {max(1, int(seconds))} -v right.aig"
        try:
            done = subprocess.run(
                [str(ABC), "-c", script], cwd=folder, capture_output=True, text=True, timeout=seconds + 10
            )
        except subprocess.TimeoutExpired:
            return Proof(None, f"SAT sweeping did not finish in {seconds:g} s")
        if "Networks are equivalent" in done.stdout:
            return Proof(True, "SAT sweeping (ABC &cec) against the specification")
    found = re.search(r"INPUT: a = (\d+)'h([0-9A-Fa-f]+)", done.stdout)  # the first input is the lowest bit
    bits = [int(found[2], 16) >> index & 1 for index in range(int(found[1]))] if found else []
    if len(bits) == specification.input_bits:
        example, at = {}, 0
        for port in specification.inputs:
            example[port.name] = [
                sum(bits[at + i * port.width + k] << k for k in range(port.width)) for i in range(port.elements)
            ]
            at += port.bits
        return Proof(False, "a counterexample by SAT sweeping (ABC &cec)", example)
    return Proof(None, f"SAT sweeping did not settle it in {seconds:g} s")


def prove(netlist: Netlist, specification: Specification, seconds: float) -> Proof:
    """Prove a netlist against its specification, or find a counterexample, within about `seconds`."""
    return equivalent(netlist, reference(specification), specification, seconds)
