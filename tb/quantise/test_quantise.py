"""The quantisers against `golden.quantise`: every BF16 value, ties, subnormals, specials, pauses on both streams."""

import os
from pathlib import Path

import cocotb
import numpy as np
import pyuvm
from cocotb.triggers import ClockCycles, RisingEdge, with_timeout
from pyuvm import uvm_env, uvm_test

from golden.formats import FORMATS
from hw.numerics.formats import FormatSet
from hw.numerics.quantise import Quantise
from tb.common.clock import start_clock
from tb.common.coverage import Coverage, load_testplan
from tb.common.scoreboard import Scoreboard
from tb.common.stream import StreamAgent, StreamPort, StreamSequence, randomly
from tb.quantise import vectors
from tb.quantise.bench import BEATS, LANES

FORMAT_NAMES = os.environ["FORMATS"].split(",")
LONG = bool(os.environ.get("LONG"))
SEED = int(os.environ.get("SERRANO_SEED", "1"))
TESTPLAN = load_testplan(Path(__file__).with_name("testplan.toml"))
STREAMS = Quantise(FormatSet(FORMAT_NAMES), LANES).signature.members


async def start(dut) -> None:
    dut.rst.value = 1
    for port in (dut.open, dut.stall, dut.playing):
        port.value = 0
    start_clock(dut.clk)
    await ClockCycles(dut.clk, 2)
    dut.rst.value = 0


async def play(dut, records: np.ndarray, stall: bool = False, mismatches: int = 0) -> int:
    """Run the records through the quantiser, from a file. Returns the cycles taken."""
    Path("vectors.bin").write_bytes(records.tobytes())
    dut.stall.value, dut.playing.value, dut.open.value = stall, 1, 1
    await RisingEdge(dut.clk)
    await RisingEdge(dut.clk)
    dut.open.value = 0
    begin = cocotb.utils.get_sim_time("ns")
    await with_timeout(RisingEdge(dut.done), 10 * BEATS * len(records) + 1000, "ns")
    cycles = int(cocotb.utils.get_sim_time("ns") - begin)
    await RisingEdge(dut.clk)
    assert int(dut.count.value) == BEATS * len(records), f"{int(dut.count.value)} beats of {len(records)} blocks"
    if int(dut.mismatches.value) != mismatches:
        first = int(dut.first_index.value)
        record = records[first // BEATS]
        raise AssertionError(
            f"{int(dut.mismatches.value)} beats wrong, the first is {first}, of a block in "
            f"{list(FORMATS)[record['format']]}: {record}"
        )
    return cycles


@cocotb.test()
async def test_every_bf16_value(dut):
    await start(dut)
    blocks = vectors.every_bf16(np.random.default_rng([SEED, 1]))
    for name in FORMAT_NAMES:
        await play(dut, vectors.records(blocks, FORMATS[name]))


@cocotb.test()
async def test_adversarial_blocks(dut):
    await start(dut)
    rng = np.random.default_rng([SEED, 2])
    for name in FORMAT_NAMES:
        format = FORMATS[name]
        await play(dut, vectors.records(vectors.adversarial(format, 100_000 if LONG else 2_000, rng), format))


@cocotb.test()
async def test_pauses_and_mixed_formats(dut):
    await start(dut)
    await play(dut, _mixed(np.random.default_rng([SEED, 3]), 60), stall=True)


@cocotb.test()
async def test_full_throughput(dut):
    """A beat a cycle, over changes of format."""
    await start(dut)
    records = _mixed(np.random.default_rng([SEED, 4]), 40)
    cycles = await play(dut, records)
    assert cycles <= BEATS * len(records) + 20, f"{cycles} cycles for {len(records)} blocks"


@cocotb.test()
async def test_wrong_expectation_is_noticed(dut):
    """Must fail inside: one expected bit is wrong, and exactly that beat has to be reported."""
    await start(dut)
    records = _mixed(np.random.default_rng([SEED, 5]), 4)
    records["codes"][5, 17] ^= 1
    await play(dut, records, mismatches=1)
    assert int(dut.first_index.value) == 5 * BEATS + 17 // LANES


def _mixed(rng: np.random.Generator, each: int) -> np.ndarray:
    return rng.permutation(
        np.concatenate(
            [vectors.records(vectors.adversarial(FORMATS[name], each, rng), FORMATS[name]) for name in FORMAT_NAMES]
        )
    )


class QuantiseEnvironment(uvm_env):
    def build_phase(self):
        dut = cocotb.top
        shape = STREAMS["i"].signature.members["payload"].shape
        self.coverage = Coverage(TESTPLAN)
        self.scoreboard = Scoreboard("scoreboard", self)
        ports = StreamPort(dut, "i", shape), StreamPort(dut, "o", 8 * LANES + 8)
        self.source = StreamAgent("source", self, ports[0], "source", randomly(0.3, SEED), dut.rst)
        self.sink = StreamAgent("sink", self, ports[1], "sink", randomly(0.4, SEED + 1), dut.rst)

    def connect_phase(self):
        self.sink.analysis_port.connect(self.scoreboard.analysis_export)


@pyuvm.test()
class test_random(uvm_test):
    """Blocks through the streams, with idles and back-pressure; every kind of block seen."""

    corrupt = 0

    def build_phase(self):
        self.environment = QuantiseEnvironment("environment", self)

    async def run_phase(self):
        self.raise_objection()
        dut, environment = cocotb.top, self.environment
        await start(dut)
        records = _mixed(np.random.default_rng([SEED, 6]), 12)
        beats = []
        for index, record in enumerate(records):
            self.sample(record)
            for beat in range(BEATS):
                part = slice(beat * LANES, (beat + 1) * LANES)
                values = int.from_bytes(record["values"][part].tobytes(), "little")
                beats.append(values | int(record["format"]) << 32 * LANES)
                codes = int.from_bytes(record["codes"][part].tobytes(), "little") | int(record["scale"]) << 8 * LANES
                environment.scoreboard.expect(codes ^ (self.corrupt if index == 20 else 0))
        await StreamSequence(beats).start(environment.source.sequencer)
        await ClockCycles(dut.clk, 200)
        self.drop_objection()

    def sample(self, record) -> None:
        format, scale = list(FORMATS.values())[record["format"]], int(record["scale"])
        coverage = self.environment.coverage
        coverage.hit("scale", {0: "smallest", 255: "nan"}.get(scale, "usual"))
        codes = record["codes"] & ((1 << (format.bits - 1)) - 1)
        if scale != 255 and (codes == format.element.max_code).any():
            coverage.hit("codes", "largest")
        if (record["codes"] >> (format.bits - 1)).any():
            coverage.hit("codes", "negative")

    def check_phase(self):
        holes = self.environment.coverage.holes()
        assert self.corrupt or not holes, f"never seen: {holes}"


@pyuvm.test(expect_error=AssertionError)
class test_wrong_golden_fails(test_random):
    """The golden codes are wrong in one place: the scoreboard has to notice."""

    corrupt = 1
