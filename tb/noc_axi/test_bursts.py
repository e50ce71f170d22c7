"""Bursts through a real mesh: cocotbext-axi managers and memories are the independent party on both ends."""

import itertools
import os
import random

import cocotb
from cocotb.triggers import ClockCycles, Timer, with_timeout
from cocotbext.axi import AxiBus, AxiMaster, AxiRam, AxiResp

from tb.common.clock import start_clock
from tb.common.stream import never, randomly
from tb.noc_axi.agents import FIXED, INCR, OKAY, WRAP, Manager, ScriptedTarget, Transfer
from tb.noc_axi.bench import REGION

SEED = int(os.environ.get("SERRANO_SEED", "1"))
GUARD = 24


async def reset(dut) -> None:
    dut.rst.value = 1
    await Timer(1, "ns")  # an edge before the reset would show the agents what the flip-flops woke up with
    start_clock(dut.clk)
    await ClockCycles(dut.clk, 4)
    dut.rst.value = 0
    await ClockCycles(dut.clk, 2)


def hook(share: float, seed: int):
    return randomly(share, seed) if share else never()


def memories(dut, pause: float = 0.0) -> list[AxiRam]:
    """A memory at each target, filled with random bytes."""
    generator, rams = random.Random(SEED + 5), []
    for x in range(2):
        bus = AxiBus.from_prefix(dut, f"target__{x}", bus_separator="__")
        ram = AxiRam(bus, dut.clk, dut.rst, size=2 * REGION)
        ram.write(0, generator.randbytes(2 * REGION))
        for n, channel in enumerate((ram.write_if.aw_channel, ram.write_if.w_channel, ram.write_if.b_channel,
                                     ram.read_if.ar_channel, ram.read_if.r_channel)):  # fmt: skip
            channel.set_pause_generator(hook(pause, SEED + 10 * x + n))
        rams.append(ram)
    return rams


def target_of(address: int) -> int:
    return address // REGION


@cocotb.test(timeout_time=100, timeout_unit="us")
@cocotb.parametrize(idle=[0.0, 0.5], pause=[0.0, 0.5])
async def test_write_read(dut, idle, pause):
    """Every size, lengths and offsets around 4 KiB edges, from both managers to both targets, guard bytes around."""
    rams = memories(dut, pause)
    masters = [
        AxiMaster(AxiBus.from_prefix(dut, f"manager__{x}", bus_separator="__"), dut.clk, dut.rst) for x in (0, 1)
    ]
    for x, master in enumerate(masters):
        for n, channel in enumerate((master.write_if.aw_channel, master.write_if.w_channel, master.read_if.ar_channel)):
            channel.set_pause_generator(hook(idle, SEED + 31 * x + n))
        for n, channel in enumerate((master.write_if.b_channel, master.read_if.r_channel)):
            channel.set_pause_generator(hook(pause, SEED + 37 * x + n))
    await reset(dut)
    sizes = (0, 2) if idle or pause else (0, 1, 2)
    tasks = [
        cocotb.start_soon(write_and_read(master, rams, 0x8000 * x, sizes, SEED + x)) for x, master in enumerate(masters)
    ]
    assert sum([await task for task in tasks]) == 2 * 2 * len(sizes) * 6


async def write_and_read(master: AxiMaster, rams: list[AxiRam], base: int, sizes: tuple[int, ...], seed: int) -> int:
    generator, compared = random.Random(seed), 0
    cases = ((1, 0), (1, 3), (4, 0), (67, generator.randrange(64)), (50, 4096 - 21), (300, generator.randrange(3000)))
    for region, size, (length, offset) in itertools.product((0, REGION), sizes, cases):
        address, data = base + region + 0x1000 + 0x2000 * size + offset, generator.randbytes(length)
        length, data = (length, data) if size else (min(length, 90), data[:90])
        before = bytes(rams[target_of(address)].read(address - GUARD, length + 2 * GUARD))
        written = await with_timeout(master.write(address, data, size=size), 30000, "ns")
        found = await with_timeout(master.read(address - GUARD, length + 2 * GUARD, size=2), 30000, "ns")
        expected = before[:GUARD] + data + before[GUARD + length :]
        assert written.resp == found.resp == AxiResp.OKAY
        assert bytes(found.data) == expected == bytes(rams[target_of(address)].read(address - GUARD, len(expected)))
        again = await with_timeout(master.read(address, length, size=size), 30000, "ns")
        assert bytes(again.data) == data
        compared += 1
    return compared


