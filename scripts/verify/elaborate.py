"""Verilog to a gate-level netlist, by Yosys in the sandbox."""

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from scripts.verify import sandbox
from scripts.verify.netlist import Netlist, parse

DRIVER = Path(__file__).resolve().parent / "yosys_driver.py"
READ = "read_verilog -sv -DSYNTHESIS"
LOWER = [
    "proc",
    "flatten",
    "opt_expr",
    "opt_clean",
    "memory",
    "opt",
    "async2sync",
    "techmap",
    "opt",
    "dfflegalize -cell $_DFF_P_ 01",
    "simplemap",
    "opt_expr",
    "opt_merge",
    "opt_clean",
]


class ElaborationError(ValueError):
    """Yosys refused the source, or a limit ended it. The message is one that the author can act on."""


def yosys(
    commands: Sequence[str],
    results: Sequence[str],
    files: Mapping[str, bytes | str] | None = None,
    limits: sandbox.Limits | None = None,
) -> dict[str, str]:
    """Run Yosys commands in the sandbox (files under /in) and return the files named in `results`.

    Raises `ElaborationError` with Yosys's own message.
    """
    job = json.dumps({"commands": list(commands), "results": list(results)})
    every = {**(files or {}), "job.json": job, "driver.py": DRIVER.read_text()}
    done = sandbox.run([sys.executable, "-I", "/in/driver.py"], every, limits or sandbox.Limits())
    if not done.ok:
        errors = [line for line in done.stderr.splitlines() if "ERROR" in line or "syntax error" in line]
        raise ElaborationError(done.reason or "; ".join(errors)[:600] or f"yosys ended with {done.returncode}")
    return json.loads(done.stdout)


def plain_name(path: str, index: int) -> str:
    """A file name for the sandbox that cannot be confused with a Yosys option or another file."""
    return f"source{index}{'.v' if path.endswith('.v') else '.sv'}"


def find_ports(
    sources: Mapping[str, bytes | str],
    top: str = "",
    parameters: Mapping[str, int] | None = None,
    limits: sandbox.Limits | None = None,
) -> tuple[str, dict[str, tuple[str, int]]]:
    """The top module and its ports, name to (direction, width). `top` empty: Yosys finds it.

    Raises `ElaborationError` where the text is not accepted, `sandbox.SandboxUnavailable` without a sandbox.
    """
    if top and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_$]*", top):
        raise ElaborationError(f"top module must be a plain identifier, not {top!r}")
    files = {plain_name(name, index): text for index, (name, text) in enumerate(sources.items())}
    change = "".join(f" -chparam {name} {value}" for name, value in (parameters or {}).items())
    if parameters and not top:
        raise ElaborationError("parameters need TOP, the module that has them")
    commands = [
        *(f"{READ} /in/{name}" for name in files),
        f"hierarchy -check {f'-top {top}' if top else '-auto-top'}{change}",
        "proc",
        "write_json ports.json",
    ]
    try:
        written = yosys(commands, ["ports.json"], files, limits)["ports.json"]
    except ElaborationError as error:
        message = str(error)
        for path, name in zip(sources, files, strict=True):
            message = message.replace(f"/in/{name}", path)
        raise ElaborationError(message) from None
    modules = json.loads(written)["modules"]
    tops = [name for name, module in modules.items() if module["attributes"].get("top")]
    if len(tops) != 1:
        raise ElaborationError(f"give TOP: the top module is one of {sorted(modules)}")
    found = modules[tops[0]]
    for name, port in found["ports"].items():
        if port["direction"] == "inout":
            raise ElaborationError(f"port {name!r} is inout; only inputs and outputs can be checked")
    name = top or tops[0]
    return name, {name: (port["direction"], len(port["bits"])) for name, port in found["ports"].items()}


def lower(
    files: Mapping[str, bytes | str], top: str, limits: sandbox.Limits | None = None, cxxrtl: bool = True
) -> tuple[Netlist | None, str, str]:
    """(netlist, why there is none, C++ for CXXRTL) of a design whose files are read in order.

    The C++ is written before anything is mapped to gates. Raises `ElaborationError`.
    """
    read = [*(f"{READ} /in/{name}" for name in files), f"hierarchy -check -top {top}"]
    text, results = "", ["netlist.json"]
    if cxxrtl:
        text = yosys([*read, "write_cxxrtl cxxrtl.cc"], ["cxxrtl.cc"], files, limits)["cxxrtl.cc"]
    try:
        lowered = yosys([*read, *LOWER, "write_json netlist.json"], results, files, limits)
        return parse(lowered["netlist.json"], top), "", text
    except ValueError as error:
        return None, str(error), text
