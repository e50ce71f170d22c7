"""Reads a stream from every channel in lockstep; writes the clocks that it took to HBM_RESULT."""

from __future__ import annotations

import json
import os
from pathlib import Path

import cocotb
from cocotb.triggers import ClockCycles, First, RisingEdge, Timer

from tb.common.clock import start_clock


@cocotb.test()
async def run_channels(dut) -> None:
    granules = int(os.environ["HBM_GRANULES"])
    start_clock(dut.clk)
    dut.rst.value = 1
    dut.granules.value = granules
    await ClockCycles(dut.clk, 4)
    dut.rst.value = 0
    await First(RisingEdge(dut.done), Timer(40 * granules, "ns"))
    assert int(dut.done.value), "the streams did not end"
    assert int(dut.wrong.value) == 0 and int(dut.violation.value) == 0
    Path(os.environ["HBM_RESULT"]).write_text(json.dumps(int(dut.clocks.value)))