@cocotb.test(timeout_time=100, timeout_unit="us")
async def test_every_burst(dut):
    """FIXED, INCR and WRAP of every size, aligned and not, up to 256 beats, sparse strobes: bytes and beats."""
    rams, manager = memories(dut), Manager(dut, "manager__0")
    Manager(dut, "manager__1")
    await reset(dut)
    generator, shadow = random.Random(SEED), bytearray(rams[0].read(0, REGION))
    page = 0
    for size, (burst, lengths) in itertools.product(
        range(3), ((FIXED, (1, 3, 16)), (INCR, (1, 16, 17, 40, 256)), (WRAP, (2, 4, 8, 16)))
    ):
        for beats, sparse in itertools.product(lengths, (False, True)):
            step = 1 << size
            room = 4096 if burst == FIXED else 4096 - beats * step
            start = generator.randrange(room // step + 1) * step % 4096
            if burst != WRAP and room:
                start = min(start + generator.randrange(step), 4095)
            page = (page + 4096) % REGION
            options = {"identity": generator.randrange(8), "address": page + start, "beats": beats}
            options |= {"size": size, "burst": burst}
            wrote = await with_timeout(manager.run(Transfer(True, **options).fill(generator, sparse)), 20000, "ns")
            wrote.apply(shadow)
            assert wrote.responses == [OKAY]
            assert bytes(rams[0].read(page, 4096)) == shadow[page : page + 4096], options
            read = await with_timeout(manager.run(Transfer(False, **options)), 20000, "ns")
            assert set(read.responses) == {OKAY} and read.matches(shadow), options
    assert len(manager.order) == 2 * 2 * 3 * 12


@cocotb.test(timeout_time=100, timeout_unit="us")
async def test_order_within_an_id_across_targets(dut):
    """One target is slow: answers of one ID keep the order of its requests, those of other IDs pass."""
    targets = [ScriptedTarget(dut, f"target__{x}") for x in range(2)]
    manager = Manager(dut, "manager__1")
    Manager(dut, "manager__0")
    await reset(dut)
    targets[0].answer_r = targets[0].answer_b = False
    transfers = []
    for write in (False, True):
        slow = Transfer(write, 1, 0x100, 4)
        behind = Transfer(write, 1, REGION + 0x100, 4)
        other = Transfer(write, 2, REGION + 0x200, 4)
        transfers += [slow, behind, other]
    for transfer in transfers:
        manager.start(transfer.fill(random.Random(1)) if transfer.write else transfer)
    await ClockCycles(dut.clk, 200)
    assert [t.identity for t in manager.order] == [2, 2], "only the other ID may have its answers"
    assert targets[1].seen == 2 and not targets[1].reads, "the second target has done its work"
    targets[0].answer_r = targets[0].answer_b = True
    for transfer in transfers:
        await with_timeout(transfer.done.wait(), 1000, "ns")
    for slow, behind, other in (transfers[:3], transfers[3:]):
        assert other.finished < slow.finished < behind.finished


@cocotb.test(timeout_time=100, timeout_unit="us")
@cocotb.parametrize(pause=[0.0, 0.5])
async def test_target_that_reorders(dut, pause):
    """A target answers IDs in any order and interleaves read beats: each beat reaches its transfer, IDs in order."""
    choice = random.Random(SEED)

    def pick(candidates):
        return choice.randrange(len(candidates)) if candidates and choice.random() < 0.7 else None

    for x in range(2):
        ScriptedTarget(dut, f"target__{x}", pick)
    managers = [Manager(dut, f"manager__{x}", hook(pause, SEED + x), hook(pause, SEED + 9 + x)) for x in range(2)]
    await reset(dut)
    generator, shadows, reordered = random.Random(SEED + 1), [bytearray(2 * REGION) for _ in managers], 0
    for write in (True, False):
        started = []
        for n, (x, manager) in itertools.product(range(24), enumerate(managers)):
            # Every manager has its own 32 KiB, every ID its own page in it.
            address = REGION * (n & 1) + 0x8000 * x + 0x1000 * (n % 8) + generator.randrange(3900)
            t = Transfer(write, n % 8, address, generator.randint(1, 20))
            started.append((x, manager.start(t.fill(generator) if write else t)))
        for x, t in started:
            await with_timeout(t.done.wait(), 20000, "ns")
            assert set(t.responses) == {OKAY}
            if write:
                t.apply(shadows[x])
        for x, t in started:
            assert write or t.matches(shadows[x]), t
        for x in range(len(managers)):
            mine = [t for where, t in started if where == x]
            for identity in range(8):
                ended = [t.finished for t in mine if t.identity == identity]
                assert ended == sorted(ended), "order within an ID"
            finished = [t.finished for t in mine]
            reordered += finished != sorted(finished)
    assert reordered, "nothing was reordered"


@cocotb.test(timeout_time=100, timeout_unit="us")
@cocotb.parametrize(way=["together", "data_first", "address_first"])
async def test_address_and_data(dut, way):
    """A target that takes address and data only together, data before the address, or the address first."""
    targets = [ScriptedTarget(dut, f"target__{x}") for x in range(2)]
    manager = Manager(dut, "manager__0")
    Manager(dut, "manager__1")
    await reset(dut)
    target, shadow = targets[0], bytearray(REGION)
    target.together = way == "together"
    generator = random.Random(SEED)
    for beats in (1, 2, 16, 33):
        if way == "data_first":
            target.take_aw = False
        if way == "address_first":
            target.take_w = False
        t = manager.start(Transfer(True, 3, 4 * generator.randrange(900), beats).fill(generator))
        await ClockCycles(dut.clk, 60)
        if way == "data_first":
            assert target.words and not target.writes, "data stand at the target while it waits for them"
        if way == "address_first":
            assert target.writes and not target.words
        target.take_aw = target.take_w = True
        await with_timeout(t.done.wait(), 2000, "ns")
        t.apply(shadow)
        assert t.responses == [OKAY]
    assert all(shadow[address] == value for address, value in target.memory.items()) and target.seen == 1 + 1 + 1 + 3
