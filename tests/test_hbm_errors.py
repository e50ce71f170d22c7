"""The log of ECC errors, to the clock: what is seen while it is cleared."""

from collections.abc import Callable

import pytest
from amaranth.sim import Simulator

from hw.hbm import HbmConfig
from hw.hbm.scrub import LOG_DEPTH, ErrorLog

LIMIT = 3
SEEN = 1  # clocks from `valid` to the log


def run(drive: Callable) -> None:
    log = ErrorLog(HbmConfig(error_limit=LIMIT))

    async def testbench(context) -> None:
        async def errors(count: int, corrected: int, clear_at: int | None = None) -> None:
            """`count` errors in a row; `clear` in the clock in which the log sees number `clear_at`."""
            context.set(log.corrected, corrected)
            context.set(log.failed, 1 - corrected)
            for clock in range(count + SEEN):
                context.set(log.valid, clock < count)
                context.set(log.clear, clear_at is not None and clock == clear_at + SEEN)
                await context.tick()
            context.set(log.clear, 0)

        await drive(context, log, errors)

    simulator = Simulator(log)
    simulator.add_clock(1e-9)
    simulator.add_testbench(testbench)
    simulator.run()


def test_an_uncorrectable_error_outlives_the_clear_of_its_clock() -> None:
    async def drive(context, log, errors) -> None:
        await errors(1, corrected=0, clear_at=0)
        assert context.get(log.irq), "seen and cleared in one clock"
        context.set(log.clear, 1)
        await context.tick()
        assert not context.get(log.irq), "cleared afterwards"

    run(drive)


@pytest.mark.parametrize("after, raised", [(LIMIT - 1, True), (LIMIT - 2, False)])
def test_a_corrected_error_counts_in_the_clock_of_a_clear(after: int, raised: bool) -> None:
    """The interrupt comes with the `LIMIT`-th corrected error, that of the clear's clock included; no earlier."""

    async def drive(context, log, errors) -> None:
        await errors(LIMIT, corrected=1, clear_at=LIMIT - 1)
        await errors(after, corrected=1)
        await context.tick()
        assert context.get(log.irq) == raised

    run(drive)


def test_a_lost_record_counts_in_the_clock_of_a_clear() -> None:
    async def drive(context, log, errors) -> None:
        await errors(LOG_DEPTH + 2, corrected=1)
        assert context.get(log.lost) == 2
        await errors(2, corrected=1, clear_at=1)
        assert context.get(log.lost) == 1
        await errors(3, corrected=1)
        assert context.get(log.lost) == 4

    run(drive)
