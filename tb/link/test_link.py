"""Tests of the chip-to-chip link: nothing lost, doubled or reordered, whatever happens to the lanes."""

import itertools
import json
import os
import random
import zlib
from pathlib import Path

import cocotb
import pyuvm
from cocotb.triggers import ClockCycles, RisingEdge, Timer
from pyuvm import uvm_env, uvm_test

from hw.noc.link import frame_beats
from tb.common.clock import start_clock
from tb.common.coverage import Coverage, load_testplan
from tb.common.scoreboard import Scoreboard
from tb.common.stream import StreamAgent, StreamPort, StreamSequence, StreamSink, StreamSource, never, randomly
from tb.link import SHAPES

WIDTH, LANES, WINDOW, LATENCY = SHAPES[os.environ.get("LINK", "link_64")]
SEED = int(os.environ.get("SERRANO_SEED", "1"))
TESTPLAN = load_testplan(Path(__file__).with_name("testplan.toml"))
BEATS = frame_beats(WIDTH, WINDOW, LANES)


def beat_rate(ber):
    """Chance, times 2^32, that a beat has a wrong bit at a bit error rate `ber`."""
    return round(ber * (LANES + 1) * 2**32)


async def start(dut, error_rate=0):
    dut.flood.value = dut.cut.value = dut.send__0__valid.value = dut.send__1__valid.value = 0
    dut.error_rate.value = error_rate
    dut.rst.value = 1
    start_clock(dut.clk)
    await ClockCycles(dut.clk, 4)
    dut.rst.value = 0
    await RisingEdge(dut.clk)


class TB:
    """A source and a sink at both ends."""

    def __init__(self, dut, idle=0.0, pause=0.0):
        self.dut = dut
        self.sources = [
            StreamSource(StreamPort(dut, f"send__{end}", WIDTH), randomly(idle, SEED + end) if idle else never())
            for end in range(2)
        ]
        self.sinks = [
            StreamSink(StreamPort(dut, f"receive__{end}", WIDTH), randomly(pause, SEED + 7 + end) if pause else never())
            for end in range(2)
        ]

    async def reset(self, error_rate=0):
        await start(self.dut, error_rate)
        for sink in self.sinks:
            sink.received.clear()

    async def exchange(self, count, limit=60000):
        """Send `count` random payloads each way and compare what arrives."""
        generator = random.Random(SEED)
        sent = [[generator.getrandbits(WIDTH) for _ in range(count)] for _ in range(2)]
        for source, values in zip(self.sources, sent, strict=True):
            for value in values:
                source.put(value)
        for _ in range(limit):
            if all(len(sink.received) >= count for sink in self.sinks):
                break
            await RisingEdge(self.dut.clk)
        await ClockCycles(self.dut.clk, 200)
        assert list(self.sinks[1].received) == sent[0]
        assert list(self.sinks[0].received) == sent[1]


@cocotb.test()
async def test_training(dut):
    """Both ends come up; payloads given before that wait and arrive."""
    tb = TB(dut)
    await tb.reset()
    assert int(dut.up.value) == 0
    await tb.exchange(10)
    assert int(dut.up.value) == 3


