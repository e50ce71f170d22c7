"""Variants as components: the emitted, pipelined circuit still is the specification, with the latency it says."""

import dataclasses
from pathlib import Path

import pytest
from amaranth.lib import wiring

from hw.emit import emit
from hw.numerics.formats import FormatSet
from hw.variants import PipelinedCircuit, VariantBlockDot
from scripts.explore import variant
from scripts.explore.judge import block, correctness
from scripts.verify import elaborate, pipeline
from scripts.verify.netlist import prune, tie


def check(component: wiring.Component, specification: str, latency: int, result: str, folder: Path) -> None:
    emit(component, "unit", folder)
    files = {path.name: path.read_text() for path in folder.glob("*.v")}
    raw, why, _ = elaborate.lower(files, "unit", cxxrtl=False)
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
