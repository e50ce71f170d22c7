"""Directed and random tests of a tile: memory and network are played by the testbench."""

import os
import random
from dataclasses import replace
from pathlib import Path

import cocotb
import numpy as np
import pyuvm
from amaranth.lib import data
from cocotb.triggers import ClockCycles, RisingEdge
from pyuvm import uvm_env, uvm_test

from golden import weights
from golden.formats import FORMATS
from golden.machine import Write
from hw.tile.drain import Outgoing
from hw.tile.isa import Counters, Instruction, Memory, RemoteWrite, TileError, WeightRange
from hw.tile.program import Matmul
from tb.common.clock import start_clock
from tb.common.coverage import Coverage, load_testplan
from tb.common.scoreboard import Scoreboard
from tb.common.stream import (
    StreamAgent,
    StreamPort,
    StreamSequence,
    StreamSink,
    StreamSource,
    decode,
    never,
    randomly,
)
from tb.tile import CONFIGS
from tb.tile.work import START, Work, as_write, remote_write

CONFIG = CONFIGS[os.environ["TILE_CONFIG"]]
SEED = int(os.environ.get("SERRANO_SEED", "1"))
TESTPLAN = load_testplan(Path(__file__).with_name("testplan.toml"))


class WeightMemory:
    """The HBM side: answers descriptors in order from an image, with pauses."""

    def __init__(self, dut, idle, pause):
        self.image, self.listen = b"", lambda value: None
        self.descriptors = StreamSink(StreamPort(dut, "descriptors", WeightRange), pause, self._read)
        self.source = StreamSource(StreamPort(dut, "granules", 256), idle)
        self.requested = 0

    def _read(self, value):
        self.requested += 1
        self.listen(value)
        start, end = value["address"] * 32, (value["address"] + value["length"]) * 32
        assert end <= len(self.image), f"the tile reads granules beyond its image: {value}"
        for offset in range(start, end, 32):
            self.source.put(int.from_bytes(self.image[offset : offset + 32], "little"))


class TB:
    """Owns the agents of one run."""

    def __init__(self, dut, idle=None, pause=None, sink=True):
        self.dut = dut
        self.memory = WeightMemory(dut, idle or never(), never())
        self.network = StreamSource(StreamPort(dut, "i", RemoteWrite))
        self.sink = StreamSink(StreamPort(dut, "o", Outgoing), pause) if sink else None

    async def reset(self):
        self.dut.rst.value = 1
        start_clock(self.dut.clk)
        await ClockCycles(self.dut.clk, 2)
        self.dut.rst.value = 0

    async def load(self, work: Work, program: list[int]):
        self.memory.image = np.concatenate([*work.image, np.zeros(0, np.uint8)]).tobytes()
        for address, word in enumerate(program):
            await self.network.send(remote_write(Memory.PROGRAM, address, word.to_bytes(32, "little")))

    async def start(self):
        await self.network.send(START)
        await ClockCycles(self.dut.clk, 2)

    async def activations(self, work: Work):
        for address, codes, scale in work.blocks:
            await self.network.send(remote_write(Memory.ACTIVATIONS, address, codes, scale))

    async def done(self, limit: int = 100_000):
        for _ in range(limit):
            await RisingEdge(self.dut.clk)
            if int(self.dut.done.value):
                return
        raise AssertionError(f"the tile was not done after {limit} cycles")

    async def run(self, work: Work, program: list[int]) -> list[Write]:
        await self.load(work, program)
        await self.start()
        await self.activations(work)
        await self.done()
        await ClockCycles(self.dut.clk, 4)
        found = [as_write(value) for value in self.sink.received]
        self.sink.received.clear()
        return found

    def counters(self) -> dict[str, int]:
        return decode(Counters, int(self.dut.counters.value))


def compare(expected: list[Write], found: list[Write]):
    assert expected, "nothing to compare"
    for index, (want, have) in enumerate(zip(expected, found, strict=False)):
        if want.values is None:  # a counter record: its place is the program's, its values are time
            have = replace(have, values=None)
        assert want == have, f"write {index}: expected {want}, found {have}"
    assert len(expected) == len(found), f"expected {len(expected)} writes, found {len(found)}"


def shapes():
    """Every remainder of positions and outputs, K from one block to twice the rows."""
    group = CONFIG.columns * CONFIG.slots
    most = CONFIG.rows * CONFIG.passes
    rows = sorted({1, CONFIG.rows, CONFIG.rows + 1, most - 1, most} & set(range(1, most + 1)))
    outputs = sorted({1, CONFIG.columns, CONFIG.columns + 1, group - 1, group, group + 1, 2 * group + CONFIG.columns})
    for index, m in enumerate(rows):
        for n in outputs:
            yield m, 1 + (index + n) % (2 * CONFIG.rows), max(1, n)


