"""Directed and pyuvm tests of the stream queue; the shortest complete example of a testbench in this project."""

import os
import random
from pathlib import Path

import cocotb
import pyuvm
from cocotb.triggers import ClockCycles, RisingEdge
from pyuvm import uvm_env, uvm_test

from tb.common.clock import start_clock
from tb.common.coverage import Coverage, load_testplan
from tb.common.scoreboard import Scoreboard
from tb.common.stream import StreamAgent, StreamPort, StreamSequence, StreamSink, StreamSource, randomly

DEPTH = int(os.environ.get("DEPTH", "5"))
SEED = int(os.environ.get("SERRANO_SEED", "1"))
TESTPLAN = load_testplan(Path(__file__).with_name("testplan.toml"))


class TB:
    """Owns the agents of one run."""

    def __init__(self, dut, idle=None, pause=None):
        self.dut = dut
        self.source = StreamSource(StreamPort(dut, "i", 16), idle)
        self.sink = StreamSink(StreamPort(dut, "o", 16), pause)

    async def reset(self):
        self.dut.rst.value = 1
        start_clock(self.dut.clk)
        await ClockCycles(self.dut.clk, 2)
        self.dut.rst.value = 0


@cocotb.test()
@cocotb.parametrize(idle=[0.0, 0.5], pause=[0.0, 0.5])
async def test_order_and_pauses(dut, idle, pause):
    tb = TB(dut, randomly(idle, SEED), randomly(pause, SEED + 1))
    await tb.reset()
    sent = list(range(100, 100 + 8 * DEPTH))
    for value in sent:
        tb.source.put(value)
    assert [await tb.sink.receive() for _ in sent] == sent


@cocotb.test()
async def test_full_throughput(dut):
    tb = TB(dut)
    await tb.reset()
    for value in range(64):
        tb.source.put(value)
    await tb.sink.receive()
    start = cocotb.utils.get_sim_time("ns")
    for _ in range(63):
        await tb.sink.receive()
    assert cocotb.utils.get_sim_time("ns") - start == 63


class FifoEnvironment(uvm_env):
    def build_phase(self):
        dut = cocotb.top
        self.coverage = Coverage(TESTPLAN)
        self.scoreboard = Scoreboard("scoreboard", self)
        self.source = StreamAgent("source", self, StreamPort(dut, "i", 16), "source", randomly(0.4, SEED), dut.rst)
        self.sink = StreamAgent("sink", self, StreamPort(dut, "o", 16), "sink", randomly(0.6, SEED + 1), dut.rst)

    def connect_phase(self):
        self.sink.analysis_port.connect(self.scoreboard.analysis_export)


@pyuvm.test()
class test_random(uvm_test):
    """Random values, idles and pauses; every level of the queue seen."""

    corrupt = 0

    def build_phase(self):
        self.environment = FifoEnvironment("environment", self)

    async def run_phase(self):
        self.raise_objection()
        dut, environment = cocotb.top, self.environment
        dut.rst.value = 1
        start_clock(dut.clk)
        await ClockCycles(dut.clk, 2)
        dut.rst.value = 0
        cocotb.start_soon(self.sample(dut, environment.coverage))
        generator = random.Random(SEED)
        values = [generator.getrandbits(16) for _ in range(400)]
        for index, value in enumerate(values):
            environment.scoreboard.expect(value ^ (self.corrupt if index == 200 else 0))
        await StreamSequence(values).start(environment.source.sequencer)
        await ClockCycles(dut.clk, 20 * DEPTH)
        self.drop_objection()

    async def sample(self, dut, coverage):
        while True:
            await RisingEdge(dut.clk)
            level = int(dut.level.value)
            coverage.hit("level", "empty" if level == 0 else "full" if level == DEPTH else "middle")

    def check_phase(self):
        holes = self.environment.coverage.holes()
        assert self.corrupt or not holes, f"never seen: {holes}"


@pyuvm.test(expect_error=AssertionError)
class test_wrong_expectation_fails(test_random):
    """The golden values are wrong in one place: the scoreboard has to notice."""

    corrupt = 1
