"""Runs cases at full speed, compares every bit, writes cycles and counts to the file that ATTENTION_RESULT names."""

import dataclasses
import json
import os
from pathlib import Path

import cocotb
import numpy as np
from cocotb.triggers import RisingEdge

from hw.tile.issue import IssueStalls
from tb.common.stream import decode
from tb.vector_attention import SIZE
from tb.vector_attention.environment import SEED, TB, Case, prepare


async def count(dut, totals):
    """Adds up the array's signals, cycle by cycle, while a command runs."""
    while True:
        await RisingEdge(dut.clk)
        if int(dut.busy.value):
            totals["issue"] += int(dut.issuing.value)
            totals["block_dots"] += int(dut.block_dots.value)
            for name, bit in decode(IssueStalls, int(dut.stalls.value)).items():
                totals[f"stall_{name}"] = totals.get(f"stall_{name}", 0) + bit


@cocotb.test()
async def measure(dut):
    cases = [(Case(**fields), repeat) for fields, repeat in json.loads(os.environ["ATTENTION_CASES"])]
    tb = TB(dut, SIZE.config, SIZE.map)
    await tb.reset()
    results = []
    for case, repeat in cases:
        # Two sets of data in turn, as for the key heads of a layer; the last command's tail is counted.
        prepared = [prepare(case, np.random.default_rng(SEED + slot), slot) for slot in range(min(repeat, 2))]
        for one in prepared:
            await tb.set_up(one)
        queued = [prepared[i % 2] for i in range(repeat)]
        totals = {"issue": 0, "block_dots": 0}
        counter = cocotb.start_soon(count(dut, totals))
        found = await tb.run(*queued)
        counter.cancel()
        for one, rows in zip(queued, found, strict=True):
            assert (rows == one.expected).all(), f"{case}: wrong result"
        counts = {"repeat": repeat, "cycles": tb.cycles, "granules": tb.granules_read}
        results.append(dataclasses.asdict(case) | totals | counts)
    Path(os.environ["ATTENTION_RESULT"]).write_text(json.dumps(results))
