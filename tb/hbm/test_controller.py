"""`hw.hbm.HbmController` with its device: the streaming port against the device's image."""

from __future__ import annotations

import os
import random

import cocotb
import numpy as np
from cocotb.triggers import ClockCycles, RisingEdge, with_timeout

from hw.hbm.address import AddressMap
from hw.hbm.interface import Counters, Hint, StreamDescriptor
from tb.common.clock import start_clock
from tb.common.stream import StreamPort, StreamSink, StreamSource, never, randomly
from tb.hbm.models import CONTROLLERS

CONFIG = CONTROLLERS[os.environ["HBM_CONFIG"]]


def pattern(granule: int) -> int:
    """What +hbm_pattern puts into a granule."""
    words = (8 * granule + np.arange(8)).astype("<u4")
    return int.from_bytes(words.tobytes(), "little")


class TB:
    """Controller and device; `idle` and `pause` hooks on the streaming port."""

    def __init__(self, dut, idle=None, pause=None):
        self.dut = dut
        self.descriptors = StreamSource(
            StreamPort(dut, "descriptor", StreamDescriptor(CONFIG), dut.clk), idle or never()
        )
        self.data = StreamSink(StreamPort(dut, "data", 256, dut.clk), pause or never())

    async def reset(self) -> None:
        start_clock(self.dut.clk)
        self.dut.rst.value = 1
        await ClockCycles(self.dut.clk, 4)
        self.dut.rst.value = 0

    def counter(self, name: str) -> int:
        return int(self.dut.counters.value) >> Counters.as_shape()[name].offset & 0xFFFFFFFF

    async def check(self, ranges: list[tuple[int, ...]]) -> int:
        """Send descriptors (address, length, and a hint) and compare every granule; returns how many."""
        for address, length, *hint in ranges:
            self.descriptors.put({"address": address, "length": length, "hint": hint[0].value if hint else 0})
        compared = 0
        for address, length, *_ in ranges:
            for granule in range(address, address + length):
                found = await with_timeout(self.data.receive(), 20000, "ns")
                assert found == pattern(granule), f"granule {granule}: expected {pattern(granule):#x}, found {found:#x}"
                compared += 1
        assert compared, "nothing was compared"
        assert int(self.dut.violation.value) == 0
        return compared


def hooks(paused: str, seed: int):
    return randomly(0.4, seed) if paused == "paused" else never()


@cocotb.test()
@cocotb.parametrize(idle=["free", "paused"], pause=["free", "paused"])
async def test_descriptors(dut, idle, pause) -> None:
    """Lengths of one granule up to several rows, back to back, anywhere in memory."""
    seed = int(os.environ["SERRANO_SEED"])
    tb = TB(dut, hooks(idle, seed), hooks(pause, seed + 1))
    await tb.reset()
    generator = random.Random(seed)
    lengths = [1, 1, 2, 3, 31, 32, 33, 130, *(generator.choice([1, 5, 64, 200]) for _ in range(6))]
    await tb.check([(generator.randrange(CONFIG.granules - n), n) for n in lengths])
    await tb.check([(0, 1), (CONFIG.granules - 1, 1), (7, 1)])


def rows(address: int, length: int) -> set[tuple[int, int]]:
    """(bank, row) of every granule of a range."""
    _, bank, row = AddressMap(CONFIG).locate(np.arange(address, address + length))
    return set(zip(bank.tolist(), row.tolist(), strict=True))


async def weights_among_pages(tb: TB, weights: Hint, page: Hint) -> tuple[int, int]:
    """A weight stream of 24 pieces, two pages elsewhere behind each. Returns its ACTs, and the fewest possible."""
    await tb.reset()
    generator, half, least = random.Random(5), CONFIG.granules // 2, 0
    for k in range(24):
        await tb.check([(8 * k, 8, weights)])
        await ClockCycles(tb.dut.clk, 60)
        for _ in range(2):
            start = half + 64 * generator.randrange(half // 64)
            await tb.check([(start, 4, page)])
            await ClockCycles(tb.dut.clk, 60)
            least += len(rows(start, 4))
    return tb.counter("activates"), least + len(rows(0, 24 * 8))


@cocotb.test()
async def test_hinted_weights_keep_their_row(dut) -> None:
    """With WEIGHTS a stream's rows are opened once, whatever pages come between; without, the pages push it out."""
    if CONFIG.refresh == "all_bank":
        return  # each refresh closes all rows, hinted or not
    tb = TB(dut)
    plain, least = await weights_among_pages(tb, Hint.NONE, Hint.NONE)
    assert plain > least + 10, "without hints there was nothing to gain"
    for page in (Hint.PAGE, Hint.NONE):
        hinted, _ = await weights_among_pages(tb, Hint.WEIGHTS, page)
        assert least <= hinted <= least + 6, f"{hinted} ACTs, {least} at least"


@cocotb.test()
async def test_hinted_page_gives_its_rows_up(dut) -> None:
    """The rows of a PAGE are closed as soon as its last granule is read, those of other streams are not."""
    tb, left = TB(dut), {}
    for hint in Hint:
        await tb.reset()
        await tb.check([(CONFIG.granules // 2, 8, hint)])
        assert tb.counter("activates") == len(rows(CONFIG.granules // 2, 8))
        await ClockCycles(dut.clk, 100)
        left[hint] = tb.counter("activates") - tb.counter("precharges")
    assert left == {hint: 0 if hint == Hint.PAGE else len(rows(CONFIG.granules // 2, 8)) for hint in Hint}


@cocotb.test()
async def test_stream_speed(dut) -> None:
    """A long stream takes at least 90 % of the peak, ACTs and refreshes included (80 % of it with eight entries)."""
    tb = TB(dut)
    await tb.reset()
    granules = 3000
    tb.descriptors.put({"address": 0, "length": granules})
    await RisingEdge(dut.data__valid)
    start = tb.counter("cycles")
    for granule in range(granules):
        assert await with_timeout(tb.data.receive(), 20000, "ns") == pattern(granule)
    clocks = tb.counter("cycles") - start
    share = granules * CONFIG.cycles.bl / clocks
    dut._log.info("streaming uses %.1f %% of the peak", 100 * share)
    assert share > (0.9 if CONFIG.read_queue >= 32 else 0.8), share
