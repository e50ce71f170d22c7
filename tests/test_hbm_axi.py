"""The AXI engines of the HBM controller by themselves, against a memory that answers out of order."""

import random

import pytest
from amaranth.sim import Simulator

from hw.axi import Burst, Response
from hw.hbm import HbmConfig
from hw.hbm.axi import AxiReadEngine, AxiWriteEngine

CONFIG = HbmConfig(capacity=1 << 20)
BYTES = CONFIG.capacity


def beats(addr: int, length: int, size: int, burst: Burst) -> list[int]:
    """Addresses of a burst's beats (ARM IHI 0022H, A3.4.1)."""
    step, found, address = 1 << size, [], addr
    total = (length + 1) * step
    low = addr // total * total
    for _ in range(length + 1):
        found.append(address)
        if burst is not Burst.FIXED:
            address = address // step * step + step
        if burst is Burst.WRAP and address == low + total:
            address = low
    return found


def draw(generator: random.Random) -> tuple[int, int, int, Burst]:
    """A legal burst: within 4 KiB, WRAP aligned and of 2, 4, 8 or 16 beats."""
    burst, size = generator.choice(list(Burst)), generator.randrange(6)
    length = generator.choice([1, 3, 7, 15]) if burst is Burst.WRAP else generator.randrange(16)
    total = (length + 1) << size
    page = generator.randrange(BYTES // 4096) * 4096
    offset = generator.randrange(4096 - total + 1)
    return page + (offset >> size << size if burst is Burst.WRAP else offset), length, size, burst


@pytest.mark.parametrize("seed", [1, 2])
def test_reads(seed: int) -> None:
    generator = random.Random(seed)
    memory = generator.randbytes(BYTES)
    dut = AxiReadEngine(CONFIG, 40, 4)
    jobs = [draw(generator) for _ in range(40)]
    jobs[7] = (BYTES + 64, 3, 5, Burst.INCR)  # beyond the memory, between good ones
    compared = 0

    async def send(ctx) -> None:
        for number, (addr, length, size, burst) in enumerate(jobs):
            ctx.set(dut.ar.payload, {"id": number % 16, "addr": addr, "len": length, "size": size, "burst": burst})
            ctx.set(dut.ar.valid, 1)
            await ctx.tick().until(dut.ar.ready)
            ctx.set(dut.ar.valid, 0)
            if generator.random() < 0.3:
                await ctx.tick().repeat(5)

    async def serve(ctx) -> None:
        waiting: list[tuple[int, int]] = []
        while True:
            ctx.set(dut.read.ready, generator.random() < 0.7)
            ctx.set(dut.fill, 0)
            if waiting and generator.random() < 0.6:
                slot, granule = waiting.pop(generator.randrange(len(waiting)))
                ctx.set(dut.fill, 1)
                ctx.set(dut.fill_slot, slot)
                ctx.set(dut.fill_data, int.from_bytes(memory[32 * granule : 32 * granule + 32], "little"))
            _, _, valid, ready, granule, slot = await ctx.tick().sample(
                dut.read.valid, dut.read.ready, dut.read.payload, dut.slot
            )
            if valid and ready:
                waiting.append((slot, granule))

    async def receive(ctx) -> None:
        nonlocal compared
        for number, (addr, length, size, burst) in enumerate(jobs):
            where = beats(addr, length, size, burst)
            for k, address in enumerate(where):
                while generator.random() < 0.3:
                    await ctx.tick()
                ctx.set(dut.r.ready, 1)
                (beat,) = await ctx.tick().sample(dut.r.payload).until(dut.r.valid)
                ctx.set(dut.r.ready, 0)
                assert (beat.id, beat.last) == (number % 16, k == length), (number, k)
                if address >= BYTES:
                    assert beat.resp == Response.DECERR
                    continue
                assert beat.resp == Response.OKAY
                end = address // (1 << size) * (1 << size) + (1 << size)
                found = beat.data.to_bytes(32, "little")[address % 32 :][: end - address]
                assert found == memory[address:end], (number, k, hex(address))
                compared += 1

    simulator = Simulator(dut)
    simulator.add_clock(1e-9)
    simulator.add_testbench(send)
    simulator.add_testbench(serve, background=True)
    simulator.add_testbench(receive)
    simulator.run()
    assert compared > 100


@pytest.mark.parametrize("seed", [1, 2])
def test_writes(seed: int) -> None:
    generator = random.Random(seed)
    before = bytearray(generator.randbytes(BYTES))
    expected, memory = bytearray(before), bytearray(before)
    dut = AxiWriteEngine(CONFIG, 40, 4)
    jobs = [draw(generator) for _ in range(40)]
    jobs[5] = (BYTES + 4096, 3, 5, Burst.INCR)
    answered = 0

    async def addresses(ctx) -> None:
        for number, (addr, length, size, burst) in enumerate(jobs):
            ctx.set(dut.aw.payload, {"id": number % 16, "addr": addr, "len": length, "size": size, "burst": burst})
            ctx.set(dut.aw.valid, 1)
            await ctx.tick().until(dut.aw.ready)
            ctx.set(dut.aw.valid, 0)

    async def data(ctx) -> None:
        for addr, length, size, burst in jobs:
            for k, address in enumerate(beats(addr, length, size, burst)):
                end = address // (1 << size) * (1 << size) + (1 << size)
                lanes = [b for b in range(address, end) if generator.random() < 0.9]
                value, strobe = bytearray(generator.randbytes(32)), 0
                for byte in lanes:
                    strobe |= 1 << byte % 32
                    if byte < BYTES:
                        expected[byte] = value[byte % 32]
                ctx.set(dut.w.payload, {
                    "data": int.from_bytes(value, "little"), "strb": strobe, "last": k == length
                })  # fmt: skip
                ctx.set(dut.w.valid, 1)
                await ctx.tick().until(dut.w.ready)
                ctx.set(dut.w.valid, 0)

    async def serve(ctx) -> None:
        while True:
            ctx.set(dut.request.ready, generator.random() < 0.6)
            _, _, valid, ready, request, value = await ctx.tick().sample(
                dut.request.valid, dut.request.ready, dut.request.payload, dut.request_data
            )
            if not (valid and ready):
                continue
            low = 32 * request.address
            if request.write:
                memory[low : low + 32] = value.to_bytes(32, "little")
            else:
                ctx.set(dut.request.ready, 0)
                await ctx.tick().repeat(generator.randrange(1, 6))
                ctx.set(dut.fill_data, int.from_bytes(memory[low : low + 32], "little"))
                ctx.set(dut.fill, 1)
                await ctx.tick()
                ctx.set(dut.fill, 0)

    async def answers(ctx) -> None:
        nonlocal answered
        for number, (addr, *_rest) in enumerate(jobs):
            ctx.set(dut.b.ready, 1)
            (answer,) = await ctx.tick().sample(dut.b.payload).until(dut.b.valid)
            ctx.set(dut.b.ready, 0)
            await ctx.tick().repeat(generator.randrange(3) + 1)
            assert answer.id == number % 16
            assert answer.resp == (Response.DECERR if addr >= BYTES else Response.OKAY)
            answered += 1

    simulator = Simulator(dut)
    simulator.add_clock(1e-9)
    for process in (addresses, data, answers):
        simulator.add_testbench(process)
    simulator.add_testbench(serve, background=True)
    simulator.run()
    assert answered == len(jobs)
    assert memory == expected
    assert memory != before
