"""Directed and pyuvm tests of the vector engine with commands of every kind."""

import random
from pathlib import Path

import cocotb
import numpy as np
import pyuvm
from amaranth.lib import data
from cocotb.triggers import ClockCycles

from golden import vector
from golden.fp32_ops import from_float
from golden.vector import Reduce
from hw.vector.engine import result_layout
from hw.vector.isa import STREAMS, EngineCommand
from tb.common.coverage import load_testplan
from tb.common.stream import StreamPort, StreamSink, StreamSource, randomly
from tb.vector.engine import LANES, EngineTest, any_pass
from tb.vector.lower import beats, kept, lower
from tb.vector.units import SEED, reset

TESTPLAN = Path(__file__).with_name("testplan.toml")
load_testplan(TESTPLAN)


class TB:
    """Sources and sinks of a run without pyuvm."""

    def __init__(self, dut, idle=0.0, pause=0.0):
        self.dut = dut
        beat = data.ArrayLayout(32, LANES)
        self.command = StreamSource(StreamPort(dut, "command", EngineCommand), randomly(idle, SEED))
        self.operands = {
            name: StreamSource(StreamPort(dut, name, beat), randomly(idle, SEED + i)) for i, name in enumerate(STREAMS)
        }
        self.result = StreamSink(StreamPort(dut, "result", result_layout(LANES)), randomly(pause, SEED + 5))
        self.reduced = StreamSink(StreamPort(dut, "reduced", 32), randomly(pause, SEED + 6))

    def start(self, lowered):
        self.command.put(lowered.command)
        for name, values in lowered.streams.items():
            for beat in values:
                self.operands[name].put(dict(enumerate(beat)))

    async def check(self, lowered):
        for beat in lowered.result:
            assert kept(await self.result.receive()) == beat
        for value in lowered.reduced:
            assert await self.reduced.receive() == value


def record(**operands):
    with vector.recording() as passes:
        vector.vector_pass(**operands)
    return passes[0]


@cocotb.test()
@cocotb.parametrize(idle=[0.0, 0.5], pause=[0.0, 0.5])
async def test_sum_of_every_length(dut, idle, pause):
    """The tree's shape depends on the length alone: lengths around the beat, rows back to back."""
    tb = TB(dut, idle, pause)
    await reset(dut)
    generator = np.random.default_rng(SEED)
    for length in [*range(1, 3 * LANES + 2), 127, 128, 129]:
        x = from_float(generator.normal(size=(2, length)) * 1e3)
        lowered = lower(record(x=x, reduce=Reduce.SUM), LANES, write=length % 2 == 0)
        tb.start(lowered)
        await tb.check(lowered)


@cocotb.test()
async def test_one_beat_a_cycle(dut):
    """Rows back to back and commands back to back leave no bubble."""
    tb = TB(dut)
    await reset(dut)
    x = from_float(np.random.default_rng(SEED).normal(size=(4, 32 * LANES)))
    lowered = lower(record(x=x, y=x, reduce=Reduce.SUM), LANES)
    for _ in range(2):
        tb.start(lowered)
    await tb.result.receive()
    begin = cocotb.utils.get_sim_time("ns")
    for _ in range(2 * 4 * 32 - 1):
        await tb.result.receive()
    assert cocotb.utils.get_sim_time("ns") - begin == 2 * 4 * 32 - 1


@cocotb.test()
async def test_outputs_stall_separately(dut):
    """Each output is held back for long while the other one runs; nothing is lost, doubled or changed."""
    tb = TB(dut)
    await reset(dut)
    x = from_float(np.random.default_rng(SEED).normal(size=(6, 2 * LANES)))
    lowered = lower(record(x=x, function=vector.Function.EXP2, reduce=Reduce.SUM), LANES)
    for held in (tb.result, tb.reduced):
        held.pause = iter([True] * 300 + [False] * 100_000)
        tb.start(lowered)
        await tb.check(lowered)
        held.pause = randomly(0.0, SEED)
    await ClockCycles(dut.clk, 100)
    assert not tb.result.received
    assert not tb.reduced.received
    assert not int(dut.busy.value)


@cocotb.test()
@cocotb.parametrize(fault=["no_rows", "empty_row", "too_long", "stream_off", "unknown_source"])
async def test_refused_commands(dut, fault):
    """A command that cannot be done sets `error`, gives nothing, and does not stop the next one."""
    tb = TB(dut)
    await reset(dut)
    good = lower(record(x=from_float([[1.0, 2.0, 3.0]]), reduce=Reduce.SUM), LANES)
    change = {
        "no_rows": {"rows": 0}, "empty_row": {"length": 0}, "too_long": {"length": 1025},
        "stream_off": {"modes": {0: 0, 1: 0, 2: 0, 3: 0}},
        "unknown_source": {"operands": {**good.command["operands"], "v": 12}},
    }[fault]  # fmt: skip
    tb.command.put({**good.command, **change})
    await ClockCycles(dut.clk, 20)
    assert int(dut.error.value)
    assert not int(dut.busy.value)
    tb.start(good)
    await tb.check(good)
    await ClockCycles(dut.clk, 200)
    assert not tb.result.received
    assert not tb.reduced.received


@cocotb.test()
async def test_quiet_after_work(dut):
    """Three commands of different shapes back to back, then a thousand cycles without a transfer."""
    tb = TB(dut)
    await reset(dut)
    generator = np.random.default_rng(SEED)
    for rows, length in ((3, 5), (1, 4 * LANES), (LANES + 1, 1)):
        x, y = (from_float(generator.normal(size=(rows, length))) for _ in range(2))
        lowered = lower(record(x=x, y=y, reduce=Reduce.MAXIMUM), LANES)
        tb.start(lowered)
        await tb.check(lowered)
    await ClockCycles(dut.clk, 1000)
    assert not tb.result.received
    assert not tb.reduced.received


def test_padding_is_not_neutral():
    """The upper lanes of a short beat hold NaN here, so that a result that used them would show."""
    assert beats(np.zeros((1, 1), np.uint32), 2) == [[0, 0xFFFFFFFF]]


@pyuvm.test()
class test_random(EngineTest):
    """Commands of every kind, with idles on every input and pauses on both outputs."""

    testplan = TESTPLAN
    count = 120

    def passes(self, generator):
        draw = random.Random(int(generator.integers(1 << 32)))
        for _ in range(self.count):
            any_pass(draw, LANES, self.coverage)


@pyuvm.test(expect_error=AssertionError)
class test_wrong_expectation_fails(test_random):
    """One golden element is wrong: the scoreboard has to notice."""

    corrupt = True
    count = 3
