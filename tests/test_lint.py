"""The lint step itself: it sees faults, and nothing is waived for everything."""

import re
from pathlib import Path

import pytest

from scripts import lint
from scripts.simulator import Model

FAULTS = {
    "latch": ("input wire a, output reg y", "always @* if (a) y = 1'b1;", "LATCH"),
    "width": ("input wire [7:0] a, output wire [3:0] y", "assign y = a;", "WIDTHTRUNC"),
    "undriven": ("input wire a, output wire y", "wire b; assign y = a & b;", "UNDRIVEN"),
    "loop": ("input wire a, output wire y", "wire b = a ^ y; assign y = b;", "UNOPTFLAT"),
    "blocking": ("input wire a, c, output reg y", "always @(posedge c) y = a;", "BLKSEQ"),
}


def warnings(folder: Path, name: str, ports: str, body: str) -> list[str]:
    source = folder / f"{name}.v"
    source.write_text(f"module {name}({ports});\n{body}\nendmodule\n")
    return lint.verilog_warnings(Model(f"lint_{name}", None, sources=(str(source),)), top=name)


@pytest.mark.parametrize("name", FAULTS)
def test_faults_in_hand_written_verilog_are_seen(tmp_path: Path, name: str) -> None:
    ports, body, rule = FAULTS[name]
    assert any(f"-{rule}:" in line for line in warnings(tmp_path, name, ports, body))


def test_clean_verilog_is_clean(tmp_path: Path) -> None:
    assert warnings(tmp_path, "clean", "input wire a, output wire y", "assign y = ~a;") == []


def test_every_waiver_names_rule_and_file_and_stands_under_a_reason() -> None:
    reason = False
    for number, line in enumerate(lint.WAIVERS.read_text().splitlines()[1:], 2):
        if line.startswith("//"):
            reason = not re.match(r"// -+ ", line)
        elif not line:
            reason = False
        else:
            assert re.fullmatch(r'lint_off -rule \w+ -file "\*/[\w/*.]+"', line), f"line {number}: {line}"
            assert '"*/*' not in line, f"line {number} waives for too much"
            assert reason, f"line {number} has no reason above it"
