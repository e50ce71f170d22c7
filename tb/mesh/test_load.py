"""Runs load points on a mesh with hardware traffic generators; results go to RESULTS as JSON, or are checked here."""

import json
import os
from pathlib import Path

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, Timer

from tb.mesh.load import PATTERNS

SEED = int(os.environ.get("SERRANO_SEED", "1"))
DEFAULT = [{"pattern": "uniform", "load": 0.3, "length": length} for length in (1, 4)]
POINTS = json.loads(os.environ.get("POINTS", json.dumps(DEFAULT)))


async def measure(dut, nodes, pattern, load, length, warm=2000, cycles=8000, drain=400):
    """One point, from reset. `load` in flits a node and cycle. Returns what arrived, per node and cycle."""
    dut.rst.value, dut.measure.value = 1, 0
    dut.rate.value = round(65536 * load / length)
    dut.length.value, dut.pattern.value, dut.seed.value = length, PATTERNS.index(pattern), SEED
    await ClockCycles(dut.clk, 2)
    dut.rst.value = 0
    await Timer(warm, "ns")
    dut.measure.value = 1
    await Timer(cycles, "ns")
    dut.measure.value = 0
    await Timer(drain, "ns")
    born, packets = int(dut.born.value), int(dut.packets.value)
    assert int(dut.errors.value) == 0, f"{int(dut.errors.value)} flits were lost, out of order or at the wrong node"
    assert int(dut.flits.value), "nothing arrived"
    return {
        "pattern": pattern, "load": load, "length": length,
        "offered": born * length / cycles / nodes,
        "accepted": int(dut.flits.value) / cycles / nodes,
        "arrived": packets / max(born, 1),
        "latency": int(dut.latency.value) / packets if packets else None,
    }  # fmt: skip


@cocotb.test()
async def test_points(dut):
    """Every flit that arrives is the next of its flow; with the default points, all of them arrive."""
    cocotb.start_soon(Clock(dut.clk, 1, "ns").start())
    nodes = int(os.environ.get("NODES", "16"))
    results = [await measure(dut, nodes, **point) for point in POINTS]
    if "RESULTS" in os.environ:
        Path(os.environ["RESULTS"]).write_text(json.dumps(results))
    else:
        assert all(result["arrived"] == 1 for result in results), results
