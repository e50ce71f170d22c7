"""The tile's vector side: half a layer and random commands against the golden machine.

The testbench is the network: what the tile sends to its own node comes back, later, among what others send.
"""

import os
import random

import cocotb
import numpy as np
import pyuvm
from cocotb.triggers import ClockCycles, Event, RisingEdge
from pyuvm import uvm_test

from hw.tile.attention_program import Append, Attend, Page
from hw.tile.isa import (
    AppendInstruction,
    AttendInstruction,
    Memory,
    Opcode,
    TileError,
)
from hw.tile.program import Await, Halt, Signal, encode, encode_program
from hw.tile.vector_program import Rows, Send, Vector
from tb.common.clock import start_clock
from tb.common.stream import StreamSequence, randomly
from tb.tile import CONFIGS
from tb.tile.test_tile import WeightMemory
from tb.tile.vector_bench import VectorTB, changed, compare, connect_memory, returned, until_attention
from tb.tile.vector_environment import Subscriber, VectorEnvironment
from tb.tile.vector_work import CACHE, DISTURBANCE, HOST, VectorWork
from tb.tile.work import START, as_write, remote_write

CONFIG = CONFIGS[os.environ["TILE_CONFIG"]]
FRAME_GRANULES = 33
"""Of 8-bit elements with scales of a byte."""
SEED = int(os.environ.get("SERRANO_SEED", "1"))
POINTS = ("vector_work", "vector_operands", *(("vector_attention",) if CONFIG.attention_rows else ()))


@cocotb.test()
async def test_half_layer(dut):
    """One position and many; the counters account for every cycle."""
    tb = VectorTB(dut)
    await tb.reset()
    most = CONFIG.rows * CONFIG.passes
    for index, (rows, hidden, inner) in enumerate(((1, 64, 96), (most - 1, 32, 64), (CONFIG.rows, 96, 32))):
        work = VectorWork(CONFIG, SEED + index)
        work.half_layer(rows, hidden, inner)
        program = work.finish()
        compare(work.expected(program), await tb.run(work, program))
        counters = tb.counters()
        causes = ("issue", "stall_weights", "stall_activations", "stall_results", "stall_order", "stall_vector", "idle")
        assert counters["cycles"] == sum(counters[cause] for cause in causes), counters
        assert counters["vector"] >= counters["stall_vector"] > 0, counters


@cocotb.test()
async def test_back_to_back_then_quiet(dut):
    """The same program twice, then a thousand cycles without traffic."""
    tb = VectorTB(dut, idle=randomly(0.3, SEED), pause=randomly(0.3, SEED))
    await tb.reset()
    work = VectorWork(CONFIG, SEED)
    work.rotate(3, 32)
    work.half_layer(2, 64, 32)
    program = work.finish()
    expected = work.expected(program)
    for _ in range(2):
        compare(expected, await tb.run(work, program))
        await ClockCycles(dut.clk, 1000)
        assert not tb.found, "the tile sent something while it had nothing to do"


def refused_attention(work):
    """APPENDs and ATTENDs that the tile cannot do, and why; behind them products, whose weights must not stay."""
    size = CONFIG.attention_channels
    append = Append(1, 0, Rows(0, 0), size, size).words(CONFIG)[0]
    groups = size // 32
    wrong = [
        {"rows": 0}, {"token.key_blocks": 0}, {"token.value_groups": 0}, {"token.value_groups": groups + 1},
        {"token.latent": 1, "token.key_blocks": groups - 1}, {"token.element": 15},
    ]  # fmt: skip
    cases = []
    for fields in wrong:
        word = append
        for name, value in fields.items():
            word = changed(word, name, value, AppendInstruction)
        cases.append(([word], TileError.FORMAT if "token.element" in fields else TileError.SIZE))
    attend = changed(Attend(1, 1, 0, size, size, 0, 0).words(CONFIG)[0], "command.rows", 0, AttendInstruction)
    small = encode(CONFIG, work.matmul(1, 64, 32, 0, Rows(0, 4), HOST))
    large = encode(CONFIG, work.matmul(1, 256, 64, 0, Rows(0, 8), HOST))  # of more blocks than the buffer holds
    assert CONFIG.weight_blocks < 8 * 64
    cases += [([attend, product, attend], TileError.SIZE) for product in (small, large)]
    return [*cases, ([attend, small, large], TileError.SIZE)]


