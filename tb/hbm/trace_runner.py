"""Runs a trace to its end; results go to the file named by HBM_RESULT as JSON."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import cocotb
from cocotb.triggers import First, RisingEdge, Timer

from hw.hbm.bench import TraceBench
from hw.hbm.interface import Counters
from tb.common.clock import start_clock


def counters(value: int) -> dict[str, int]:
    return {name: value >> field.offset & 0xFFFFFFFF for name, field in Counters.as_shape()}


@cocotb.test()
async def run_trace(dut) -> None:
    start_clock(dut.clk)
    dut.rst.value = 1
    await Timer(5, "ns")
    dut.rst.value = 0
    begin = time.perf_counter()
    limit = int(os.environ.get("HBM_LIMIT", "20000000"))
    await First(RisingEdge(dut.done), Timer(limit, "ns"))
    wall = time.perf_counter() - begin
    values = counters(int(dut.counters.value))
    result = {name: int(getattr(dut, name).value) for name in TraceBench.RESULTS}
    result |= {"done": int(dut.done.value), "violation": int(dut.violation.value), "wall": wall, "counters": values}
    Path(os.environ["HBM_RESULT"]).write_text(json.dumps(result))
    assert result["done"], f"The trace did not end within {limit} clocks: {result}"
    assert not result["wrong"], f"Wrong data, or data that nobody waits for: {result}"
    assert not result["violation"], "A timing rule was broken"
    assert result["reads"], "Nothing was read"
