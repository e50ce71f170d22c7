"""Longest path of the router, in logic levels after technology-independent mapping."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from hw.emit import emit
from hw.noc.config import MeshConfig
from hw.noc.router import Router
from scripts.figures import Figure

FO4_PER_GATE = 0.9  # a 2-input gate with a fan-out of two to three, about; a proxy, not a timing


def router_levels(config: MeshConfig) -> int:
    """Gates (2-input, and inverters) on the longest path between registers of a router, after Yosys and abc."""
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        sources = " ".join(map(str, emit(Router(config), "router", directory)))
        script = [
            f"read_verilog -sv {sources}", "hierarchy -top router", "flatten", "proc", "memory_map", "opt",
            "techmap", "opt", "abc", "opt_clean", "tee -o levels.txt ltp -noff",
        ]  # fmt: skip
        program = "from pyosys import libyosys as y\nd=y.Design()\n" + "".join(
            f"y.run_pass({command!r}, d)\n" for command in script
        )
        done = subprocess.run([sys.executable, "-c", program], cwd=directory, capture_output=True, text=True)
        report = directory / "levels.txt"
        found = re.search(r"length=(\d+)", report.read_text()) if report.exists() else None
        if done.returncode or not found:
            raise RuntimeError(f"Yosys reported no longest path:\n{done.stdout[-1500:]}{done.stderr[-500:]}")
        return int(found.group(1))


def path_figure() -> Figure:
    config = MeshConfig(4, 4, payload=1, classes=3)  # the payload adds width, not depth
    levels = router_levels(config)
    return Figure(
        "noc.router_path", levels, "gates", "report",
        reference=f"about {levels * FO4_PER_GATE:.0f} FO4 at {FO4_PER_GATE} FO4 a gate",
        how="registers to registers, 2-input gates after Yosys and abc, 3 classes, 5 ports; buffer read, one level of "
        "arbitration (classes beside inputs), one crossbar column",
    )  # fmt: skip
