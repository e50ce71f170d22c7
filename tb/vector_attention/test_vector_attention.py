"""Attention on the array against golden attention, bit for bit: shapes, masks, windows, pages, sinks, back-pressure."""

from dataclasses import replace
from pathlib import Path

import cocotb
import numpy as np
import pyuvm
from cocotb.triggers import ClockCycles
from pyuvm import uvm_env, uvm_test

from hw.numerics.formats import ElementFormat
from hw.vector.engine import result_layout
from tb.common.coverage import Coverage, load_testplan
from tb.common.scoreboard import Scoreboard
from tb.common.stream import StreamAgent, StreamPort
from tb.vector_attention import SIZE
from tb.vector_attention.environment import CHUNKS, SEED, TB, Case, prepare, prepare_prompt

TESTPLAN = Path(__file__).with_name("testplan.toml")


async def started(dut, idle=0.0, pause=0.0):
    tb = TB(dut, SIZE, idle, pause)
    await tb.reset()
    return tb


@cocotb.test()
@cocotb.parametrize(length=[1, 127, 128, 129])
async def test_decode_lengths(dut, length):
    tb = await started(dut)
    await tb.check(prepare(Case(length), np.random.default_rng(SEED)))


SHAPES = {
    "prefill": Case(140, count=2),
    "rows_over_a_leaf_border": Case(130, count=4, group=2),  # the second leaf is empty for the first rows
    "one_head": Case(70, group=1, key_size=32, value_size=32),
    "eight_heads": Case(200, group=8),
    "latent": Case(150, group=4, key_size=96, value_size=64, latent=True),
    # The memory is ahead of the softmax by as many leaves as it can be.
    "short_latent": Case(700, count=SIZE.max_rows, group=1, key_size=32, value_size=32, latent=True),
    "three_leaves": Case(300),
    "five_leaves": Case(600),
    "window": Case(250, window=64),
    "window_without_a_left_sibling": Case(700, window=200),
    "window_over_rows": Case(260, count=2, window=100),
    "sink": Case(140, sink=True),
    "sink_and_window": Case(300, window=128, sink=True, group=8),
    "far_below_zero": Case(200, offset=-300_000.0),
    "only_the_first_of_many": Case(200, position=0, count=1),
    "keys_of_zeros": Case(150, count=2, zero_keys=True),
    "nothing_to_attend_to": Case(3, position=-1, count=1),
    "nothing_but_a_sink": Case(3, position=-1, count=1, sink=True),
    "rows_that_see_nothing": Case(5, position=-3, count=6, group=1),
    "broken_tokens": Case(300, count=2, broken=(4, 7, 131)),
    "broken_tokens_behind": Case(300, position=100, count=2, broken=(110, 111, 200, 299)),
    "broken_tokens_before_the_window": Case(300, window=100, broken=(4, 7, 131, 199)),
    "broken_latent": Case(200, group=4, key_size=96, latent=True, broken=(4,)),
    "all_rows": Case(170, count=SIZE.max_rows // 2, group=2),
}


@cocotb.test()
@cocotb.parametrize(shape=list(SHAPES), format=["MXINT8", "E4M3"])
async def test_shapes(dut, shape, format):
    tb = await started(dut)
    await tb.check(prepare(replace(SHAPES[shape], format=format), np.random.default_rng(SEED)))


APPENDS = {
    "decode": [Case(length, append=1) for length in (1, 32, 128, 129, 200)],
    "prefill": [Case(40, count=8, group=1, append=8), Case(133, count=8, group=1, append=8)],
    "whole_prompt": [Case(135, count=8, group=1, append=135)],
    "latent": [Case(150, group=4, key_size=96, latent=True, append=3), Case(33, key_size=64, latent=True, append=33)],
}


@cocotb.test()
@cocotb.parametrize(cases=list(APPENDS), format=["MXINT8", "E4M3"], pause=[0.0, 0.5])
async def test_append(dut, cases, format, pause):
    """Tokens that the hardware quantises and writes into pages full of garbage, then attention that reads them."""
    tb = await started(dut, pause / 2, pause)
    generator = np.random.default_rng(SEED)
    for case in APPENDS[cases]:
        await tb.check(prepare(replace(case, format=format), generator))


@cocotb.test()
async def test_long_context(dut):
    """As many leaves as the build has levels for, 8192 positions on the full one; the window leaves two of them."""
    tb = await started(dut)
    length = min(8192, 128 << SIZE.levels)
    generator = np.random.default_rng(SEED)
    await tb.check(prepare(Case(length), generator))
    await tb.check(prepare(Case(length, window=128, sink=True, format="E4M3"), generator))


@cocotb.test()
async def test_prompt(dut):
    """A whole prompt in chunks, queued, each chunk's queries written while earlier ones run."""
    tb = await started(dut)
    case = Case(260, count=SIZE.max_rows // 4, group=4)
    chunks = prepare_prompt(case, np.random.default_rng(SEED), SIZE, every=32 // SIZE.max_rows)
    chunks = [chunk for chunk in chunks if chunk.case.positions.max() < 260]
    for chunk in chunks[:CHUNKS]:
        await tb.set_up(chunk)
    for chunk, rows in zip(chunks, await tb.run(*chunks, ahead=CHUNKS), strict=True):
        assert (rows == chunk.expected).all(), f"{chunk.case}: wrong rows"


@cocotb.test()
@cocotb.parametrize(idle=[0.0, 0.4], pause=[0.0, 0.6])
async def test_pauses(dut, idle, pause):
    """Commands of different shapes one after the other, with idles on the memory and pauses on both outputs."""
    tb = await started(dut, idle, pause)
    generator = np.random.default_rng(SEED)
    for case in (Case(160, count=2), Case(40, group=1, key_size=32), Case(140, group=4, sink=True)):
        await tb.check(prepare(case, generator))


@cocotb.test()
@cocotb.parametrize(pause=[0.0, 0.5])
async def test_queued_commands(dut, pause):
    """Two commands of different shapes queued at once: the second's scores begin while the first is merged."""
    tb = await started(dut, pause / 2, pause)
    generator = np.random.default_rng(SEED)
    for first, second in (
        (Case(300, sink=True), Case(100, count=2, group=2)), (Case(60, group=1), Case(200, group=8, sink=True)),
        (Case(513), Case(300, key_size=96, group=4, latent=True)),
        (Case(400, key_size=96, group=4, latent=True), Case(300)),
        (Case(300), Case(700, window=200)),  # no left sibling, where the command before had one
    ):  # fmt: skip
        await tb.check(prepare(first, generator, 0), prepare(second, generator, 1))


@cocotb.test()
async def test_memory_stalls_and_comes_back(dut):
    """The memory gives nothing for long in the middle of a leaf; then a thousand quiet cycles after the end."""
    tb = await started(dut)
    tb.granules.idle = iter([False] * 400 + [True] * 2000 + [False] * 1_000_000)
    await tb.check(prepare(Case(200), np.random.default_rng(SEED)))
    await ClockCycles(dut.clk, 1000)
    assert not tb.output.received
    assert not int(dut.busy.value)


@cocotb.test()
async def test_output_stalls_and_comes_back(dut):
    """Nobody takes the output for long: leaves land until all landings are full, and none is overwritten."""
    tb = await started(dut)
    tb.output.pause = iter([False] * 20 + [True] * 9000 + [False] * 1_000_000)
    generator = np.random.default_rng(SEED)
    a, b = (prepare(Case(100 + slot, group=1), generator, slot) for slot in range(2))
    for one in (a, b):
        await tb.set_up(one)
    queued = [a, a, a, a, b, b, b, b, a, a, a, a]
    for one, rows in zip(queued, await tb.run(*queued), strict=True):
        assert (rows == one.expected).all()


@cocotb.test()
@cocotb.parametrize(
    fault=[
        {"rows": 0},
        {"rows": SIZE.max_rows + 1},
        {"group": 0},
        {"key_blocks": 0},
        {"value_groups": SIZE.max_value_groups + 1},
        {"first_leaf": 1},
        {"last_leaf": 1 << SIZE.levels},
        {"element": ElementFormat["E2M1"].value},
    ]
)
async def test_refused_commands(dut, fault):
    """A command that the build cannot do sets `error` and gives nothing; the next one runs."""
    tb = await started(dut)
    prepared = prepare(Case(60), np.random.default_rng(SEED))
    await tb.set_up(prepared)
    await tb.command.send(prepared.command | fault)
    await ClockCycles(dut.clk, 200)
    assert int(dut.error.value)
    assert not int(dut.busy.value)
    assert (await tb.run(prepared))[0].tolist() == prepared.expected.tolist()


@cocotb.test()
async def test_chunks_give_the_same_rows(dut):
    """One chunk of two positions, and each of them alone, on the same cache: the same bits."""
    tb = await started(dut)
    whole = prepare(Case(150, count=2), np.random.default_rng(SEED))
    await tb.check(whole)
    rows = whole.expected.reshape(2, 3, -1)
    for index in range(2):
        codes, scales = (part.reshape(2, 3, -1)[index] for part in whole.query)
        whole.command |= {"rows": 3, "position": 148 + index}
        alone = type(whole)(whole.case, whole.image, whole.command, whole.table, (codes, scales), None, rows[index])
        await tb.check(alone)


class AttentionEnvironment(uvm_env):
    """Watches the output; `TB` drives."""

    def build_phase(self):
        dut = cocotb.top
        self.coverage = Coverage(load_testplan(TESTPLAN))
        self.scoreboard = _Scoreboard("scoreboard", self)
        port = StreamPort(dut, "output", result_layout(8))
        self.output = StreamAgent("output_agent", self, port, "passive", None, dut.rst)

    def connect_phase(self):
        self.output.analysis_port.connect(self.scoreboard.analysis_export)


class _Scoreboard(Scoreboard):
    def write(self, value):
        super().write(tuple(value["elements"]))


@pyuvm.test()
class test_random(uvm_test):
    """Random commands back to back, with idles and pauses."""

    corrupt = False
    count = 8

    def build_phase(self):
        self.environment = AttentionEnvironment("environment", self)

    async def run_phase(self):
        self.raise_objection()
        generator = np.random.default_rng(SEED)
        tb = await started(cocotb.top, 0.1, 0.3)
        for index in range(self.count):
            case = self.draw(generator, index)
            prepared = prepare(case, generator)
            beats = prepared.expected.reshape(-1, 8)
            for number, beat in enumerate(beats):
                wrong = self.corrupt and index == 0 and number == len(beats) - 1
                self.environment.scoreboard.expect(tuple(int(v) ^ wrong for v in beat))
            await tb.set_up(prepared)
            await tb.run(prepared)
        self.drop_objection()

    def draw(self, generator, index):
        hit = self.environment.coverage.hit
        count = int(generator.integers(1, 3)) if index > 1 else index + 1
        group = int(generator.integers(1, SIZE.max_rows // count + 1))
        length = int(generator.integers(count, 130 if index % 2 else 400))
        window = int(generator.integers(1, 200)) if index % 3 == 1 else 0
        latent, sink = index % 4 == 2, index % 3 == 0
        hit("commands", "decode" if count == 1 else "prefill")
        hit("commands", "window" if window else "causal")
        hit("commands", "latent" if latent else "separate_values")
        hit("commands", "sink" if sink else "no_sink")
        hit("commands", "one_leaf" if length <= 128 else "leaves")
        key_size = 96 if latent else int(generator.choice([32, 64]))
        name = str(generator.choice(["MXINT8", "E4M3"]))
        hit("commands", name)
        return Case(length, count, group, key_size, 64, window, latent, sink, format=name)

    def check_phase(self):
        holes = self.environment.coverage.holes()
        assert self.corrupt or not holes, f"never seen: {holes}"


@pyuvm.test(expect_error=AssertionError)
class test_wrong_expectation_fails(test_random):
    """One golden beat is wrong: the scoreboard has to notice."""

    corrupt = True
    count = 1
