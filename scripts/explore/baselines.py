"""Yosys's own circuits for a specification, as candidates: what a variant is measured against."""

import functools

from golden.specifications import Specification
from scripts.explore.judge import Candidate
from scripts.verify import elaborate
from scripts.verify.netlist import parse, verilog

VARIANTS = {"yosys": "", "yosys booth": "-booth"}


@functools.lru_cache(maxsize=32)
def _netlist_text(name: str, text: str, option: str) -> str:
    commands = [
        "read_verilog -sv /in/baseline.v",
        f"hierarchy -check -top {name}",
        f"synth -noabc -flatten {option} -top {name}",
        "simplemap",
        "opt_clean",
        "write_json netlist.json",
    ]
    return elaborate.yosys(commands, ["netlist.json"], {"baseline.v": text})["netlist.json"]


def candidates(specification: Specification) -> list[tuple[str, Candidate]]:
    """(name, candidate): the specification's Verilog text through `synth`, plainly and with `-booth`."""
    if not specification.verilog:
        return []
    ports = [f"input [{port.bits - 1}:0] {port.name}" for port in specification.inputs]
    ports += [f"output [{port.bits - 1}:0] {port.name}" for port in specification.outputs]
    text = f"module {specification.name}({', '.join(ports)});\n{specification.verilog}\nendmodule\n"
    booth = specification.name.split("_")[0] in ("mul", "mac", "dot")
    result = []
    for name, option in VARIANTS.items():
        if option and not booth:
            continue
        netlist = parse(_netlist_text(specification.name, text, option), specification.name)
        result.append((name, Candidate("verilog", verilog(netlist, specification.name), f"baseline: {name}")))
    return result
