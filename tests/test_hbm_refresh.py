"""The refresher's pace over many intervals: exactly one round of all banks in each tREFI."""

import pytest
from amaranth.sim import Simulator

from hw.hbm import HbmConfig
from hw.hbm.refresh import PerBankRefresh

INTERVALS = 6


@pytest.mark.parametrize("generation", ["hbm4", "hbm2a"])
def test_refreshes_owed_are_exact_over_many_intervals(generation):
    config = HbmConfig(generation=generation)
    refresher = PerBankRefresh(config)
    cycles, banks = INTERVALS * config.cycles.refi, config.timing.total_banks
    owed = []

    async def count(context):
        context.set(refresher.can_refresh, (1 << banks) - 1)
        issued = 0
        for _ in range(cycles):
            issued += bin(context.get(refresher.issue)).count("1")
            await context.tick()
        owed.append(issued + context.get(refresher.debt))

    simulator = Simulator(refresher)
    simulator.add_clock(1e-9)
    simulator.add_testbench(count)
    simulator.run()
    assert owed == [INTERVALS * banks]
