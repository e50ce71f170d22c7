"""The AXI4 port of `hw.hbm.HbmController`, driven by cocotbext-axi, an implementation of the protocol of its own."""

from __future__ import annotations

import os
import random

import cocotb
from cocotb.triggers import ClockCycles, with_timeout
from cocotbext.axi import AxiBurstType, AxiBus, AxiMaster, AxiResp
from cocotbext.axi.axi_channels import (
    AxiARBus,
    AxiARSource,
    AxiARTransaction,
    AxiAWBus,
    AxiAWSource,
    AxiAWTransaction,
    AxiBBus,
    AxiBSink,
    AxiRBus,
    AxiRSink,
    AxiWBus,
    AxiWSource,
    AxiWTransaction,
)

from tb.common.clock import start_clock
from tb.common.stream import never, randomly
from tb.hbm.models import CONTROLLERS
from tb.hbm.test_controller import pattern

CONFIG = CONTROLLERS[os.environ["HBM_CONFIG"]]
SEED = int(os.environ.get("SERRANO_SEED", "1"))
NAMES = {"prefix": "axi", "bus_separator": "__"}
GUARD = 40
# Each test has its own memory: nothing but the simulation's start restores the device's pattern.
MANY_AT, WRAP_AT, STREAM_WRITE_AT, FIXED_AT, STREAM_AT = 0x68000, 0x70000, 0x80000, 0x88000, 20000


def initial(address: int, length: int) -> bytes:
    """Memory before any write (+hbm_pattern)."""
    first, last = address // 32, (address + length - 1) // 32
    whole = b"".join(pattern(granule).to_bytes(32, "little") for granule in range(first, last + 1))
    return whole[address - 32 * first :][:length]


async def reset(dut) -> None:
    start_clock(dut.clk)
    dut.rst.value = 1
    dut.descriptor__valid.value = 0
    dut.data__ready.value = 0
    await ClockCycles(dut.clk, 4)
    dut.rst.value = 0
    await ClockCycles(dut.clk, 2)


class TB:
    """The bus master with pause generators on both sides."""

    def __init__(self, dut, idle: str = "free", pause: str = "free"):
        self.dut = dut
        self.axi = AxiMaster(AxiBus.from_prefix(dut, **NAMES), dut.clk, dut.rst)

        def hook(kind: str, seed: int):
            return randomly(0.4, seed) if kind == "paused" else never()

        write, read = self.axi.write_if, self.axi.read_if
        for k, channel in enumerate((write.aw_channel, write.w_channel, read.ar_channel)):
            channel.set_pause_generator(hook(idle, SEED + k))
        for k, channel in enumerate((write.b_channel, read.r_channel)):
            channel.set_pause_generator(hook(pause, SEED + 10 + k))

    async def write(self, address: int, data: bytes, **options) -> None:
        response = await with_timeout(self.axi.write(address, data, **options), 100000, "ns")
        assert response.resp == AxiResp.OKAY, response

    async def read(self, address: int, length: int, **options) -> bytes:
        response = await with_timeout(self.axi.read(address, length, **options), 100000, "ns")
        assert response.resp == AxiResp.OKAY, response
        return bytes(response.data)


@cocotb.test()
@cocotb.parametrize(idle=["free", "paused"], pause=["free", "paused"])
async def test_write_read(dut, idle, pause) -> None:
    """Every size of transfer, lengths and offsets around granules and 4 KiB edges, guard bytes on both sides."""
    tb, generator = TB(dut, idle, pause), random.Random(SEED)
    await reset(dut)
    page = 0
    for size in range(6):
        for length, offset in ((1, 0), (1, 31), (32, 0), (33, 31), (97, generator.randrange(4096)), (64, 4096 - 37)):
            if size < 3 and length > 64:
                continue
            page += 8192
            address, data = page + offset, generator.randbytes(length)
            await tb.write(address, data, size=size)
            found = await tb.read(address - GUARD, length + 2 * GUARD)
            expected = initial(address - GUARD, GUARD) + data + initial(address + length, GUARD)
            assert found == expected, (size, length, offset, found.hex(), expected.hex())
            assert await tb.read(address, length, size=size) == data
    assert page > 0 and int(dut.violation.value) == 0


