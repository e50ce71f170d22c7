"""Tests of the ordered gather: turn by turn in the defined order, whoever is slow."""

import itertools
import os
import random
from pathlib import Path

import cocotb
import pyuvm
from cocotb.triggers import ClockCycles, RisingEdge
from pyuvm import uvm_env, uvm_test

from hw.noc.gather import item_layout
from tb.common.clock import start_clock
from tb.common.coverage import Coverage, load_testplan
from tb.common.scoreboard import Scoreboard
from tb.common.stream import StreamAgent, StreamPort, StreamSequence, StreamSink, StreamSource, never, randomly
from tb.noc_gather.bench import CONFIG, DEPTH, SOURCES

SEED = int(os.environ.get("SERRANO_SEED", "1"))
TESTPLAN = load_testplan(Path(__file__).with_name("testplan.toml"))
ITEM = item_layout(CONFIG)


LENGTHS = (1, 1, 2, 3, DEPTH, 3 * DEPTH)


def turns(generator, rounds, lengths=LENGTHS):
    """Items of each source, and all of them in the order in which they have to come out."""
    queues, merged = [[] for _ in SOURCES], []
    for turn, index in itertools.product(range(rounds), range(len(SOURCES))):
        length = generator.choice(lengths)
        items = [
            {"payload": (turn << 12 | index << 8 | n) & 0xFFFF, "last": int(n == length - 1)} for n in range(length)
        ]
        queues[index] += items
        merged += items
    return queues, merged


async def start(dut):
    dut.rst.value = 1
    dut.arrive.value = 0
    start_clock(dut.clk)
    await ClockCycles(dut.clk, 2)
    dut.rst.value = 0
    await RisingEdge(dut.clk)


async def gather(dut, idles, pause, rounds=12, lengths=LENGTHS, limit=20000):
    queues, merged = turns(random.Random(SEED), rounds, lengths)
    sink = StreamSink(StreamPort(dut, "o", ITEM), pause)
    sources = [StreamSource(StreamPort(dut, f"i__{index}", ITEM), idle) for index, idle in enumerate(idles)]
    await start(dut)
    sink.received.clear()
    for source, items in zip(sources, queues, strict=True):
        for item in items:
            source.put(item)
    begin = cocotb.utils.get_sim_time("ns")
    for _ in range(limit):
        await RisingEdge(dut.clk)
        if len(sink.received) >= len(merged):
            break
    cycles = cocotb.utils.get_sim_time("ns") - begin
    await ClockCycles(dut.clk, 30)
    found, wanted = ([(item["payload"], item["last"]) for item in items] for items in (sink.received, merged))
    assert found == wanted and wanted
    return len(merged), cycles


@cocotb.test(timeout_time=100, timeout_unit="us")
@cocotb.parametrize(idle=[0.0, 0.7], pause=[0.0, 0.6])
async def test_order(dut, idle, pause):
    idles = [randomly(idle, SEED + n) if idle else never() for n in range(len(SOURCES))]
    await gather(dut, idles, randomly(pause, SEED + 9) if pause else never())


@cocotb.test(timeout_time=100, timeout_unit="us")
@cocotb.parametrize(slow=list(range(4)))
async def test_slow_source(dut, slow):
    """One source starts long after the others: they fill their own places, and nothing jams."""
    idles = [itertools.chain([True] * 300, never()) if n == slow else never() for n in range(len(SOURCES))]
    await gather(dut, idles, never())


@cocotb.test(timeout_time=100, timeout_unit="us")
async def test_rate(dut):
    """Short turns and nobody slow: the sources' places together cover the round trip, most cycles deliver an item."""
    items, cycles = await gather(dut, [never() for _ in SOURCES], never(), rounds=16, lengths=(1, 2))
    assert cycles < 1.3 * items + 30, f"{items} items took {cycles} cycles"


@cocotb.test(timeout_time=100, timeout_unit="us")
async def test_barrier(dut):
    """Over the mesh, beside a gather: nobody is released before everybody arrived, each once for each arrival."""
    rounds, generator = 15, random.Random(SEED + 2)
    other = cocotb.start_soon(gather(dut, [randomly(0.3, n) for n in range(len(SOURCES))], randomly(0.3, SEED)))
    await ClockCycles(dut.clk, 4)
    arrived, released, waits = [0] * CONFIG.nodes, [0] * CONFIG.nodes, [False] * CONFIG.nodes
    while min(released) < rounds:
        arrive = 0
        for node in range(CONFIG.nodes):
            able = not waits[node] and arrived[node] < rounds and int(dut.ready.value) >> node & 1
            if able and generator.random() < 0.1:
                arrive |= 1 << node
                arrived[node] += 1
                waits[node] = True
        dut.arrive.value = arrive
        await RisingEdge(dut.clk)
        for node in range(CONFIG.nodes):
            if int(dut.released.value) >> node & 1:
                released[node] += 1
                waits[node] = False
                assert released[node] <= min(arrived), f"node {node} was released before everybody arrived"
    dut.arrive.value = 0
    await other
    assert arrived == released == [rounds] * CONFIG.nodes


class GatherEnvironment(uvm_env):
    def build_phase(self):
        dut = cocotb.top
        self.coverage = Coverage(TESTPLAN)
        self.scoreboard = Scoreboard("scoreboard", self)
        self.sources = [
            StreamAgent(
                f"source_{n}", self, StreamPort(dut, f"i__{n}", ITEM), "source", randomly(0.4, SEED + n), dut.rst
            )
            for n in range(len(SOURCES))
        ]
        self.sink = StreamAgent("sink", self, StreamPort(dut, "o", ITEM), "sink", randomly(0.3, SEED + 7), dut.rst)

    def connect_phase(self):
        self.sink.analysis_port.connect(self.scoreboard.analysis_export)


@pyuvm.test(timeout_time=100, timeout_unit="us")
class test_environment(uvm_test):
    """Random turns through the pyuvm agents; turns of every length seen."""

    swap = False

    def build_phase(self):
        self.environment = GatherEnvironment("environment", self)

    async def run_phase(self):
        self.raise_objection()
        environment = self.environment
        queues, merged = turns(random.Random(SEED + 1), 14)
        if self.swap:
            merged[20], merged[21] = merged[21], merged[20]
        for item in merged:
            environment.scoreboard.expect(item)
        lengths = [len(list(group)) for _, group in itertools.groupby(merged, lambda item: item["payload"] >> 8)]
        for length in lengths:
            environment.coverage.hit("turn", "one" if length == 1 else "some" if length <= DEPTH else "long")
        await start(cocotb.top)
        runs = [
            cocotb.start_soon(StreamSequence(items).start(agent.sequencer))
            for items, agent in zip(queues, environment.sources, strict=True)
        ]
        for run in runs:
            await run
        await ClockCycles(cocotb.top.clk, 400)
        self.drop_objection()

    def check_phase(self):
        holes = self.environment.coverage.holes()
        assert self.swap or not holes, f"never seen: {holes}"


@pyuvm.test(timeout_time=100, timeout_unit="us", expect_error=AssertionError)
class test_wrong_order_fails(test_environment):
    """Two items change places in what is expected: the scoreboard has to notice."""

    swap = True