@cocotb.test()
async def test_frames_on_the_lanes(dut):
    """The CRC on the lanes is zlib's CRC-32 of the beats before it; frames have the length that is promised."""
    tb = TB(dut)
    await tb.reset()
    lanes, first = dut.end_tx, dut.end_tx_first
    tb.sources[0].put(0x123456789)
    frames, words = 0, []
    for _ in range(60 * BEATS):
        await RisingEdge(dut.clk)
        if int(first.value):
            if len(words) == BEATS:
                content = BEATS - max(1, 32 // LANES)
                bits = sum(word << (LANES * index) for index, word in enumerate(words))
                data = (bits & ((1 << LANES * content) - 1)).to_bytes(LANES * content // 8, "little")
                assert (bits >> (LANES * content)) & 0xFFFFFFFF == zlib.crc32(data)
                frames += 1
            words = []
        words.append(int(lanes.value))
    assert frames > 50


@cocotb.test()
@cocotb.parametrize(idle=[0.0, 0.6], pause=[0.0, 0.7])
async def test_errors(dut, idle, pause):
    """Random payloads both ways while one frame in a few is damaged."""
    tb = TB(dut, idle, pause)
    await tb.reset(round(2**32 * 0.05))
    await tb.exchange(150)
    assert int(dut.errors.value) > 10 and int(dut.retries__0.value) > 3


@cocotb.test()
async def test_down_and_up(dut):
    """The lanes are cut for a while, three times, during traffic: the link goes down and comes back, losing nothing."""
    tb = TB(dut)
    await tb.reset(round(2**32 * 0.01))
    cutter = cocotb.start_soon(_cut(dut))
    await tb.exchange(1500)
    await cutter
    assert int(dut.up.value) == 3


async def _cut(dut):
    for _ in range(3):
        await ClockCycles(dut.clk, 300)
        dut.cut.value = 1
        await ClockCycles(dut.clk, 400)
        assert int(dut.up.value) == 0
        dut.cut.value = 0
    for _ in range(2000):
        await RisingEdge(dut.clk)
        if int(dut.up.value) == 3:
            return


@cocotb.test()
async def test_stuck_receiver(dut):
    """A receiver that takes nothing: at most the window is sent, and it all arrives later."""
    tb = TB(dut)
    await tb.reset()
    tb.sinks[1].pause = itertools.chain([True] * 1500, never())
    await tb.exchange(3 * WINDOW)


@cocotb.test()
async def test_flood(dut):
    """Full rate without errors; with RATES in the environment, counts at those bit error rates go to RESULTS."""
    rates = json.loads(os.environ.get("RATES", "[0]"))
    results = []
    for ber in rates:
        await start(dut, beat_rate(ber))
        dut.flood.value = 1
        await Timer(2000, "ns")
        first = int(dut.count.value)
        cycles = int(os.environ.get("CYCLES", "6000"))
        await Timer(cycles, "ns")
        count = int(dut.count.value) - first
        assert int(dut.wrong.value) == 0 and count
        results.append({"ber": ber, "count": count, "cycles": cycles, "errors": int(dut.errors.value),
                        "retries": int(dut.retries__0.value)})  # fmt: skip
        if ber == 0:
            assert abs(count - cycles / BEATS) <= 1, f"{count} payloads in {cycles} cycles"
    if "RESULTS" in os.environ:
        Path(os.environ["RESULTS"]).write_text(json.dumps(results))


class LinkEnvironment(uvm_env):
    def build_phase(self):
        dut = cocotb.top
        self.coverage = Coverage(TESTPLAN)
        self.scoreboard = Scoreboard("scoreboard", self)
        self.source = StreamAgent(
            "source", self, StreamPort(dut, "send__0", WIDTH), "source", randomly(0.3, SEED), dut.rst
        )
        self.sink = StreamAgent(
            "sink", self, StreamPort(dut, "receive__1", WIDTH), "sink", randomly(0.3, SEED), dut.rst
        )

    def connect_phase(self):
        self.sink.analysis_port.connect(self.scoreboard.analysis_export)


@pyuvm.test()
class test_environment(uvm_test):
    """Random payloads over lanes with errors and a cut, through the pyuvm agents; every state of the link seen."""

    corrupt = 0

    def build_phase(self):
        self.environment = LinkEnvironment("environment", self)

    async def run_phase(self):
        self.raise_objection()
        dut, environment = cocotb.top, self.environment
        await start(dut, round(2**32 * 0.03))
        watcher = cocotb.start_soon(self.watch(dut, environment.coverage))
        values = [(index * 0x9E3779B97F4A7C15) % (1 << WIDTH) for index in range(200)]
        for index, value in enumerate(values):
            environment.scoreboard.expect(value ^ (self.corrupt if index == 90 else 0))
        run = cocotb.start_soon(StreamSequence(values).start(environment.source.sequencer))
        await ClockCycles(dut.clk, 500)
        dut.cut.value = 1
        await ClockCycles(dut.clk, 300)
        dut.cut.value = 0
        await run
        await ClockCycles(dut.clk, 3000)
        watcher.cancel()
        self.drop_objection()

    async def watch(self, dut, coverage):
        retries = 0
        while True:
            await RisingEdge(dut.clk)
            coverage.hit("state", "up" if int(dut.up.value) == 3 else "down")
            if int(dut.retries__0.value) > retries:
                retries = int(dut.retries__0.value)
                coverage.hit("state", "retry")

    def check_phase(self):
        holes = self.environment.coverage.holes()
        assert self.corrupt or not holes, f"never seen: {holes}"


@pyuvm.test(expect_error=AssertionError)
class test_wrong_expectation_fails(test_environment):
    """One expected payload is wrong: the scoreboard has to notice."""

    corrupt = 1
