"""The block dot against `golden.dot`: every pair of codes, adversarial blocks, stalls, refusals."""

import os
from pathlib import Path

import cocotb
import numpy as np
import pyuvm
from cocotb.triggers import ClockCycles, RisingEdge
from pyuvm import (
    ConfigDB,
    uvm_agent,
    uvm_analysis_port,
    uvm_driver,
    uvm_env,
    uvm_monitor,
    uvm_sequence,
    uvm_sequence_item,
    uvm_sequencer,
    uvm_test,
)

from golden.formats import FORMATS, Kind
from tb.common.clock import start_clock
from tb.common.coverage import Coverage, load_testplan
from tb.common.scoreboard import Scoreboard
from tb.dot import vectors

FORMAT_NAMES = os.environ["FORMATS"].split(",")
LONG = bool(os.environ.get("LONG"))
BLOCKS = int(os.environ.get("BLOCKS") or 0)  # random blocks a pair of formats; 0: a few
SEED = int(os.environ.get("SERRANO_SEED", "1"))
PAIRS = vectors.pairs(FORMAT_NAMES)
MX = [pair for pair in PAIRS if all(format.scale == "E8M0" for format in pair)]
TESTPLAN = load_testplan(Path(__file__).with_name("testplan.toml"))


async def start(dut) -> None:
    dut.rst.value = 1
    for port in (dut.open, dut.stall, dut.direct, dut.record, dut.record_valid):
        port.value = 0
    start_clock(dut.clk)
    await ClockCycles(dut.clk, 2)
    dut.rst.value = 0


async def play(dut, records: np.ndarray, stall: bool = False, mismatches: int = 0) -> None:
    """Run the records through the pipeline, from a file; the result of each is compared in hardware."""
    Path("vectors.bin").write_bytes(records.tobytes())
    dut.stall.value = stall
    dut.open.value = 1
    await RisingEdge(dut.clk)
    await RisingEdge(dut.clk)
    dut.open.value = 0
    await RisingEdge(dut.done)
    await RisingEdge(dut.clk)
    assert int(dut.count.value) == len(records), f"{int(dut.count.value)} of {len(records)} records were checked"
    if int(dut.mismatches.value) != mismatches:
        index = int(dut.first_index.value)
        record = records[index]
        named = list(FORMATS)[record["a_format"]], list(FORMATS)[record["b_format"]]
        raise AssertionError(
            f"{int(dut.mismatches.value)} of {len(records)} wrong, the first is {index} {named}: "
            f"expected {int(record['expected']):#010x}, found {int(dut.first_found.value):#010x}, "
            f"{record}"
        )


@cocotb.test()
async def test_every_pair_of_codes(dut):
    """Every pair of codes, one lane at a time: of each two MX formats in one order (long: of every pair of formats)."""
    await start(dut)
    for a, b in PAIRS if LONG else [pair for pair in MX if pair[0].name <= pair[1].name]:
        await play(dut, vectors.every_code_pair(a, b))
        if LONG:
            await play(dut, vectors.every_code_pair(a, b, all_lanes=True))


