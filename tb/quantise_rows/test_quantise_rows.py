"""Rows to activation blocks, against the golden quantiser and the places of the instruction set."""

import os
from pathlib import Path

import cocotb
import numpy as np
import pyuvm
from cocotb.triggers import ClockCycles
from pyuvm import uvm_env, uvm_test

from golden.formats import FORMATS
from golden.fp32_ops import INFINITY, NAN, from_float
from golden.quantise import quantise
from hw.numerics.formats import ElementFormat
from hw.vector.quantise_rows import ActivationWrite, RowsCommand
from tb.common.clock import start_clock
from tb.common.coverage import Coverage, load_testplan
from tb.common.scoreboard import Scoreboard
from tb.common.stream import StreamAgent, StreamPort, StreamSink, StreamSource, randomly
from tb.quantise_rows import ROWS

TESTPLAN = Path(__file__).with_name("testplan.toml")
SEED = int(os.environ.get("SERRANO_SEED", "1"))


def made(generator, name, rows, blocks, base):
    """Command, beats, and the expected (row, address, codes, scale) of random rows, a few of them broken."""
    numbers = generator.normal(size=(rows, 32 * blocks)) * np.exp2(generator.integers(-30, 30, (rows, 32 * blocks)))
    numbers = from_float(numbers)
    if rows > 2:
        numbers[1, 7], numbers[2, -1] = NAN, INFINITY
        numbers[0, :32] = 0
    codes, scales = quantise(numbers, FORMATS[name])
    command = {"rows": rows, "blocks": blocks, "base": base, "element": ElementFormat[name].value}
    beats = [int.from_bytes(beat.astype("<u4").tobytes(), "little") for beat in numbers.reshape(-1, 8)]
    expected = [
        (m % ROWS, base + m // ROWS * blocks + k, tuple(map(int, codes[m, 32 * k : 32 * k + 32])), int(scales[m, k]))
        for m in range(rows)
        for k in range(blocks)
    ]
    return command, beats, expected


def seen(payload):
    return payload["row"], payload["address"], tuple(payload["block"]["elements"]), payload["block"]["scale"]


async def start(dut):
    dut.rst.value = 1
    start_clock(dut.clk)
    await ClockCycles(dut.clk, 2)
    dut.rst.value = 0


async def run(dut, work, idle=0.0, pause=0.0):
    commands = StreamSource(StreamPort(dut, "command", RowsCommand), randomly(idle, SEED))
    values = StreamSource(StreamPort(dut, "values", 256), randomly(idle, SEED + 1))
    sink = StreamSink(StreamPort(dut, "o", ActivationWrite), randomly(pause, SEED + 2))
    await start(dut)
    for command, beats, _ in work:
        commands.put(command)
        for beat in beats:
            values.put(beat)
    begin = cocotb.utils.get_sim_time("ns")
    for _, _, blocks in work:
        for block in blocks:
            assert seen(await sink.receive()) == block
    cycles = cocotb.utils.get_sim_time("ns") - begin
    await ClockCycles(dut.clk, 20)
    assert not sink.received
    assert not int(dut.busy.value)
    return cycles


@cocotb.test()
@cocotb.parametrize(pause=[0.0, 0.6])
async def test_rows(dut, pause):
    generator = np.random.default_rng(SEED)
    empty = [({"rows": r, "blocks": b, "base": 9, "element": 0}, [], []) for r, b in ((0, 4), (4, 0))]
    sizes = [(1, 1), (3, 2), (4, 1), (7, 3), (1, 18)]
    work = [
        made(generator, name, *size, 100 * i)
        for name in ("MXINT8", "E4M3", "E2M1")
        for i, size in enumerate(sizes)
    ]  # fmt: skip
    await run(dut, [*work[:4], *empty, *work[4:], empty[0]], pause / 2, pause)


@cocotb.test()
async def test_a_beat_a_cycle(dut):
    generator = np.random.default_rng(SEED)
    work = [made(generator, "MXINT8", 4, 18, 0), made(generator, "MXINT8", 8, 2, 0)] * 3
    beats = sum(len(w[1]) for w in work)
    assert await run(dut, work) < beats + 2 * len(work) + 20


class _Scoreboard(Scoreboard):
    def write(self, value):
        super().write(seen(value))


class RowsEnvironment(uvm_env):
    """An agent on the blocks."""

    def build_phase(self):
        self.coverage = Coverage(load_testplan(TESTPLAN))
        self.scoreboard = _Scoreboard("scoreboard", self)
        port = StreamPort(cocotb.top, "o", ActivationWrite)
        self.sink = StreamAgent("sink", self, port, "sink", randomly(0.4, SEED), cocotb.top.rst)

    def connect_phase(self):
        self.sink.analysis_port.connect(self.scoreboard.analysis_export)


@pyuvm.test()
class test_random(uvm_test):
    """Random commands, idles and pauses."""

    corrupt = False
    count = 30

    def build_phase(self):
        self.environment = RowsEnvironment("environment", self)

    async def run_phase(self):
        self.raise_objection()
        dut, environment = cocotb.top, self.environment
        commands = StreamSource(StreamPort(dut, "command", RowsCommand), randomly(0.2, SEED + 3))
        values = StreamSource(StreamPort(dut, "values", 256), randomly(0.2, SEED + 2))
        await start(dut)
        generator = np.random.default_rng(SEED)
        total = 0
        for index in range(self.count):
            name, rows = str(generator.choice(["MXINT8", "E4M3", "E2M1"])), int(generator.integers(1, 9))
            environment.coverage.hit("commands", name)
            kind = "one_row" if rows == 1 else "rows_of_one_pass" if rows <= ROWS else "several_passes"
            environment.coverage.hit("commands", kind)
            base = int(generator.integers(1000))
            command, beats, blocks = made(generator, name, rows, int(generator.integers(1, 5)), base)
            for number, block in enumerate(blocks):
                wrong = self.corrupt and index == 2 and number == 0
                environment.scoreboard.expect((block[0], block[1] + wrong, *block[2:]))
            commands.put(command)
            for beat in beats:
                values.put(beat)
            total += len(blocks)
        while environment.sink.monitor.transfers < total:
            await ClockCycles(dut.clk, 1)
        self.drop_objection()

    def check_phase(self):
        holes = self.environment.coverage.holes()
        assert not holes, f"never seen: {holes}"


@pyuvm.test(expect_error=AssertionError)
class test_wrong_expectation_fails(test_random):
    """One golden block goes to another address: the scoreboard has to notice."""

    corrupt = True