@cocotb.test()
async def test_refusals(dut):
    """What the vector side cannot do stops the tile with an error, sends nothing, and the next program runs."""
    tb = VectorTB(dut)
    await tb.reset()
    work, refused = VectorWork(CONFIG, SEED), VectorWork(CONFIG, SEED + 1)
    work.rotate(2, 32)
    if CONFIG.attention_rows:
        work.half_layer(1, 64, 32)
        work.attend(5, 1, 2, 64)
    good = work.finish()
    send = Send(1, 1, Rows(0, 0), HOST, 0, 0).words(CONFIG)[0]
    quantise = changed(send, "opcode", Opcode.QUANTISE.value)
    places, vector = Vector(1, 8, Rows(0), result=Rows(0)).words(CONFIG)
    no_rows = vector & ~(((1 << 16) - 1) << 20)
    cases = [
        ([changed(send, "rows", 0)], TileError.SIZE), ([changed(quantise, "length", 0)], TileError.SIZE),
        ([changed(quantise, "element", 15)], TileError.FORMAT), ([places, no_rows], TileError.SIZE),
        ([15], TileError.OPCODE),
    ]  # fmt: skip
    if CONFIG.attention_rows:
        cases += refused_attention(refused)
    for words, error in cases:
        await tb.load(refused, [*words, send, encode(CONFIG, Halt())])
        await tb.start()
        await tb.done()
        await ClockCycles(dut.clk, 20)
        assert int(dut.error.value) == error.value, f"{words}: expected {error}, found {int(dut.error.value)}"
        assert not tb.found, "a refused program sent something"
    compare(work.expected(good), await tb.run(work, good))
    assert int(dut.error.value) == 0


@cocotb.test(skip=not CONFIG.attention_rows)
async def test_refused_write(dut):
    """A page beyond the memory: the tile stops with an error before the ATTEND, the signal or the end behind it."""
    tb = VectorTB(dut)
    await tb.reset()
    work, size = VectorWork(CONFIG, SEED), CONFIG.attention_channels
    work.attend(5, 1, 2, 64)
    good = work.finish()
    wrong = [Page(0, 1 << 20), Append(1, 0, Rows(0, 0), size, size)]
    product = work.matmul(1, 128, 64, 0, Rows(0, 8), HOST)
    attend = Attend(1, 1, 0, size, size, 0, 0)
    for behind in ((attend, product), (Signal(5, HOST),), ()):
        await tb.load(work, encode_program(CONFIG, [*wrong, *behind, Halt()]))
        tb.port.silent = True
        await tb.start()
        await ClockCycles(dut.clk, 1000)
        assert not int(dut.done.value), f"{behind}: done before the memory has answered"
        tb.port.silent = False
        await tb.done()
        await ClockCycles(dut.clk, 20)
        assert int(dut.error.value) == TileError.SIZE.value, f"{behind}: found {int(dut.error.value)}"
        assert not tb.found, "something was sent"
        compare(work.expected(good), await tb.run(work, good))
        assert int(dut.error.value) == 0


@cocotb.test(skip=not CONFIG.attention_rows)
async def test_attention(dut):
    """Tokens appended and attended to: one position, several, over a leaf's border; then a half layer on the array."""
    tb = VectorTB(dut, idle=randomly(0.2, SEED))
    await tb.reset()
    work = VectorWork(CONFIG, SEED)
    for context, count, group in ((1, 1, 3), (7, 2, 4), (130, 2, 3)):
        work.attend(context, count, group, 32)
    work.half_layer(1, 32, 32)
    work.attend(5, 1, 2, 64)
    program = work.finish()
    compare(work.expected(program), await tb.run(work, program))


@cocotb.test(skip=not CONFIG.attention_rows)
async def test_weights_around_attention(dut):
    """The memory is asked for weights of a product behind an ATTEND before the ATTEND's own granules, and after.

    In the first run the memory takes no range before the ATTEND, so that both have one to offer; in the second any.
    """
    tb = VectorTB(dut)
    await tb.reset()
    work, asked = VectorWork(CONFIG, SEED), []
    tb.memory.listen = lambda value: asked.append("cache" if value["address"] >= CACHE else "weights")
    tb.memory.descriptors.pause = until_attention(dut)
    work.attend(40, 1, 3, 64)
    work.half_layer(1, 128, 64)
    work.attend(5, 1, 2, 32)
    program = work.finish()
    for _ in range(2):
        asked.clear()
        compare(work.expected(program), await tb.run(work, program))
        first, last = asked.index("cache"), len(asked) - 1 - asked[::-1].index("cache")
        assert "weights" in asked[:first], "no weights came before the granules of the ATTEND"
        assert "weights" in asked[first:last], "no weights came between the ATTENDs"
        counters = tb.counters()
        assert counters["weight_granules"] == asked.count("weights") * FRAME_GRANULES, counters
        assert counters["cache_granules"] and counters["weight_wait"], counters


@cocotb.test(skip=not CONFIG.attention_rows)
async def test_blocks_during_attention(dut):
    """Activation blocks for a later product come while the engine writes softmax weights: none is lost."""
    tb, asked = VectorTB(dut), Event()
    await tb.reset()
    tb.memory.listen = lambda value: asked.set() if value["address"] >= CACHE else None

    async def burst(delay, transfers):
        await asked.wait()
        await ClockCycles(dut.clk, delay)
        for transfer in transfers:
            tb.network.put(transfer)

    # One burst or another meets each cycle of the ATTEND; other blocks each time, so that a lost one shows.
    for index in range(10):
        work = VectorWork(CONFIG, SEED + index)
        work.attend(20, 1, 3, 64)
        work.product_of_arrivals(40)
        program, transfers = work.finish(), work.block_transfers()
        asked.clear()
        sending = cocotb.start_soon(burst(1 + index * (len(transfers) - 10), transfers))
        compare(work.expected(program), await tb.run(work, program))
        await sending


