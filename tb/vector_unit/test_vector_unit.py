"""Directed and pyuvm tests of the vector unit: commands between places in its memory and its streams."""

import os
import random
from pathlib import Path

import cocotb
import numpy as np
import pyuvm
from amaranth.lib import data
from cocotb.triggers import ClockCycles, RisingEdge
from pyuvm import uvm_env, uvm_test

from golden import vector
from golden.fp32_ops import from_float
from hw.vector.engine import result_layout
from hw.vector.isa import STREAMS
from hw.vector.unit import UnitCommand, load_layout
from tb.common.coverage import Coverage, load_testplan
from tb.common.scoreboard import Scoreboard
from tb.common.stream import StreamAgent, StreamPort, StreamSink, StreamSource, randomly
from tb.vector.engine import any_pass
from tb.vector.lower import kept, lower
from tb.vector.units import SEED, reset

LANES, DEPTH = int(os.environ.get("VECTOR_LANES", "2")), 1024
TESTPLAN = Path(__file__).with_name("testplan.toml")
BEAT = data.ArrayLayout(32, LANES)


class TB:
    """Drives a unit: loads operands, runs golden passes, and reads back what they wrote; `cycles` of the last one."""

    def __init__(self, dut, idle=0.0, pause=0.0):
        self.dut, self.cycles = dut, 0
        self.command = StreamSource(StreamPort(dut, "command", UnitCommand), randomly(idle, SEED))
        self.load = StreamSource(StreamPort(dut, "load", load_layout(LANES)), randomly(idle, SEED + 1))
        self.operands = {
            name: StreamSource(StreamPort(dut, name, BEAT), randomly(idle, SEED + i)) for i, name in enumerate(STREAMS)
        }
        self.result = StreamSink(StreamPort(dut, "result", result_layout(LANES)), randomly(pause, SEED + 7))

    async def write(self, address, beats):
        for index, beat in enumerate(beats):
            await self.load.send({"address": address + index, "elements": dict(enumerate(beat))})

    async def read(self, address):
        self.dut.read.value = address
        await ClockCycles(self.dut.clk, 2)
        word = int(self.dut.data.value)
        return [word >> 32 * lane & 0xFFFFFFFF for lane in range(LANES)]

    async def run(self, record, external=(), result_external=False, stride=0):
        """One pass: operands into the memory (or the streams in `external`), run, compare what it gives."""
        lowered = lower(record, LANES)
        rows, length = lowered.command["rows"], lowered.command["length"]
        beats = -(-length // LANES)
        places, address = {}, 0
        for index, name in enumerate(STREAMS):
            values = lowered.streams[name]
            places[index] = {"address": address, "stride": beats, "external": int(name in external)}
            if name in external:
                for beat in values:
                    self.operands[name].put(dict(enumerate(beat)))
            else:
                await self.write(address, values)
                address += len(values)
        target = {"address": address, "stride": beats + stride, "external": int(result_external)}
        reduced = address + rows * (beats + stride)
        assert reduced + rows <= DEPTH - 8
        begin = cocotb.utils.get_sim_time("ns")
        done = self.command.put({"engine": lowered.command, "operands": places, "result": target, "reduced": reduced})
        await done.wait()
        self.cycles = int(cocotb.utils.get_sim_time("ns") - begin)
        if result_external:
            for beat in lowered.result:
                assert kept(await self.result.receive()) == beat
        else:
            for index, beat in enumerate(lowered.result):
                place = address + index // beats * (beats + stride) + index % beats
                assert tuple((await self.read(place))[: len(beat)]) == beat
        for index, value in enumerate(lowered.reduced):
            assert (await self.read(reduced + index // LANES))[index % LANES] == value


def recorded(function):
    with vector.recording() as passes:
        function()
    return passes


@cocotb.test()
async def test_functions(dut):
    tb = TB(dut)
    await reset(dut)
    generator = np.random.default_rng(SEED)
    x, y, gain = (from_float(generator.normal(size=shape)) for shape in ((2, 34), (2, 34), 34))
    scores = from_float(generator.normal(size=(3, 64)) * 5)
    visible = np.arange(64) < np.array([[40], [41], [42]])
    for function in (
        lambda: vector.rms_norm(x, gain, from_float(1e-5)[()]),
        lambda: vector.swiglu(x, y),
        lambda: vector.softmax_leaf(scores, visible, from_float(generator.random(64))),
    ):
        for record in recorded(function):
            await tb.run(record)
    assert not int(dut.error.value)


@cocotb.test()
@cocotb.parametrize(idle=[0.0, 0.4], pause=[0.0, 0.5])
async def test_external_streams(dut, idle, pause):
    tb = TB(dut, idle, pause)
    await reset(dut)
    generator = np.random.default_rng(SEED)
    x, y = (from_float(generator.normal(size=(3, 21))) for _ in range(2))
    for record in recorded(lambda: vector.swiglu(x, y)):
        await tb.run(record, external=("a",), result_external=True)
        await tb.run(record, external=("b",), stride=2)


@cocotb.test()
async def test_early_commands(dut):
    """Early commands overlap: results of one are written while the next ones run, and the last waits for all."""
    tb = TB(dut)
    await reset(dut)
    generator = np.random.default_rng(SEED)
    x = from_float(generator.normal(size=(3, 10)))
    exp2, reduce = vector.Function.EXP2, vector.Reduce
    kinds = ((2.0, reduce.SUM), (3.0, reduce.NONE), (5.0, reduce.MAXIMUM), (7.0, reduce.SUM))
    records = [
        recorded(lambda f=f, r=r: vector.vector_pass(x, from_float(f)[()], function=exp2, reduce=r))[0]
        for f, r in kinds
    ]
    lowered = [lower(record, LANES) for record in records]
    await tb.write(0, lowered[0].streams["a"])
    begin, done = cocotb.utils.get_sim_time("ns"), []
    for index, one in enumerate(lowered):
        places = {0: {"address": 0, "stride": 5, "external": 0}}
        target = {"address": 100 + 40 * index, "stride": 5, "external": 0}
        done.append(tb.command.put({
            "engine": one.command, "operands": places, "result": target, "reduced": 130 + 40 * index,
            "early": int(index < len(lowered) - 1),
        }))  # fmt: skip
    await done[-1].wait()
    # Fifteen beats each: one latency in all, not four.
    assert cocotb.utils.get_sim_time("ns") - begin < 4 * (15 + 8) + 70
    await ClockCycles(dut.clk, 2)
    assert int(dut.idle.value)
    for index, one in enumerate(lowered):
        for number, beat in enumerate(one.result):
            assert tuple((await tb.read(100 + 40 * index + number))[: len(beat)]) == beat
        for number, value in enumerate(one.reduced):
            assert (await tb.read(130 + 40 * index + number // LANES))[number % LANES] == value


@cocotb.test()
async def test_refused_command(dut):
    tb = TB(dut)
    await reset(dut)
    x = from_float(np.ones((2, 8)))
    record = recorded(lambda: vector.vector_pass(x, reduce=vector.Reduce.SUM))[0]
    lowered = lower(record, LANES)
    await tb.write(100, [[1, 2]])
    bad = {"engine": {**lowered.command, "rows": 0}, "operands": {0: {"address": 0, "stride": 2, "external": 0}},
           "result": {"address": 100, "stride": 2, "external": 0}, "reduced": 100}  # fmt: skip
    await tb.command.send(bad)
    await ClockCycles(dut.clk, 60)
    assert int(dut.error.value)
    assert await tb.read(100) == [1, 2]
    await tb.run(record)


class UnitEnvironment(uvm_env):
    """The result stream's agent and scoreboard; the other ports are driven by `TB`."""

    def build_phase(self):
        dut = cocotb.top
        self.coverage = Coverage(load_testplan(TESTPLAN))
        self.scoreboard = _Scoreboard("scoreboard", self)
        port = StreamPort(dut, "result", result_layout(LANES))
        self.result = StreamAgent("result_agent", self, port, "passive", None, dut.rst)

    def connect_phase(self):
        self.result.analysis_port.connect(self.scoreboard.analysis_export)


class _Scoreboard(Scoreboard):
    def write(self, value):
        super().write(kept(value))


@pyuvm.test()
class test_random(uvm_test):
    """Random passes; operands and results in memory or on streams; loads into unused places all the while."""

    corrupt = False
    count = 30

    def build_phase(self):
        self.environment = UnitEnvironment("environment", self)

    async def run_phase(self):
        self.raise_objection()
        dut, coverage = cocotb.top, self.environment.coverage
        tb = TB(dut, 0.2, 0.3)
        await reset(dut)
        generator = random.Random(SEED)
        disturber = cocotb.start_soon(self.disturb(dut, tb, coverage))
        for index in range(self.count):
            record = any_pass(generator, LANES)
            external = [name for name in STREAMS if generator.random() < 0.3]
            result_external = generator.random() < 0.5
            stride = generator.choice([0, 0, 1, 3])
            if result_external:
                for beat in lower(record, LANES).result:
                    wrong = self.corrupt and index > 0
                    self.environment.scoreboard.expect((beat[0] ^ 1, *beat[1:]) if wrong else beat)
            coverage.hit("random", "external_result" if result_external else "in_memory")
            if external:
                coverage.hit("random", "external_operand")
            coverage.hit("random", "strided" if stride else "repeated_row")
            await tb.run(record, external, result_external, stride)
        disturber.cancel()
        self.drop_objection()

    async def disturb(self, dut, tb, coverage):
        """Loads beats behind everything that the passes use."""
        index = 0
        while True:
            await tb.load.send({"address": DEPTH - 8 + index % 8, "elements": {0: index}})
            index += 1
            for _ in range(5):
                await RisingEdge(dut.clk)
            if int(dut.command__valid.value):
                coverage.hit("random", "load_during_command")

    def check_phase(self):
        holes = self.environment.coverage.holes()
        assert self.corrupt or not holes, f"never seen: {holes}"


@pyuvm.test(expect_error=AssertionError)
class test_wrong_expectation_fails(test_random):
    """Golden results are wrong: the scoreboard has to notice."""

    corrupt = True
    count = 6
