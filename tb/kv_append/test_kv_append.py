"""Appending to the KV cache against the golden layout, write by write."""

import os
from pathlib import Path

import cocotb
import numpy as np
import pyuvm
from cocotb.triggers import ClockCycles, RisingEdge
from pyuvm import uvm_env, uvm_test

from golden.attention import LEAF, AttentionShape
from golden.attention_layout import token_writes
from golden.formats import FORMATS
from golden.fp32_ops import INFINITY, NAN, from_float
from hw.numerics.formats import ElementFormat
from hw.vector.append import AppendCommand, MemoryWrite
from tb.common.clock import start_clock
from tb.common.coverage import Coverage, load_testplan
from tb.common.scoreboard import Scoreboard
from tb.common.stream import StreamAgent, StreamPort, StreamSink, StreamSource, randomly

TESTPLAN = Path(__file__).with_name("testplan.toml")
SEED = int(os.environ.get("SERRANO_SEED", "1"))
BASES = [1000 * (7 * page % 16) + page for page in range(16)]
TABLE = 5


def shape(name="MXINT8", key_size=64, value_size=64, latent=False):
    return AttentionShape(1, 1, key_size, value_size, FORMATS[name], latent=latent)


def token(generator, shape, position):
    """Command, beats, and expected writes of a random token, whose values spread over many binades."""
    spread = np.exp2(generator.integers(-20, 20, shape.key_size + shape.value_size))
    numbers = from_float(generator.normal(size=len(spread)) * spread)
    return made(shape, position, numbers[: shape.key_size], numbers[shape.key_size :])


