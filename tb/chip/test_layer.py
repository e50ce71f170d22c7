"""Runs the plans that `make sim` prepared, and hands back what came out. Comparing is the caller's business."""

import os
import pickle
from pathlib import Path

import cocotb

from tb.chip.execute import execute
from tb.chip.host import Host

WORK = Path(os.environ.get("SERRANO_WORK", "."))


@cocotb.test()
async def layer(dut):
    """Each mode's plan, one after the other on the same chip."""
    host = Host(dut)
    await host.reset()
    plans = pickle.loads((WORK / "plans.pickle").read_bytes())
    with (WORK / "progress.txt").open("a", buffering=1) as progress:
        done = {}
        for mode, plan in plans.items():
            done[mode] = await execute(host, plan, lambda text, mode=mode: progress.write(f"{mode}: {text}\n"))
    (WORK / "executions.pickle").write_bytes(pickle.dumps(done))