@cocotb.test()
async def test_single_products(dut):
    tb = TB(dut)
    await tb.reset()
    for index, (rows, k_blocks, outputs) in enumerate(shapes()):
        if k_blocks * -(-rows // CONFIG.rows) > CONFIG.activation_depth:
            continue
        work = Work(CONFIG, SEED + index)
        work.product(rows, 32 * k_blocks, outputs, record=index % 2 == 0)
        program = work.finish()
        compare(work.expected(program), await tb.run(work, program))


@cocotb.test()
async def test_back_to_back_then_quiet(dut):
    tb = TB(dut)
    await tb.reset()
    work = Work(CONFIG, SEED)
    most, group = CONFIG.rows * CONFIG.passes, CONFIG.columns * CONFIG.slots
    for rows, k_blocks, outputs in ((most, 2, group + 1), (1, 5, CONFIG.columns), (min(2, most), 1, 3 * group)):
        work.product(rows, 32 * k_blocks, outputs, record=True)
    program = work.finish()
    expected = work.expected(program)
    for _ in range(2):
        compare(expected, await tb.run(work, program))
        await ClockCycles(dut.clk, 1000)
        assert not tb.sink.received, "the tile sent something while it had nothing to do"


@cocotb.test()
async def test_late_activations(dut):
    tb = TB(dut, pause=randomly(0.5, SEED))
    await tb.reset()
    work = Work(CONFIG, SEED)
    work.product(CONFIG.rows, 64, CONFIG.columns)
    program = work.finish()
    await tb.load(work, program)
    await tb.start()
    await ClockCycles(dut.clk, 200)
    assert tb.memory.requested, "weights were not asked for while activations were awaited"
    counters = tb.counters()
    assert counters["stall_activations"] >= 190 and not counters["issue"], counters
    await tb.activations(work)
    await tb.done()
    await ClockCycles(dut.clk, 60)
    compare(work.expected(program), [as_write(value) for value in tb.sink.received])


@cocotb.test()
async def test_full_buffer(dut):
    """Weights of more than the buffer holds: what was asked for leaves the memory, and no more is asked for.

    Twice, so that the second run begins elsewhere in the buffer.
    """
    tb = TB(dut)
    await tb.reset()
    work = Work(CONFIG, SEED)
    inputs = min(CONFIG.activation_depth, 64) - 1
    outputs = CONFIG.columns * (1 + 2 * CONFIG.weight_sets // inputs)
    command = work.product(1, 32 * inputs, outputs)
    work.product(CONFIG.rows, 32, 1)
    program = work.finish()
    expected = work.expected(program)
    frames, frame = CONFIG.weight_blocks // 32, weights.frame_granules(FORMATS[command.weight_format])
    for _ in range(2):
        tb.memory.requested = 0
        await tb.load(work, program)
        await tb.start()
        await ClockCycles(dut.clk, 2 * frames * frame + 100)
        counters = tb.counters()
        assert tb.memory.requested == frames, f"{tb.memory.requested} frames were asked for, there is room for {frames}"
        assert counters["weight_granules"] == frames * frame, counters
        assert counters["weight_wait"] and not counters["issue"], counters
        await tb.activations(work)
        await tb.done()
        await ClockCycles(dut.clk, 4)
        compare(expected, [as_write(value) for value in tb.sink.received])
        tb.sink.received.clear()


@cocotb.test()
async def test_no_bubble(dut):
    """With weights faster than the array takes them, every cycle after the first issue is an issue."""
    if CONFIG.passes < CONFIG.columns or CONFIG.slots * CONFIG.passes < 6 or CONFIG.columns > 8:
        return
    tb = TB(dut)
    await tb.reset()
    work = Work(CONFIG, SEED)
    for _ in range(3):
        work.product(CONFIG.rows * CONFIG.passes, 32 * 4, 2 * CONFIG.columns * CONFIG.slots)
    work.commands = [command for command in work.commands if isinstance(command, Matmul)]
    program = work.finish()
    await tb.load(work, program)
    await tb.activations(work)
    await tb.start()
    await tb.done()
    await ClockCycles(dut.clk, 4)
    counters = tb.counters()
    issues = 3 * 4 * 2 * CONFIG.slots * CONFIG.passes
    assert counters["issue"] == issues, counters
    assert counters["block_dots"] == issues * CONFIG.rows * CONFIG.columns, counters
    assert not counters["stall_order"], counters
    if CONFIG.rows <= 4:  # with more rows than K blocks, sending the results takes longer than computing them
        assert counters["stall_results"] < CONFIG.rows * 8, counters
    compare(work.expected(program), [as_write(value) for value in tb.sink.received])


@cocotb.test()
async def test_refusals(dut):
    tb = TB(dut)
    await tb.reset()
    work = Work(CONFIG, SEED)
    work.product(1, 32, 1)
    good = work.finish()
    cases = [(good[1] ^ (good[1] & 15) | 9, TileError.OPCODE), (good[1] | 6 << 4, TileError.FORMAT)]
    layout = data.Layout.cast(Instruction)
    for name in ("k_blocks", "slots", "rows", "passes"):
        ones = ((1 << layout[name].width) - 1) << layout[name].offset
        cases += [(good[1] & ~ones, TileError.SIZE), (good[1] | ones, TileError.SIZE)]
    for word, error in cases:
        tb.memory.requested = 0
        await tb.load(work, [word, *good[2:]])
        await tb.start()
        await tb.done()
        await ClockCycles(dut.clk, 20)
        assert int(dut.error.value) == error.value, f"{word:#x}: expected {error}, found {int(dut.error.value)}"
        assert not tb.sink.received and not tb.memory.requested, "a refused product was begun"
    compare(work.expected(good), await tb.run(work, good))
    assert int(dut.error.value) == 0


class WriteScoreboard(Scoreboard):
    """Compares remote writes as the golden machine says them."""

    def write(self, value):
        super().write(as_write(value))


class TileEnvironment(uvm_env):
    def build_phase(self):
        dut = cocotb.top
        self.coverage = Coverage(TESTPLAN)
        self.scoreboard = WriteScoreboard("scoreboard", self)
        self.network = StreamAgent(
            "network", self, StreamPort(dut, "i", RemoteWrite), "source", randomly(0.2, SEED + 2), dut.rst
        )
        self.results = StreamAgent(
            "results", self, StreamPort(dut, "o", Outgoing), "sink", randomly(0.6, SEED + 3), dut.rst
        )

    def connect_phase(self):
        self.results.analysis_port.connect(self.scoreboard.analysis_export)


@pyuvm.test()
class test_random(uvm_test):
    """Random products with special blocks, pauses on every stream."""

    corrupt = False

    def build_phase(self):
        self.environment = TileEnvironment("environment", self)

    async def run_phase(self):
        self.raise_objection()
        dut, environment = cocotb.top, self.environment
        self.memory = WeightMemory(dut, randomly(0.3, SEED), randomly(0.5, SEED + 1))
        dut.rst.value = 1
        start_clock(dut.clk)
        await ClockCycles(dut.clk, 2)
        dut.rst.value = 0
        choice = random.Random(SEED)
        for index in range(12):
            await self.one(dut, environment, choice, index)
        self.drop_objection()

    async def one(self, dut, environment, choice, index):
        work = Work(CONFIG, SEED + 100 * index)
        for _ in range(choice.randint(1, 3)):
            rows = choice.choice([1, choice.randint(1, CONFIG.rows * CONFIG.passes)])
            outputs = choice.randint(1, 3 * CONFIG.columns * CONFIG.slots)
            command = work.product(rows, 32 * choice.randint(1, 4), outputs, special=True)
            self.cover(environment.coverage, command)
        program = work.finish()
        for special in work.specials:
            environment.coverage.hit("specials", special)
        for write in work.expected(program):
            environment.scoreboard.expect(write)
        if self.corrupt:
            work.image[0] = work.image[0].copy()
            work.image[0][weights.GRANULE :] ^= 0x11  # every element behind the first scales
        self.memory.image = np.concatenate(work.image).tobytes()
        words = [remote_write(Memory.PROGRAM, i, word.to_bytes(32, "little")) for i, word in enumerate(program)]
        await StreamSequence([*words, START]).start(environment.network.sequencer)
        blocks = [remote_write(Memory.ACTIVATIONS, *block) for block in work.blocks]
        await StreamSequence(blocks).start(environment.network.sequencer)
        for _ in range(20_000):
            await RisingEdge(dut.clk)
            if int(dut.done.value):
                break
        assert int(dut.done.value), "the tile was not done after 20000 cycles"
        counters = decode(Counters, int(dut.counters.value))
        for counter, bin in (("weight_wait", "full"), ("stall_weights", "empty")):
            if counters[counter]:
                environment.coverage.hit("weight_buffer", bin)
        await ClockCycles(dut.clk, 4)

    def cover(self, coverage, command: Matmul):
        passes = -(-command.rows // CONFIG.rows)
        groups = -(-command.outputs // command.group(CONFIG))
        coverage.hit("passes", "stream" if passes == 1 else "hold")
        coverage.hit("groups", "one" if groups == 1 else "several")
        if command.outputs % command.group(CONFIG) and groups > 1:
            coverage.hit("groups", "ragged")
        coverage.hit("last_pass", "partial" if command.rows % CONFIG.rows else "full")

    def check_phase(self):
        holes = self.environment.coverage.holes("passes", "groups", "last_pass", "specials", "weight_buffer")
        if CONFIG.weight_blocks > 256:  # no random product fills it; test_full_buffer does
            holes = [hole for hole in holes if hole != "weight_buffer/full"]
        if CONFIG.rows == 1:
            holes = [hole for hole in holes if hole != "last_pass/partial"]
        assert self.corrupt or not holes, f"never seen: {holes}"


@pyuvm.test(expect_error=AssertionError)
class test_changed_weight_fails(test_random):
    """The memory holds other weights than the golden machine was given: the scoreboard has to notice."""

    corrupt = True