def made(shape, position, keys, values):
    command = {
        "position": position, "key_blocks": shape.key_size // 32, "value_groups": shape.value_size // 32,
        "table": TABLE, "latent": int(shape.latent), "element": ElementFormat[shape.format.name].value,
    }  # fmt: skip
    numbers = keys if shape.latent else np.concatenate([keys, values])
    beats = [dict(enumerate(map(int, beat))) for beat in numbers.reshape(-1, 8)]
    return command, beats, token_writes(keys, values, position, BASES[position // LEAF], shape)


def seen(payload):
    """Address, strobe, and the bytes that are written."""
    data = payload["data"].to_bytes(32, "little")
    return payload["address"], payload["strobe"], tuple(b for i, b in enumerate(data) if payload["strobe"] >> i & 1)


def expected(write):
    written = tuple(int(b) for i, b in enumerate(write.data) if write.strobe >> i & 1)
    return int(write.address), write.strobe, written


async def start(dut):
    dut.pages_enable.value = 0
    dut.rst.value = 1
    start_clock(dut.clk)
    await ClockCycles(dut.clk, 2)
    dut.rst.value = 0
    for entry, base in enumerate(BASES):
        dut.pages_enable.value, dut.pages_address.value, dut.pages_data.value = 1, TABLE + entry, base
        await RisingEdge(dut.clk)
    dut.pages_enable.value = 0


async def run(dut, tokens, idle=0.0, pause=0.0):
    """Append tokens and compare every write."""
    commands = StreamSource(StreamPort(dut, "command", AppendCommand))
    values = StreamSource(StreamPort(dut, "values", 256), randomly(idle, SEED))
    sink = StreamSink(StreamPort(dut, "writes", MemoryWrite), randomly(pause, SEED + 1))
    await start(dut)
    for command, beats, _ in tokens:
        commands.put(command)
        for beat in beats:
            values.put(sum(value << 32 * lane for lane, value in beat.items()))
    for _, _, writes in tokens:
        for write in writes:
            assert seen(await sink.receive()) == expected(write)
    await ClockCycles(dut.clk, 30)
    assert not sink.received
    assert not int(dut.busy.value)


@cocotb.test()
@cocotb.parametrize(format=["MXINT8", "E4M3"], pause=[0.0, 0.6])
async def test_shapes(dut, format, pause):
    generator = np.random.default_rng(SEED)
    shapes = [
        shape(format), shape(format, 32, 32), shape(format, 96, 128), shape(format, 128, 96, True),
        shape(format, 64, 64, True), shape(format, 64, 32, True),
    ]  # fmt: skip
    tokens = [token(generator, s, p) for s in shapes for p in (0, 31, 32, 127, 128, 1000)]
    await run(dut, tokens, pause / 2, pause)


@cocotb.test()
@cocotb.parametrize(format=["MXINT8", "E4M3"])
async def test_specials(dut, format):
    one = from_float(np.linspace(-1, 1, 64))
    broken = [one.copy() for _ in range(3)]
    broken[0][40], broken[1][3], broken[2][63] = NAN, INFINITY, INFINITY | 1 << 31
    subnormal = (np.arange(64) * 0x10001).astype(np.uint32)
    largest = np.full(64, 0x7F7FFFFF, np.uint32)
    rows = [one, *broken, np.zeros(64, np.uint32), np.full(64, 1 << 31, np.uint32), subnormal, largest]
    tokens = [made(shape(format), 60 + i, row, rows[(i + 3) % len(rows)]) for i, row in enumerate(rows)]
    tokens += [made(shape(format, 64, 32, True), 60 + i, row, row[:32]) for i, row in enumerate(rows)]
    await run(dut, tokens)


@cocotb.test()
async def test_a_beat_a_cycle(dut):
    """Heads of 64 back to back: 16 beats a token, nothing between."""
    generator = np.random.default_rng(SEED)
    tokens = [token(generator, shape(), position) for position in range(40)]
    begin = cocotb.utils.get_sim_time("ns")
    await run(dut, tokens)
    assert cocotb.utils.get_sim_time("ns") - begin < 40 * 16 + 16 + 2 + 30 + 50


class _Scoreboard(Scoreboard):
    def write(self, value):
        super().write(seen(value))


class AppendEnvironment(uvm_env):
    """Agents on all three streams."""

    def build_phase(self):
        dut = cocotb.top
        self.coverage = Coverage(load_testplan(TESTPLAN))
        self.scoreboard = _Scoreboard("scoreboard", self)
        self.sink = StreamAgent(
            "sink", self, StreamPort(dut, "writes", MemoryWrite), "sink", randomly(0.4, SEED), dut.rst
        )

    def connect_phase(self):
        self.sink.analysis_port.connect(self.scoreboard.analysis_export)


@pyuvm.test()
class test_random(uvm_test):
    """Random tokens, idles and pauses."""

    corrupt = False
    count = 60

    def build_phase(self):
        self.environment = AppendEnvironment("environment", self)

    async def run_phase(self):
        self.raise_objection()
        dut, environment = cocotb.top, self.environment
        commands = StreamSource(StreamPort(dut, "command", AppendCommand), randomly(0.2, SEED + 3))
        values = StreamSource(StreamPort(dut, "values", 256), randomly(0.2, SEED + 2))
        await start(dut)
        generator = np.random.default_rng(SEED)
        total = 0
        for index in range(self.count):
            command, beats, writes = self.draw(generator)
            for number, write in enumerate(writes):
                wrong = self.corrupt and index == 1 and number == 0
                environment.scoreboard.expect(expected(write._replace(address=write.address + wrong)))
            commands.put(command)
            for beat in beats:
                values.put(sum(value << 32 * lane for lane, value in beat.items()))
            total += len(writes)
        while environment.sink.monitor.transfers < total:
            await ClockCycles(dut.clk, 1)
        self.drop_objection()

    def draw(self, generator):
        hit = self.environment.coverage.hit
        name, latent = str(generator.choice(["MXINT8", "E4M3"])), bool(generator.integers(2))
        groups = int(generator.integers(1, 5))
        blocks = int(generator.integers(groups, 7)) if latent else int(generator.integers(1, 5))
        position = int(generator.choice([0, 31, 128, 255, int(generator.integers(16 * LEAF))]))
        hit("tokens", name)
        hit("tokens", "latent" if latent else "separate_values")
        if position % LEAF == 0:
            hit("tokens", "first_of_a_leaf")
        if position % 32 == 31:
            hit("tokens", "last_of_a_square")
        return token(generator, shape(name, 32 * blocks, 32 * groups, latent), position)

    def check_phase(self):
        holes = self.environment.coverage.holes()
        assert self.corrupt or not holes, f"never seen: {holes}"


@pyuvm.test(expect_error=AssertionError)
class test_wrong_expectation_fails(test_random):
    """One golden write goes to another address: the scoreboard has to notice."""

    corrupt = True
