"""The refresher's pace over many intervals: exactly one round of all banks in each tREFI."""

import pytest
from amaranth.sim import Simulator

from hw.hbm import HbmConfig
from hw.hbm.address import AddressMap
from hw.hbm.interface import Hint
from hw.hbm.refresh import ArrivalPace, PerBankRefresh, StreamGuard, sparse_gap

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


def banks_near(hinted: bool) -> tuple[set[int], set[int], set[int]]:
    """Banks that `StreamGuard` keeps open after a weight stream with two pages in turn between its granules; that of
    the weights; and those kept open when the pages have ended.
    """
    config = HbmConfig(generation="hbm2a")
    guard, granules = StreamGuard(config), 6
    starts = {"weights": 0, "one": config.granules // 2, "two": config.granules // 2 + 8192}
    found = []

    async def drive(context):
        for k in range(granules):
            for name, start in starts.items():
                hint = Hint.NONE if not hinted else Hint.WEIGHTS if name == "weights" else Hint.PAGE
                context.set(guard.address, start + k)
                context.set(guard.hint, hint)
                context.set(guard.last, k == granules - 1)
                context.set(guard.valid, 1)
                await context.tick()
            if k >= granules - 2:
                context.set(guard.valid, 0)
                await context.tick()
                mask = context.get(guard.near)
                found.append({bank for bank in range(config.timing.total_banks) if mask >> bank & 1})

    simulator = Simulator(guard)
    simulator.add_clock(1e-9)
    simulator.add_testbench(drive)
    simulator.run()
    _, bank, _ = AddressMap(config).locate([granules - 1])
    return found[0], {int(bank[0])}, found[1]


def test_hints_keep_pages_from_pushing_a_weight_stream_out():
    """Without hints, two pages in turn displace the stream; with them its bank stays open, and a page's last granule
    gives up the page's banks.
    """
    found, weights, _ = banks_near(hinted=False)
    assert not weights & found
    found, weights, after = banks_near(hinted=True)
    assert weights <= found
    assert weights <= after
    assert len(after) <= len(found)


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
