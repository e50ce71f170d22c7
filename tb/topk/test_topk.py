"""Directed and pyuvm tests of top-k."""

import random
from pathlib import Path

import cocotb
import numpy as np
import pyuvm
from cocotb.triggers import ClockCycles
from pyuvm import uvm_env, uvm_test

from golden.fp32_ops import from_float
from golden.topk import top_k
from hw.vector.topk import Candidate, Chosen
from tb.common.coverage import Coverage, load_testplan
from tb.common.scoreboard import Scoreboard
from tb.common.stream import StreamAgent, StreamPort, StreamSequence, StreamSink, StreamSource, randomly
from tb.vector.units import SEED, SPECIALS, reset

TESTPLAN = Path(__file__).with_name("testplan.toml")
K = 8


def row(values, allowed):
    count = len(values)
    return [{"value": int(v), "allowed": int(a), "last": int(i == count - 1)}
            for i, (v, a) in enumerate(zip(values, allowed, strict=True))]  # fmt: skip


def expected(values, allowed, k):
    """Results as the hardware gives them; places beyond the allowed values are missing."""
    found = top_k(np.array(values, np.uint32), min(k, int(sum(allowed))), np.array(allowed, bool))
    pairs = [(int(v), int(i)) for v, i in zip(found.value, found.index, strict=True)]
    return [*pairs, *[None] * (k - len(pairs))]


def seen(payload):
    return None if payload["missing"] else (payload["value"], payload["index"])


@cocotb.test()
@cocotb.parametrize(pause=[0.0, 0.6])
async def test_specials(dut, pause):
    source = StreamSource(StreamPort(dut, "i", Candidate), randomly(pause / 2, SEED))
    sink = StreamSink(StreamPort(dut, "o", Chosen), randomly(pause, SEED + 1))
    dut.count.value = K
    await reset(dut)
    rows = [
        (SPECIALS, [True] * len(SPECIALS)),
        ([int(from_float(1.0))] * 20, [True] * 20),
        (SPECIALS[::-1], [i % 3 != 0 for i in range(len(SPECIALS))]),
        ([5], [True]),
        ([0x80000000, 0, 0x80000000], [True, True, False]),
    ]
    for values, allowed in rows:
        for item in row(values, allowed):
            source.put(item)
        for index, value in enumerate(expected(values, allowed, K)):
            payload = await sink.receive()
            assert seen(payload) == value
            assert payload["last"] == (index == K - 1)


class _Scoreboard(Scoreboard):
    def write(self, value):
        super().write(seen(value))


class TopKEnvironment(uvm_env):
    def build_phase(self):
        dut = cocotb.top
        self.coverage = Coverage(load_testplan(TESTPLAN))
        self.scoreboard = _Scoreboard("scoreboard", self)
        port = StreamPort(dut, "i", Candidate)
        self.source = StreamAgent("source", self, port, "source", randomly(0.3, SEED), dut.rst)
        self.sink = StreamAgent("sink", self, StreamPort(dut, "o", Chosen), "sink", randomly(0.5, SEED + 1), dut.rst)

    def connect_phase(self):
        self.sink.analysis_port.connect(self.scoreboard.analysis_export)


@pyuvm.test()
class test_random(uvm_test):
    """Random rows, idles and pauses."""

    corrupt = 0

    def build_phase(self):
        self.environment = TopKEnvironment("environment", self)

    async def run_phase(self):
        self.raise_objection()
        dut, environment = cocotb.top, self.environment
        await reset(dut)
        generator = random.Random(SEED)
        for index in range(24):
            k = generator.choice([1, K, generator.randint(2, K - 1)])
            length = generator.choice([generator.randint(1, K), generator.randint(K + 1, 64)])
            masked = generator.random() < 0.5
            # Few different values, so that there are ties.
            values = [int(from_float(generator.randint(-6, 6))) for _ in range(length)]
            allowed = [True, *(not masked or generator.random() < 0.6 for _ in range(length - 1))]
            environment.coverage.hit("rows", {1: "k_1", K: "k_max"}.get(k, "k_between"))
            environment.coverage.hit("rows", "masked" if masked else "open")
            environment.coverage.hit("rows", "short" if length <= K else "long")
            dut.count.value = k
            for value in expected(values, allowed, k):
                wrong = self.corrupt and index == 12
                environment.scoreboard.expect((0, 0) if wrong else value)
            before = environment.sink.monitor.transfers
            await StreamSequence(row(values, allowed)).start(environment.source.sequencer)
            while environment.sink.monitor.transfers < before + k:
                await ClockCycles(dut.clk, 1)
        self.drop_objection()

    def check_phase(self):
        holes = self.environment.coverage.holes()
        assert self.corrupt or not holes, f"never seen: {holes}"


@pyuvm.test(expect_error=AssertionError)
class test_wrong_expectation_fails(test_random):
    """Golden results of one row are wrong: the scoreboard has to notice."""

    corrupt = 1
