"""Variants as components: the emitted, pipelined circuit still is the specification, with the latency it says."""

import dataclasses
import json
from pathlib import Path

import pytest
from amaranth.lib import wiring

from hw.emit import emit
from hw.numerics.dot import BlockDot, block_dot
from hw.numerics.formats import FormatSet
from hw.variants import (
    SWITCH,
    PipelinedCircuit,
    VariantBlockDot,
    VariantError,
    crossings,
    levels,
    read,
    thrifty_cuts,
    write,
)
from scripts.explore import measure, sequential, variant
from scripts.explore.judge import block, correctness
from scripts.explore.measure import Recipe
from scripts.verify import elaborate, pipeline
from scripts.verify import netlist as netlists
from scripts.verify.netlist import prune, tie


def check(component: wiring.Component, specification: str, latency: int, result: str, folder: Path) -> None:
    emit(component, "unit", folder)
    files = {path.name: path.read_text() for path in folder.glob("*.v")}
    raw, why, _ = elaborate.lower(files, "unit", sequential.LIMITS, cxxrtl=False)
    assert raw is not None, why
    tied = prune(tie(raw, {"enable": 1, "rst": 0} if "rst" in raw.inputs else {"enable": 1}))
    found = block(specification)
    bare = dataclasses.replace(
        tied, inputs={port.name: tied.inputs[port.name] for port in found.inputs}, outputs={"y": tied.outputs[result]}
    )
    assert pipeline.stages(bare) == latency
    assert correctness(pipeline.collapse(bare), found, certified=True)[0] is None


@pytest.mark.parametrize("latency", [1, 3])
def test_pipelined_multiplier(latency: int, tmp_path: Path) -> None:
    gates = variant.gates({"kind": "compressor", "rows": "booth", "tree": "dadda"}, "mul_s8")
    check(PipelinedCircuit(gates, latency), "mul_s8", latency, "y", tmp_path)


def test_thrifty_cuts_keep_the_stages_short_with_few_registers(tmp_path: Path) -> None:
    gates = variant.gates({"kind": "compressor", "tree": "three_greedy", "adder": "arrival_2"}, "mul_s8")
    counts, level = crossings(gates), levels(gates)
    deepest = max(level.values())
    longest = deepest // 3 + 3
    cuts = thrifty_cuts(gates, 3, longest)
    balanced = PipelinedCircuit(gates, 3).cuts
    assert max(b - a for a, b in zip((0, *cuts), (*cuts, deepest), strict=True)) <= longest
    assert sum(counts[cut] for cut in cuts) <= sum(counts[cut] for cut in balanced)
    unit = sequential.netlist(PipelinedCircuit(gates, 3, cuts), None)
    assert len(unit.registers) == sum(counts[cut] for cut in cuts) + 16
    check(PipelinedCircuit(gates, 3, cuts), "mul_s8", 3, "y", tmp_path)
    with pytest.raises(ValueError, match="do not hold"):
        thrifty_cuts(gates, 3, deepest // 3 - 1)


def test_figures_of_a_pipelined_unit() -> None:
    found = block("mul_s8")
    unit = sequential.netlist(PipelinedCircuit(variant.gates({"kind": "compressor"}, "mul_s8"), 2), None)
    flat = measure.measure(pipeline.collapse(unit), found, Recipe(), ("fast",))[0]
    once, again = (sequential.figures(unit, Recipe(), found, ("fast",))[0] for _ in range(2))
    assert once == again and once.flops == len(unit.registers) > 16
    assert once.area > flat.area + 5 * once.flops * 0.9 and once.delay < flat.delay
    bare = sequential.cut(unit)
    other = sequential.shuffled(bare, 1)
    assert other.cells != bare.cells and netlists.canonical(other) == netlists.canonical(bare)
    assert all(0 <= spread < 0.2 for spread in sequential.noise(unit, Recipe(), "fast", found))


def test_the_switch_changes_fitting_units_and_no_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SWITCH, raising=False)
    plain, mixed = FormatSet(["MXINT8"]), FormatSet(["MXINT8", "E4M3"])
    assert type(block_dot(plain)) is BlockDot  # the default
    gates = variant.gates({"kind": "compressor", "rows": "booth"}, "dot_s8x32")
    path = tmp_path / "dot.json"
    write(path, "dot_s8x32", (20, 41), gates, {"origin": "test"})
    monkeypatch.setenv(SWITCH, str(path))
    unit = block_dot(plain)
    assert isinstance(unit, VariantBlockDot) and unit.latency == BlockDot(plain).latency
    assert [(cell.kind, cell.inputs, cell.output) for cell in read(path).cells] == [
        (cell.kind, cell.inputs, cell.output) for cell in gates.cells
    ]
    assert type(block_dot(mixed)) is BlockDot


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": "other/1"}, "schema"),
        ({"cells": [["$_AND_", 2, 9, 5]]}, "not a gate on nets before it"),
        ({"cells": [["$_FF_", 2, 5]]}, "not a gate"),
        ({"outputs": {"y": [7]}}, "not driven"),
        ({"cuts": None}, "no circuit variant"),
    ],
)
def test_bad_variant_files_are_one_line(change: dict, message: str, tmp_path: Path) -> None:
    good = {"schema": "serrano.variant/1", "specification": "mul_s8", "cuts": [1], "inputs": {"a": [2, 3]},
            "outputs": {"y": [4]}, "cells": [["$_AND_", 2, 3, 4]]}  # fmt: skip
    path = tmp_path / "file.json"
    path.write_text(json.dumps(good))
    assert read(path).cells[0].output == 4
    path.write_text(json.dumps(good | change))
    with pytest.raises(VariantError, match=message) as raised:
        read(path)
    assert "\n" not in str(raised.value)


@pytest.mark.long
def test_block_dot_of_the_tile(tmp_path: Path) -> None:
    gates = variant.gates({"kind": "compressor", "rows": "booth", "tree": "dadda"}, "dot_s8x32")
    check(VariantBlockDot(FormatSet(["MXINT8"]), gates), "dot_s8x32", 3, "sums", tmp_path)


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
def test_what_does_not_fit_is_told() -> None:
    gates = variant.gates({"kind": "compressor"}, "mul_s4")
    with pytest.raises(ValueError, match="latency must be"):
        PipelinedCircuit(gates, 0)
    with pytest.raises(ValueError, match="a variant needs"):
        VariantBlockDot(FormatSet(["MXINT8"]), gates)
