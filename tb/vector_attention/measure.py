"""Runs cases at full speed, compares every bit, writes cycles and counts to the file that ATTENTION_RESULT names."""

import dataclasses
import json
import os
from collections import Counter
from pathlib import Path

import cocotb
import numpy as np
from cocotb.triggers import RisingEdge

from hw.tile.issue import IssueStalls
from hw.vector.attention import VectorBusy
from tb.common.stream import decode
from tb.vector_attention import SIZE
from tb.vector_attention.environment import CHUNKS, SEED, TB, Case, Prepared, prepare, prepare_prompt


async def count(dut, totals):
    """Adds up where the cycles of array, slices and memory go while commands run."""
    stalls = [decode(IssueStalls, bits) for bits in range(1 << 4)]
    vector = [decode(VectorBusy, bits) for bits in range(1 << 2)]
    edge = RisingEdge(dut.clk)
    while True:
        await edge
        if not int(dut.busy.value):
            continue
        totals["issue"] += int(dut.issuing.value)
        totals["block_dots"] += int(dut.block_dots.value)
        for name, bit in stalls[int(dut.stalls.value)].items():
            totals[f"stall_{name}"] += bit
        for name, bit in vector[int(dut.vector.value)].items():
            totals[f"vector_{name}"] += bit
        totals["memory_waits"] += int(dut.granules__valid.value) & ~int(dut.granules__ready.value) & 1


def queue(cases: list[Case]) -> list[Prepared]:
    """Two places for data in turn, as for the key heads of a layer; equal cases in a place share their data."""
    made = {}
    for index, case in enumerate(cases):
        key = (repr(case), index % 2)
        if key not in made:
            made[key] = prepare(case, np.random.default_rng(SEED + len(made)), index % 2)
    return [made[repr(case), index % 2] for index, case in enumerate(cases)]


@cocotb.test()
async def measure(dut):
    tb = TB(dut, SIZE)
    await tb.reset()
    results = []
    for run in json.loads(os.environ["ATTENTION_RUNS"]):
        case, repeat, every = Case(**run["case"]), run.get("repeat", 1), run.get("prompt", 0)
        if every:
            queued = prepare_prompt(case, np.random.default_rng(SEED), SIZE, every)
            ahead = CHUNKS
        else:
            queued, ahead = queue([case] * repeat), 0
        for one in queued[: ahead or 2]:
            await tb.set_up(one)
        totals = Counter()
        counter = cocotb.start_soon(count(dut, totals))
        found = await tb.run(*queued, ahead=ahead)
        counter.cancel()
        for one, rows in zip(queued, found, strict=True):
            assert (rows == one.expected).all(), f"{one.case}: wrong result"
        counts = {"commands": len(queued), "cycles": tb.cycles, "granules": tb.granules_read}
        results.append(dataclasses.asdict(case) | totals | counts)
    Path(os.environ["ATTENTION_RESULT"]).write_text(json.dumps(results))
