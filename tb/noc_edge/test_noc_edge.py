"""A mesh over two chips behaves as one: nothing lost, doubled or reordered, whatever happens to the lanes."""

import itertools
import random

import cocotb
import pyuvm
from cocotb.triggers import ClockCycles, RisingEdge

from golden import noc as golden
from tb.common.stream import never
from tb.mesh import test_mesh, traffic

CONFIG, SEED, ENDPOINTS = traffic.CONFIG, traffic.SEED, traffic.ENDPOINTS
ERRORS = round(2**32 * 0.03)  # chance of a damaged beat


async def start(dut, idle=0.0, pause=0.0, error_rate=0):
    dut.error_rate.value, dut.cut.value = error_rate, 0
    tb = traffic.TB(dut, idle, pause)
    await tb.reset()
    return tb


def crosses(source, nodes):
    """Whether a flit goes over the edge between columns 1 and 2."""
    return any((x < 2) != (source[0] < 2) for x, _ in nodes)


@cocotb.test(timeout_time=100, timeout_unit="us")
async def test_every_pair(dut):
    """Each source to each endpoint on each class; inside a chip with the mesh's latency to the cycle."""
    tb = await start(dut)
    while int(dut.up.value) != 3:
        await RisingEdge(dut.clk)
    sent = []
    for (s, source), (t, target) in itertools.product(enumerate(ENDPOINTS), enumerate(ENDPOINTS)):
        kind = (s + t) % CONFIG.classes
        value = traffic.flit(traffic.goal(target[:2], port=target[2]), (s * 16 + t) * 0x1234567)
        begin = tb.now()
        tb.sources[s, kind].put(value)
        while len(tb.received) == len(sent):
            await RisingEdge(dut.clk)
        sent.append((s, kind, value))
        taken = tb.received[-1][2] - begin
        hops = abs(source[0] - target[0]) + abs(source[1] - target[1])
        if crosses(source, [target[:2]]):
            assert golden.latency(hops) < taken < golden.latency(hops) + 40, f"{source} to {target}: {taken} cycles"
        else:
            assert taken == golden.latency(hops) + 2, f"{source} to {target}: {taken} cycles"
    traffic.check(sent, tb.received)


def mixed(generator, packets):
    """Random packets and multicast; returns what is sent and how many arrivals there are, some over the edge."""
    sent = traffic.random_traffic(generator, packets, multicast=0.3)
    goals = [(s, golden.targets(v["header"]["destination"], CONFIG.columns, CONFIG.rows)) for s, _, v in sent]
    assert sum(crosses(ENDPOINTS[s], nodes) and len(nodes) > 1 for s, nodes in goals) > packets // 10
    return sent, sum(len(nodes) for _, nodes in goals)


@cocotb.test(timeout_time=100, timeout_unit="us")
@cocotb.parametrize(idle=[0.0, 0.6], pause=[0.0, 0.7])
async def test_random_mix(dut, idle, pause):
    """Unicast packets and multicast from everywhere, with stalls on every port and damaged frames."""
    tb = await start(dut, idle, pause, ERRORS)
    sent, arrivals = mixed(random.Random(SEED), 150)
    tb.send(sent)
    await tb.drain(arrivals, 20000)
    traffic.check(sent, tb.received)
    assert int(dut.retries__0.value) + int(dut.retries__1.value) > 3


@cocotb.test(timeout_time=100, timeout_unit="us")
async def test_down_and_up(dut):
    """The lanes are cut in the middle of unicast and multicast traffic, twice: it waits, and it all arrives."""
    tb = await start(dut, error_rate=ERRORS // 3)
    sent, arrivals = mixed(random.Random(SEED + 1), 400)
    tb.send(sent)
    for wait in (150, 300):
        await ClockCycles(dut.clk, wait)
        before = len(tb.received)
        assert 0 < before < arrivals, "the cut comes in the middle"
        dut.cut.value = 1
        await ClockCycles(dut.clk, 500)
        assert int(dut.up.value) == 0
        dut.cut.value = 0
    await tb.drain(arrivals, 20000)
    traffic.check(sent, tb.received)
    assert int(dut.up.value) == 3


@cocotb.test(timeout_time=100, timeout_unit="us")
async def test_classes_do_not_block(dut):
    """Class 0 is stuck at every receiver, and full up to its senders: class 1 passes; then class 0 arrives whole."""
    tb = await start(dut)
    for index in range(len(ENDPOINTS)):
        tb.sinks[index, 0].pause = itertools.repeat(True)
    stuck, free = [], []
    for s, (t, target) in itertools.product(range(len(ENDPOINTS)), enumerate(ENDPOINTS)):
        stuck += [(s, 0, traffic.flit(traffic.goal(target[:2]), 1000 * t + n)) for n in range(24)]
        free.append((s, 1, traffic.flit(traffic.goal(target[:2]), 100 * s + t)))
    for s, kind, value in stuck:
        tb.sources[s, kind].put(value)
    await ClockCycles(dut.clk, 1500)
    for s, kind, value in free:
        tb.sources[s, kind].put(value)
    await tb.drain(len(free), 5000)
    traffic.check(free, tb.received)
    for index in range(len(ENDPOINTS)):
        tb.sinks[index, 0].pause = never()
    await tb.drain(len(free) + len(stuck), 20000)
    traffic.check(free + stuck, tb.received)


@cocotb.test(timeout_time=100, timeout_unit="us")
async def test_rate(dut):
    """One way over the edge: a flit in each frame time, round trip and credits notwithstanding."""
    tb = await start(dut)
    while int(dut.up.value) != 3:
        await RisingEdge(dut.clk)
    for n in range(300):
        tb.sources[0, 0].put(traffic.flit(traffic.goal((3, 0)), n))
    while len(tb.received) < 100:
        await RisingEdge(dut.clk)
    begin = tb.now()
    while len(tb.received) < 300:
        await RisingEdge(dut.clk)
    assert tb.now() - begin <= 3 * 200 + 10, f"200 flits in {tb.now() - begin} cycles"
    await tb.drain(300)


@pyuvm.test(timeout_time=100, timeout_unit="us")
class test_environment(test_mesh.test_environment):
    """The random mix through the pyuvm agents, over lanes with errors."""

    async def run_phase(self):
        cocotb.top.error_rate.value, cocotb.top.cut.value = ERRORS, 0
        await super().run_phase()


@pyuvm.test(timeout_time=100, timeout_unit="us", expect_error=AssertionError)
class test_wrong_expectation_fails(test_environment):
    """One expected payload is wrong: the scoreboard has to notice."""

    corrupt = 1
