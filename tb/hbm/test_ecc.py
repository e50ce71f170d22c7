"""ECC errors in the DRAM: corrected or answered with SLVERR, logged, signalled, and scrubbed away."""

from __future__ import annotations

import os
import random

import cocotb
from cocotb.triggers import ClockCycles, RisingEdge, with_timeout
from cocotbext.axi import AxiResp

from hw.hbm.interface import Counters, ErrorRecord
from tb.hbm.models import CONTROLLERS
from tb.hbm.test_axi import TB, initial, reset

CONFIG = CONTROLLERS[os.environ["HBM_CONFIG"]]
SEED = int(os.environ.get("SERRANO_SEED", "1"))
RECORD = ErrorRecord(CONFIG)
OFFSET = {name: field.offset for name, field in Counters.as_shape()}
LONG = 2000  # clocks in which a repair is done, whatever else goes on
ONE, TWO = 1 << 77, 1 << 77 | 1 << 99  # flips in one word of 64 bits


class EccTB(TB):
    """The AXI master and the device's fault injection."""

    def __init__(self, dut):
        super().__init__(dut)
        self.device = dut.device.device

    async def start(self) -> None:
        self.dut.errors__ready.value = 0
        self.dut.clear_errors.value = 0
        await reset(self.dut)

    async def corrupt(self, granule: int, data: int = 0, check: int = 0) -> None:
        """Flip bits in the storage."""
        self.device.fault_address.value = granule
        self.device.fault_data.value = data
        self.device.fault_check.value = check
        self.device.corrupt.value = 1
        await RisingEdge(self.dut.clk)
        self.device.corrupt.value = 0
        await RisingEdge(self.dut.clk)

    def counter(self, name: str) -> int:
        return int(self.dut.counters.value) >> OFFSET[name] & 0xFFFFFFFF

    async def record(self) -> tuple[int, int, int]:
        """The oldest record of the log: address, uncorrectable, scrub."""
        while True:
            await RisingEdge(self.dut.clk)
            if int(self.dut.errors__valid.value):
                bits = int(self.dut.errors__payload.value)
                self.dut.errors__ready.value = 1
                await RisingEdge(self.dut.clk)
                self.dut.errors__ready.value = 0
                view = RECORD.from_bits(bits)
                return view.address, view.uncorrectable, view.scrub

    async def clear(self) -> None:
        self.dut.clear_errors.value = 1
        await RisingEdge(self.dut.clk)
        self.dut.clear_errors.value = 0
        await ClockCycles(self.dut.clk, 2)


@cocotb.test()
async def test_single_error_is_corrected_and_repaired(dut) -> None:
    """A wrong data bit and a wrong check bit: the reader sees neither; both are logged, and gone from the DRAM."""
    tb = EccTB(dut)
    await tb.start()
    for granule, data, check in ((0x12345 % CONFIG.granules, ONE, 0), (0x8001, 0, 1 << 13)):
        await tb.corrupt(granule, data, check)
        before = tb.counter("corrected")
        assert await tb.read(32 * granule, 32) == initial(32 * granule, 32)
        assert await with_timeout(tb.record(), 1000, "ns") == (granule, 0, 0)
        await ClockCycles(dut.clk, LONG)
        assert tb.counter("corrected") == before + 2, "the reader's and the scrubber's"
        assert await with_timeout(tb.record(), 1000, "ns") == (granule, 0, 1)
        assert await tb.read(32 * granule, 32) == initial(32 * granule, 32)
        assert tb.counter("corrected") == before + 2, "still wrong in the DRAM"
    assert not int(dut.irq.value) and int(dut.violation.value) == 0


@cocotb.test()
async def test_patrol_finds_errors_that_nobody_reads(dut) -> None:
    tb = EccTB(dut)
    await tb.start()
    for granule in (3, 5):
        await tb.corrupt(granule, ONE)
    assert await with_timeout(tb.record(), 8 * CONFIG.scrub_interval, "ns") == (3, 0, 1)
    assert await with_timeout(tb.record(), 8 * CONFIG.scrub_interval, "ns") == (5, 0, 1)
    await ClockCycles(dut.clk, LONG)
    before = tb.counter("corrected")
    assert await tb.read(0, 32 * 8) == initial(0, 32 * 8)
    assert tb.counter("corrected") == before


@cocotb.test()
async def test_double_error_is_answered_with_slverr(dut) -> None:
    """Read, partial write and interrupt; a write of the whole granule heals it."""
    tb, granule = EccTB(dut), 0x9000
    await tb.start()
    await tb.corrupt(granule, TWO)
    found = await with_timeout(tb.axi.read(32 * granule - 32, 96), 20000, "ns")
    assert found.resp == AxiResp.SLVERR
    assert await with_timeout(tb.record(), 1000, "ns") == (granule, 1, 0)
    assert int(dut.irq.value) == 1, "after the read"
    await tb.clear()
    assert int(dut.irq.value) == 0
    written = await with_timeout(tb.axi.write(32 * granule + 5, b"abc"), 20000, "ns")
    assert written.resp == AxiResp.SLVERR, "bytes that could not be corrected must not get fresh check bits"
    await ClockCycles(dut.clk, 3)  # the answer and the interrupt set out together
    assert int(dut.irq.value) == 1, "after the write"
    await tb.clear()
    await tb.write(32 * granule, bytes(range(32)))
    assert await tb.read(32 * granule - 32, 96) == (
        initial(32 * granule - 32, 32) + bytes(range(32)) + initial(32 * granule + 32, 32)
    )
    assert int(dut.irq.value) == 0


@cocotb.test()
async def test_many_corrected_errors_raise_the_interrupt(dut) -> None:
    """At `error_limit`, not before; a full log counts what it lost."""
    tb = EccTB(dut)
    await tb.start()
    first = 0xA000
    for k in range(1, 7):
        await tb.corrupt(first + k, ONE)
        assert await tb.read(32 * (first + k), 32) == initial(32 * (first + k), 32)
        await ClockCycles(dut.clk, LONG)
        assert int(dut.irq.value) == (2 * k >= CONFIG.error_limit), k  # the reader's and the scrubber's
    assert int(dut.lost_errors.value) == 4  # of twelve, eight wait
    records = [await with_timeout(tb.record(), 1000, "ns") for _ in range(8)]
    assert records == [(first + k, 0, scrub) for k in range(1, 5) for scrub in (0, 1)]
    await tb.clear()
    assert int(dut.irq.value) == 0 and int(dut.lost_errors.value) == 0


@cocotb.test()
async def test_scrubbing_never_undoes_a_write(dut) -> None:
    """Writes to a granule around the time in which it is scrubbed: what was written stays."""
    tb, generator = EccTB(dut), random.Random(SEED)
    await tb.start()
    dut.errors__ready.value = 1
    for trial in range(70):
        granule, data = 0xB000 + 37 * trial, generator.randbytes(32)
        await tb.corrupt(granule, ONE)
        reading = cocotb.start_soon(tb.axi.read(32 * granule, 32))
        await ClockCycles(dut.clk, 12 + trial)
        await tb.write(32 * granule, data)
        await with_timeout(reading, 20000, "ns")
        await ClockCycles(dut.clk, 150)
        assert await tb.read(32 * granule, 32) == data, trial
    assert tb.counter("corrected") > 70