@cocotb.test()
async def test_counters_are_apart(dut):
    """An AWAIT is not satisfied by writes that name another counter, and takes off its own alone."""
    tb = VectorTB(dut)
    await tb.reset()
    work = VectorWork(CONFIG, SEED)
    work.commands += [Await(3, 2), Await(2, 1)]
    program = work.finish()
    await tb.load(work, program)
    await tb.start()
    granule = bytes(32)

    async def send(counter, count):
        for _ in range(count):
            await tb.network.send(remote_write(Memory.RESULTS, 0, granule, counter=counter))
        await ClockCycles(dut.clk, 30)

    for counter, count in ((1, 2), (0, 9), (3, 9), (2, 2)):
        await send(counter, count)
        assert not int(dut.done.value), f"went on after {count} writes on counter {counter}"
    await send(2, 1)
    assert int(dut.done.value)


@pyuvm.test()
class test_random(uvm_test):
    """Random half layers, rotations and vector commands; pauses on every stream; other tiles' writes in between."""

    corrupt = False
    count = 8

    def build_phase(self):
        self.environment = VectorEnvironment("environment", self)

    def connect_phase(self):
        self.environment.results.analysis_port.connect(Subscriber("subscriber", self, self.sent).analysis_export)

    def sent(self, value):
        write = as_write(value)
        self.environment.scoreboard.write(write)
        if transfer := returned(write):
            self.pending.append(transfer)

    async def run_phase(self):
        self.raise_objection()
        dut = cocotb.top
        self.pending = []
        self.memory = WeightMemory(dut, randomly(0.3, SEED), randomly(0.5, SEED + 1))
        connect_memory(dut, self.memory, randomly(0.5, SEED + 4))
        dut.rst.value = 1
        start_clock(dut.clk)
        await ClockCycles(dut.clk, 2)
        dut.rst.value = 0
        self.choice = random.Random(SEED)
        for index in range(self.count):
            await self.one(dut, index)
        self.drop_objection()

    def work(self, index):
        """A program of random parts."""
        work, coverage = VectorWork(CONFIG, SEED + 100 * index), self.environment.coverage
        rows = 1 if index % 4 == 0 else self.choice.randint(2, min(6, CONFIG.rows * CONFIG.passes))
        if index % 2 == 0:
            work.half_layer(rows, 32 * self.choice.randint(1, 2), 32 * self.choice.randint(1, 2))
            coverage.hit("vector_work", "half_layer" if rows > 1 else "one_position")
        if CONFIG.attention_rows and index % 3 == 0:
            count = 1 + index // 3 % 2
            work.attend(self.choice.randint(count, 20), count, self.choice.randint(1, 3), 32)
            coverage.hit("vector_attention", "one_position" if count == 1 else "several")
        for _ in range(3):
            if self.choice.random() < 0.3:
                work.rotate(rows, 32)
                coverage.hit("vector_work", "rope")
            command = work.random_vector()
            coverage.hit("vector_work", "early" if command.early else "in_order")
            if command.mask:
                coverage.hit("vector_operands", "mask")
            kinds = {type(getattr(command, name)).__name__ for name in "xyzwv"}
            for kind in kinds & {"Rows", "Each"}:
                coverage.hit("vector_operands", kind.lower())
        return work

    async def one(self, dut, index):
        environment, work = self.environment, self.work(index)
        program = work.finish()
        for write in work.expected(program):
            environment.scoreboard.expect(write)
        if self.corrupt:
            address, granule = work.granules_in[0]
            work.granules_in[0] = address, granule ^ np.uint32(1 << 22)
        self.memory.image = bytearray(work.memory().tobytes())
        words = [remote_write(Memory.PROGRAM, i, word.to_bytes(32, "little")) for i, word in enumerate(program)]
        await StreamSequence([*words, START]).start(environment.network.sequencer)
        self.pending += work.inputs()
        free = CONFIG.vector_depth - 1
        for _ in range(60_000):
            if self.pending:
                batch, self.pending = self.pending, []
                if self.choice.random() < 0.3:
                    batch.append(remote_write(Memory.RESULTS, free, bytes(32), counter=DISTURBANCE))
                await StreamSequence(batch).start(environment.network.sequencer)
            await RisingEdge(dut.clk)
            if int(dut.done.value):
                break
        assert int(dut.done.value), "the tile was not done after 60000 cycles"
        await ClockCycles(dut.clk, 4)

    def check_phase(self):
        holes = self.environment.coverage.holes(*POINTS)
        assert self.corrupt or not holes, f"never seen: {holes}"


@pyuvm.test(expect_error=AssertionError)
class test_changed_granule_fails(test_random):
    """A granule arrives with another bit than the golden machine was given: the scoreboard has to notice."""

    corrupt = True
    count = 1
