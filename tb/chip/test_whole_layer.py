"""A whole layer on the chip: every result, and the granules that the golden machines send."""

import os

import cocotb
import numpy as np

from golden.layer import LayerPlan, lower_layer
from golden.machine import TileMachine
from tb.chip import default
from tb.chip.execute import execute
from tb.chip.host import Host
from tb.chip.layer_work import golden_machines, golden_memory, random_work

SEED = int(os.environ.get("SERRANO_SEED", "1"))
CHUNK = 3 + SEED % 4

# The devices load their images at time zero, before a test can run: they are written when this module is imported.
WORK = random_work(SEED, CHUNK)
PLANS: dict[str, LayerPlan] = {mode: lower_layer(default(), layer) for mode, (layer, _) in WORK.items()}
for _tile, _image in enumerate(PLANS["prefill"].images):
    _image.tofile(f"hbm{_tile}.bin")


def differences(mode: str, plan: LayerPlan, memory: np.ndarray) -> list[str]:
    """Names of the results that are not the golden model's."""
    expected = WORK[mode][1]
    values = plan.values(memory)
    assert set(values) == set(expected), "not everything was compared"
    return [name for name, found in values.items() if not np.array_equal(found, expected[name])]


@cocotb.test()
@cocotb.parametrize(pause=[0.0, 0.5])
async def test_layer(dut, pause):
    """A chunk, then a step: all results, and every granule that the golden machines send to the host."""
    host = Host(dut)
    await host.reset()
    host.pause(pause, SEED)
    machines: list[TileMachine] = []
    for mode, plan in PLANS.items():
        done = await execute(host, plan)
        assert not (wrong := differences(mode, plan, done.memory)), f"{mode}: {wrong} differ"
        machines = golden_machines(plan, machines)
        for address, values in golden_memory(machines).items():
            assert tuple(done.memory[address]) == values, f"granule {address}: {values}, found {done.memory[address]}"
        for counters, machine in zip(done.counters, machines, strict=True):
            # The result memory may still hold the run before: the counters tell that all of it is new.
            assert counters["result_granules"] == len(machine.sent), (counters["result_granules"], len(machine.sent))
            causes = ("issue", "stall_weights", "stall_activations", "stall_results", "stall_order", "stall_vector")
            assert counters["cycles"] == sum(counters[cause] for cause in (*causes, "attention", "idle")), counters
            assert counters["stall_vector"] and counters["vector"] >= counters["stall_vector"], counters
    assert await host.read("error") == 0


@cocotb.test()
async def test_changed_row_is_noticed(dut):
    """One bit of the residual stream is another than the golden model's: the comparison has to say so."""
    host = Host(dut)
    await host.reset()
    plan = PLANS["decode"]
    address, granules = plan.rows[0]
    changed = granules.copy()
    changed[3, 5] ^= 1 << 22
    plan.rows[0] = (address, changed)
    done = await execute(host, plan)
    plan.rows[0] = (address, granules)
    assert {"q", "rotated q and k", "gate", "output"} <= set(differences("decode", plan, done.memory))
