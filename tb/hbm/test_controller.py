"""`hw.hbm.HbmController` with its device: the streaming port against the device's image."""

from __future__ import annotations

import os
import random

import cocotb
import numpy as np
from cocotb.triggers import ClockCycles, RisingEdge, with_timeout

from hw.hbm.interface import StreamDescriptor
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

    async def check(self, ranges: list[tuple[int, int]]) -> int:
        """Send descriptors and compare every granule; returns how many."""
        for address, length in ranges:
            self.descriptors.put({"address": address, "length": length})
        compared = 0
        for address, length in ranges:
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


@cocotb.test()
async def test_stream_speed(dut) -> None:
    """A long stream takes at least 90 % of the peak, ACTs and refreshes included (80 % of it with eight entries)."""
    tb = TB(dut)
    await tb.reset()
    granules = 3000
    tb.descriptors.put({"address": 0, "length": granules})
    await RisingEdge(dut.data__valid)
    start = int(dut.counters.value) & 0xFFFFFFFF
    for granule in range(granules):
        assert await with_timeout(tb.data.receive(), 20000, "ns") == pattern(granule)
    clocks = (int(dut.counters.value) & 0xFFFFFFFF) - start
    share = granules * CONFIG.cycles.bl / clocks
    dut._log.info("streaming uses %.1f %% of the peak", 100 * share)
    assert share > (0.9 if CONFIG.read_queue >= 32 else 0.8), share
