"""The saved view of a waveform: every port of the top, streams under their own headings."""

from pathlib import Path

import pytest

from scripts import simulator, waveforms
from scripts.simulator import Model, SimulatorError

VERILOG = """
module inner(a);
  input [3:0] a;
endmodule

module top(clk, i__payload, i__valid, \\level );
  input clk;
  wire clk;
  input [15:0] i__payload;
  input i__valid;
  output [1:0] level;
  reg [1:0] level = 2'h0;
endmodule
"""


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Model:
    monkeypatch.setattr(simulator, "BUILD", tmp_path)
    folder = tmp_path / "models" / "top-waves"
    folder.mkdir(parents=True)
    (folder / "top.v").write_text(VERILOG)
    return Model("top")


def test_ports_are_those_of_the_top(model: Model) -> None:
    assert waveforms.ports(model) == ["clk", "i__payload[15:0]", "i__valid", "level[1:0]"]


def test_view_groups_streams(model: Model, tmp_path: Path) -> None:
    lines = waveforms.view_text(tmp_path / "dump.vcd", "top", waveforms.ports(model)).splitlines()
    assert lines[0] == f'[dumpfile] "{tmp_path / "dump.vcd"}"'
    assert lines[3:] == ["top.clk", "top.level[1:0]", "-i", "top.i__payload[15:0]", "top.i__valid"]


def test_model_without_its_top(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulator, "BUILD", tmp_path)
    with pytest.raises(SimulatorError, match="no source of model 'lost' has its top module"):
        waveforms.ports(Model("lost"))


def test_newest_dump(tmp_path: Path) -> None:
    assert waveforms.newest_dump(tmp_path) is None
    (tmp_path / "dump.vcd").touch()
    assert waveforms.newest_dump(tmp_path) == tmp_path / "dump.vcd"
