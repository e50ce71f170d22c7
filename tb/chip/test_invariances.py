"""The three invariances of a whole layer on the RTL: the bits do not depend on batch, chunk, and number of tiles.

Three users' rows, chunks and steps beside one another, on `LAYER_TILES` tiles of the chip. Every row has to have the
bits that golden attention and the golden products give for its sequence alone, all positions at once.
"""

import os
from dataclasses import replace

import cocotb
import numpy as np

from golden.layer_batch import lower_batch
from golden.machine import TileMachine
from tb.chip import default
from tb.chip.execute import execute
from tb.chip.host import Host
from tb.chip.layer_work import golden_machines, random_batches

SEED = int(os.environ.get("SERRANO_SEED", "1"))
COLUMNS, ROWS = {"1": (1, 1), "2": (2, 1), "4": (2, 2)}[os.environ["LAYER_TILES"]]
CHIP = default()
# Tiles beyond these are not started.
CONFIG = replace(CHIP, mesh=replace(CHIP.mesh, columns=COLUMNS, rows=ROWS))

# The devices load their images at time zero, before a test can run: they are written when this module is imported.
WORK = list(random_batches(SEED))
PLANS = [lower_batch(CONFIG, layer, segments) for layer, segments, _ in WORK]
for _tile in range(CHIP.tiles):
    image = PLANS[0].images[_tile] if _tile < CONFIG.tiles else np.zeros(32, np.uint8)
    image.tofile(f"hbm{_tile}.bin")


@cocotb.test()
async def test_batches_and_chunks(dut):
    """Every result of every row; and every tile has sent all that its golden machine sends."""
    host = Host(dut)
    await host.reset()
    host.pause(0.2, SEED)
    machines: list[TileMachine] = []
    for plan, (_, segments, expected) in zip(PLANS, WORK, strict=True):
        done = await execute(host, plan)
        found = plan.values(done.memory)
        wrong = [name for name, rows in expected.items() if not np.array_equal(found[name], rows)]
        assert set(found) == set(expected) and not wrong, f"{segments}: {wrong} differ"
        machines = golden_machines(plan, machines)
        sent = [len(machine.sent) for machine in machines]
        assert [counters["result_granules"] for counters in done.counters] == sent, (
            f"{segments}: {sent} were to be sent"
        )
    assert await host.read("error") == 0


@cocotb.test(skip=CONFIG.tiles != 2)
async def test_another_users_cache_is_noticed(dut):
    """A step of one user on another's cache: the rows must not be its own."""
    host = Host(dut)
    await host.reset()
    layer, segments, expected = WORK[2]
    exchanged = tuple(replace(segment, sequence={0: 1, 1: 0, 2: 2}[segment.sequence]) for segment in segments)
    for plan in (*PLANS[:2], lower_batch(CONFIG, layer, exchanged)):
        done = await execute(host, plan)
    found = plan.values(done.memory)
    assert np.array_equal(found["q"], expected["q"]), "what stands before attention has its own bits"
    assert not np.array_equal(found["output"], expected["output"]), "it went unnoticed"
