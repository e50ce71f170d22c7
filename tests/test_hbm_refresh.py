"""The refresher's pace over many intervals: exactly one round of all banks in each tREFI."""

import pytest
from amaranth.sim import Simulator

from hw.hbm import HbmConfig
from hw.hbm.refresh import ArrivalPace, PerBankRefresh, sparse_gap

INTERVALS = 6


def test_pace_starts_refreshes_where_they_meet_the_fewest_requests():
    """Requests every 100 clocks, RFCpb 160: only right after one. Every 400: also as long as one ends in time. After a
    silence, and in dense traffic: always.
    """
    config = HbmConfig(generation="hbm2a")
    pace, lasts = ArrivalPace(config), config.cycles.rfcpb
    assert sparse_gap(config) < 100 < lasts < 400
    found = {}

    async def watch(context):
        assert context.get(pace.start), "nothing was ever asked"
        for gap, count in ((100, 4), (400, 3), (2, 10)):
            for _ in range(count):
                context.set(pace.valid, 1)
                await context.tick()
                context.set(pace.valid, 0)
                starts, late = [], []
                for _ in range(gap - 1):
                    starts.append(context.get(pace.start))
                    late.append(context.get(pace.late))
                    await context.tick()
                starts.append(context.get(pace.start))
            found[gap] = starts, late
        for _ in range(ArrivalPace.SILENCE + 1):
            await context.tick()
        assert context.get(pace.start)
        assert context.get(pace.late)

    simulator = Simulator(pace)
    simulator.add_clock(1e-9)
    simulator.add_testbench(watch)
    simulator.run()
    assert found[100][0] == [age < ArrivalPace.WINDOW for age in range(100)]
    assert found[400][0] == [age < ArrivalPace.WINDOW or age + lasts <= 399 for age in range(400)]
    assert not any(found[400][1])
    assert all(found[2][0])


@pytest.mark.parametrize("generation", ["hbm4", "hbm2a"])
def test_refreshes_owed_are_exact_over_many_intervals(generation):
    config = HbmConfig(generation=generation)
    refresher = PerBankRefresh(config)
    cycles, banks = INTERVALS * config.cycles.refi, config.timing.total_banks
    owed = []

    async def count(context):
        context.set(refresher.can_refresh, (1 << banks) - 1)
        context.set(refresher.start, 1)
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