@cocotb.test()
async def test_many_in_flight(dut) -> None:
    """Random writes, then reads with all IDs in flight at once, against a model of the memory."""
    tb, generator = TB(dut), random.Random(SEED)
    await reset(dut)
    base, span = MANY_AT, 8192
    memory = bytearray(initial(base, span))
    for _ in range(30):
        length = generator.randrange(1, 200)
        offset = generator.randrange(span - length)
        data = generator.randbytes(length)
        await tb.write(base + offset, data, awid=generator.randrange(16))
        memory[offset : offset + length] = data
    pending = []
    for k in range(60):
        length = generator.randrange(1, 300)
        offset = generator.randrange(span - length)
        pending.append((offset, length, tb.axi.init_read(base + offset, length, arid=k % 16)))
    for offset, length, event in pending:
        await with_timeout(event.wait(), 100000, "ns")
        assert bytes(event.data.data) == bytes(memory[offset : offset + length]), (offset, length)
    assert int(dut.violation.value) == 0


@cocotb.test()
async def test_decode_error(dut) -> None:
    """Beyond the memory: DECERR for every beat, after the last data beat of a write, and nothing else is touched."""
    tb = TB(dut)
    await reset(dut)
    for address in (CONFIG.capacity, 1 << 39):
        written = await with_timeout(tb.axi.write(address, bytes(128)), 20000, "ns")
        assert written.resp == AxiResp.DECERR
        found = await with_timeout(tb.axi.read(address, 128), 20000, "ns")
        assert found.resp == AxiResp.DECERR
    assert await tb.read(0, 256) == initial(0, 256)
    assert await tb.read(CONFIG.capacity - 64, 64) == initial(CONFIG.capacity - 64, 64)


@cocotb.test()
async def test_size_beyond_the_bus(dut) -> None:
    """A transfer size wider than the bus: SLVERR for every beat, ID and last right, and nothing is written."""
    ar = AxiARSource(AxiARBus.from_prefix(dut, **NAMES), dut.clk)
    r = AxiRSink(AxiRBus.from_prefix(dut, **NAMES), dut.clk)
    aw = AxiAWSource(AxiAWBus.from_prefix(dut, **NAMES), dut.clk)
    w = AxiWSource(AxiWBus.from_prefix(dut, **NAMES), dut.clk)
    b = AxiBSink(AxiBBus.from_prefix(dut, **NAMES), dut.clk)
    await reset(dut)
    for size in (6, 7):
        await aw.send(AxiAWTransaction(awid=9, awaddr=WRAP_AT, awlen=1, awsize=size, awburst=1))
        for k in range(2):
            await w.send(AxiWTransaction(wdata=0, wstrb=0xFFFFFFFF, wlast=k))
        answer = await with_timeout(b.recv(), 20000, "ns")
        assert (int(answer.bresp), int(answer.bid)) == (AxiResp.SLVERR, 9)
        await ar.send(AxiARTransaction(arid=size, araddr=WRAP_AT, arlen=2, arsize=size, arburst=1))
        for k in range(3):
            beat = await with_timeout(r.recv(), 20000, "ns")
            assert (int(beat.rresp), int(beat.rid), int(beat.rlast)) == (AxiResp.SLVERR, size, k == 2)
    await ar.send(AxiARTransaction(arid=1, araddr=WRAP_AT, arlen=0, arsize=5, arburst=1))
    beat = await with_timeout(r.recv(), 20000, "ns")
    assert int(beat.rdata).to_bytes(32, "little") == initial(WRAP_AT, 32) and int(beat.rresp) == AxiResp.OKAY


