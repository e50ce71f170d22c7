"""The group quantiser against `golden.quantise_groups`, through its streams."""

import os
from pathlib import Path

import cocotb
import numpy as np
import pyuvm
from cocotb.triggers import ClockCycles, with_timeout
from pyuvm import uvm_env, uvm_test

from golden.formats import FORMATS
from hw.numerics.divide import Divide
from hw.numerics.formats import ElementFormat, FormatSet
from hw.numerics.quantise_groups import QuantiseGroups
from tb.common.clock import start_clock
from tb.common.coverage import Coverage, load_testplan
from tb.common.scoreboard import Scoreboard
from tb.common.stream import StreamAgent, StreamPort, StreamSequence, StreamSink, StreamSource, randomly
from tb.quantise_groups import vectors

FORMAT_NAMES = os.environ["FORMATS"].split(",")
GROUPS = int(os.environ["GROUPS"])
SEED = int(os.environ.get("SERRANO_SEED", "1"))
TESTPLAN = load_testplan(Path(__file__).with_name("testplan.toml"))
STREAMS = QuantiseGroups(FormatSet(FORMAT_NAMES)).signature.members
IN, OUT = (STREAMS[port].signature.members["payload"].shape.size for port in "io")  # bits: items are integers here
TENSOR_SCALE = 0x3F9D70A4
PER_VALUE = Divide.cycles + 20


async def start(dut) -> None:
    dut.rst.value = 1
    dut.tensor_scale.value = TENSOR_SCALE
    start_clock(dut.clk)
    await ClockCycles(dut.clk, 2)
    dut.rst.value = 0


def stream_in(group: vectors.Group) -> list[int]:
    return [int(value) | ElementFormat[group.format.name].value << 32 for value in group.values]


def stream_out(group: vectors.Group) -> list[int]:
    return [int(code) | group.scale << 8 for code in group.codes]


@cocotb.test()
async def test_every_format(dut):
    """Ordinary, tied, subnormal, huge, zero and special groups of every format."""
    source, sink = StreamSource(StreamPort(dut, "i", IN)), StreamSink(StreamPort(dut, "o", OUT))
    await start(dut)
    for name in FORMAT_NAMES:
        rng = np.random.default_rng([SEED, len(name)])
        for group in vectors.groups(FORMATS[name], GROUPS, TENSOR_SCALE, rng):
            for item in stream_in(group):
                source.put(item)
            for position, expected in enumerate(stream_out(group)):
                found = await with_timeout(sink.receive(), 300 * PER_VALUE, "ns")
                assert int(found) == expected, (
                    f"{name}, value {position} ({int(group.values[position]):#x}) of {group.values}: "
                    f"expected {expected:#x}, found {int(found):#x}"
                )


class GroupsEnvironment(uvm_env):
    def build_phase(self):
        dut = cocotb.top
        self.coverage = Coverage(TESTPLAN)
        self.scoreboard = Scoreboard("scoreboard", self)
        self.source = StreamAgent("source", self, StreamPort(dut, "i", IN), "source", randomly(0.3, SEED), dut.rst)
        self.sink = StreamAgent("sink", self, StreamPort(dut, "o", OUT), "sink", randomly(0.4, SEED + 1), dut.rst)

    def connect_phase(self):
        self.sink.analysis_port.connect(self.scoreboard.analysis_export)


@pyuvm.test()
class test_random(uvm_test):
    """Groups of mixed formats, with idles and back-pressure; every format seen."""

    corrupt = 0

    def build_phase(self):
        self.environment = GroupsEnvironment("environment", self)

    async def run_phase(self):
        self.raise_objection()
        dut, environment = cocotb.top, self.environment
        await start(dut)
        rng = np.random.default_rng([SEED, 6])
        jobs = [group for name in FORMAT_NAMES for group in vectors.groups(FORMATS[name], 1, TENSOR_SCALE, rng)]
        items = []
        for index in rng.permutation(len(jobs)):
            group = jobs[index]
            environment.coverage.hit("format", group.format.name)
            items += stream_in(group)
            for expected in stream_out(group):
                environment.scoreboard.expect(expected ^ self.corrupt)
        await StreamSequence(items).start(environment.source.sequencer)
        await ClockCycles(dut.clk, 140 * (PER_VALUE + 4))
        self.drop_objection()

    def check_phase(self):
        holes = self.environment.coverage.holes()
        assert self.corrupt or not holes, f"never seen: {holes}"


@pyuvm.test(expect_error=AssertionError)
class test_wrong_golden_fails(test_random):
    """The golden codes are wrong: the scoreboard has to notice."""

    corrupt = 1