@cocotb.test()
async def test_adversarial_blocks(dut):
    """Cancellation, extreme alignments and scales, subnormals, specials; every pair of formats."""
    await start(dut)
    rng = np.random.default_rng([SEED, 1])
    count = BLOCKS or max(1_000, 20_000 // len(PAIRS))
    for a, b in PAIRS:
        await play(dut, vectors.adversarial(a, b, count, rng))


@cocotb.test()
async def test_stalls(dut):
    """Formats that change with every block, registers that hold in half of the cycles."""
    await start(dut)
    rng = np.random.default_rng([SEED, 2])
    mixed = np.concatenate([vectors.adversarial(a, b, 20, rng) for a, b in PAIRS])
    await play(dut, rng.permutation(mixed), stall=True)


@cocotb.test()
async def test_unsupported_format_is_flagged(dut):
    """A format that is not in the build, or an offset on side A: the flag, and NaN."""
    await start(dut)
    rng = np.random.default_rng([SEED, 3])
    records = vectors.adversarial(*PAIRS[0], 32, rng)
    allowed_a = {vectors.ElementFormat[a.name].value for a, _ in PAIRS}
    allowed_b = {vectors.ElementFormat[b.name].value for _, b in PAIRS}
    records["a_format"], records["b_format"] = np.arange(32) % 16, np.arange(32) // 16 * 9
    refused = ~(np.isin(records["a_format"], list(allowed_a)) & np.isin(records["b_format"], list(allowed_b)))
    records["expected"] = 0x7FC00000
    records = records[refused]
    assert len(records)
    await play(dut, records)
    assert int(dut.refused.value) == len(records)


@cocotb.test()
async def test_wrong_expectation_is_noticed(dut):
    """Must fail inside: one expected bit is wrong, and exactly that record has to be reported."""
    await start(dut)
    records = vectors.adversarial(*PAIRS[0], 64, np.random.default_rng([SEED, 4]))
    records["expected"][41] ^= 1
    await play(dut, records, mismatches=1)
    assert int(dut.first_index.value) == 41


class BlockItem(uvm_sequence_item):
    def __init__(self, record: np.void):
        super().__init__("block")
        self.record = record


class BlockSequence(uvm_sequence):
    def __init__(self, records: np.ndarray):
        super().__init__("blocks")
        self.records = records

    async def body(self):
        for record in self.records:
            item = BlockItem(record)
            await self.start_item(item)
            await self.finish_item(item)


class BlockDriver(uvm_driver):
    """Puts a block on the ports and keeps it until the pipelines step; now and then it leaves a gap."""

    async def run_phase(self):
        dut, rng = cocotb.top, np.random.default_rng([SEED, 5])
        while True:
            item = await self.seq_item_port.get_next_item()
            dut.record.value = int.from_bytes(item.record.tobytes(), "little")
            dut.record_valid.value = 1
            await self.step(dut)
            dut.record_valid.value = 0
            while rng.random() < 0.3:
                await self.step(dut)
            self.seq_item_port.item_done()

    async def step(self, dut):
        await RisingEdge(dut.clk)
        while not int(dut.enabled.value):
            await RisingEdge(dut.clk)


class BlockMonitor(uvm_monitor):
    def build_phase(self):
        self.analysis_port = uvm_analysis_port("analysis_port", self)

    async def run_phase(self):
        dut = cocotb.top
        while True:
            await RisingEdge(dut.clk)
            if int(dut.result_valid.value) and int(dut.enabled.value):
                self.analysis_port.write(int(dut.result.value))


class BlockAgent(uvm_agent):
    def build_phase(self):
        self.sequencer = uvm_sequencer("sequencer", self)
        ConfigDB().set(None, "*", "block_sequencer", self.sequencer)
        self.driver = BlockDriver("driver", self)
        self.monitor = BlockMonitor("monitor", self)

    def connect_phase(self):
        self.driver.seq_item_port.connect(self.sequencer.seq_item_export)


class DotEnvironment(uvm_env):
    def build_phase(self):
        self.coverage = Coverage(TESTPLAN)
        self.scoreboard = Scoreboard("scoreboard", self)
        self.agent = BlockAgent("agent", self)

    def connect_phase(self):
        self.agent.monitor.analysis_port.connect(self.scoreboard.analysis_export)


@pyuvm.test()
class test_random(uvm_test):
    """Random blocks through the ports, with gaps and stalls; the testplan's classes of results all seen."""

    corrupt = 0

    def build_phase(self):
        self.environment = DotEnvironment("environment", self)

    async def run_phase(self):
        self.raise_objection()
        dut, environment = cocotb.top, self.environment
        await start(dut)
        dut.direct.value, dut.stall.value = 1, 1
        rng = np.random.default_rng([SEED, 6])
        each = max(4, 500 // len(PAIRS))
        records = rng.permutation(np.concatenate([vectors.adversarial(a, b, each, rng) for a, b in PAIRS]))
        for index, record in enumerate(records):
            environment.scoreboard.expect(int(record["expected"]) ^ (self.corrupt if index == 200 else 0))
            self.sample(record)
        await BlockSequence(records).start(environment.agent.sequencer)
        await ClockCycles(dut.clk, 100)
        self.drop_objection()

    def sample(self, record) -> None:
        coverage, result = self.environment.coverage, int(record["expected"])
        exponent, fraction = result >> 23 & 0xFF, result & 0x7FFFFF
        kind = ("zero" if fraction == 0 else "subnormal") if exponent == 0 else "normal"
        if exponent == 0xFF:
            kind = "nan" if fraction else "infinity"
        coverage.hit("result", kind)
        for side in "ab":
            format = list(FORMATS.values())[record[f"{side}_format"]]
            if FORMATS["MXINT8"] is format and 0x80 in record[f"{side}_codes"]:
                coverage.hit("operands", "most_negative")
            if (format.element.decode(record[f"{side}_codes"])[3] != Kind.FINITE).any():
                coverage.hit("specials", "element")
        coverage.hit("operands", "negative_result" if result >> 31 else "positive_result")

    def check_phase(self):
        points = ["result", "operands"] + (["specials"] if len(FORMAT_NAMES) > 1 else [])
        holes = self.environment.coverage.holes(*points)
        assert self.corrupt or not holes, f"never seen: {holes}"


@pyuvm.test(expect_error=AssertionError)
class test_wrong_golden_fails(test_random):
    """The golden value is wrong in one place: the scoreboard has to notice."""

    corrupt = 1