@cocotb.test()
async def test_fixed(dut) -> None:
    """FIXED bursts: each beat at the same address; the last one stays. (Narrow ones are in tests/test_hbm_axi.py:
    this master moves the lanes of a narrow FIXED burst on as if it were INCR.)
    """
    tb = TB(dut)
    await reset(dut)
    await tb.write(FIXED_AT, bytes(range(96)), burst=AxiBurstType.FIXED)
    assert await tb.read(FIXED_AT, 32) == bytes(range(64, 96))
    assert await tb.read(FIXED_AT + 32, 64) == initial(FIXED_AT + 32, 64)
    assert await tb.read(FIXED_AT, 64, burst=AxiBurstType.FIXED) == 2 * bytes(range(64, 96))


@cocotb.test()
async def test_wrap(dut) -> None:
    """WRAP bursts of every length and size, from every start, written and read."""
    ar = AxiARSource(AxiARBus.from_prefix(dut, **NAMES), dut.clk)
    r = AxiRSink(AxiRBus.from_prefix(dut, **NAMES), dut.clk)
    aw = AxiAWSource(AxiAWBus.from_prefix(dut, **NAMES), dut.clk)
    w = AxiWSource(AxiWBus.from_prefix(dut, **NAMES), dut.clk)
    b = AxiBSink(AxiBBus.from_prefix(dut, **NAMES), dut.clk)
    await reset(dut)
    memory, compared = bytearray(65536), 0
    generator = random.Random(SEED)
    for size in (0, 2, 4, 5):
        for beats in (2, 4, 8, 16):
            step, total = 1 << size, beats << size
            start = generator.randrange(beats) * step + generator.randrange(65536 // total) * total
            low = start // total * total
            where = [low + (start + k * step - low) % total for k in range(beats)]
            await aw.send(AxiAWTransaction(awid=1, awaddr=WRAP_AT + start, awlen=beats - 1, awsize=size, awburst=2))
            for k, address in enumerate(where):
                value, lane = generator.getrandbits(8 * step), address % 32
                memory[address : address + step] = value.to_bytes(step, "little")
                await w.send(AxiWTransaction(
                    wdata=value << (8 * lane), wstrb=((1 << step) - 1) << lane, wlast=k == beats - 1
                ))  # fmt: skip
            answer = await with_timeout(b.recv(), 20000, "ns")
            assert int(answer.bresp) == 0 and int(answer.bid) == 1
            await ar.send(AxiARTransaction(arid=2, araddr=WRAP_AT + start, arlen=beats - 1, arsize=size, arburst=2))
            for k, address in enumerate(where):
                beat = await with_timeout(r.recv(), 20000, "ns")
                found = int(beat.rdata) >> (8 * (address % 32)) & ((1 << 8 * step) - 1)
                assert found == int.from_bytes(memory[address : address + step], "little"), (size, beats, start, k)
                assert int(beat.rlast) == (k == beats - 1) and int(beat.rid) == 2
                compared += 1
    assert compared


@cocotb.test()
async def test_stream_and_axi(dut) -> None:
    """Both ports at once: neither starves, and the stream sees what AXI wrote."""
    from hw.hbm.interface import StreamDescriptor
    from tb.common.stream import StreamPort, StreamSink, StreamSource

    tb = TB(dut)
    await reset(dut)
    descriptors = StreamSource(StreamPort(dut, "descriptor", StreamDescriptor(CONFIG), dut.clk), never())
    sink = StreamSink(StreamPort(dut, "data", 256, dut.clk), never())
    data = random.Random(SEED).randbytes(32 * 8)
    await tb.write(32 * (STREAM_AT + 10), data)
    descriptors.put({"address": STREAM_AT, "length": 400})
    writes = cocotb.start_soon(tb.write(STREAM_WRITE_AT, bytes(512)))
    expected = initial(32 * STREAM_AT, 320) + data + initial(32 * (STREAM_AT + 18), 32 * (400 - 18))
    for k in range(400):
        found = await with_timeout(sink.receive(), 20000, "ns")
        assert f"{found:064x}" == expected[32 * k : 32 * k + 32][::-1].hex(), k
    await with_timeout(writes, 20000, "ns")
    assert await tb.read(STREAM_WRITE_AT, 512) == bytes(512)
