"""What the testbenches of the arithmetic units share: operands worth trying, agents, and one pyuvm environment.

A unit is described by the `Unit` of its `unit.py`; `test_unit.py` has the tests.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cocotb
import numpy as np
from amaranth.hdl import ShapeLike
from cocotb.triggers import ClockCycles
from pyuvm import uvm_env, uvm_test

from hw.vector.fp32_multiply import Operands
from hw.vector.function import Function, FunctionOperands, FunctionUnit
from tb.common.clock import start_clock
from tb.common.coverage import Coverage, load_testplan
from tb.common.scoreboard import Scoreboard
from tb.common.stream import StreamAgent, StreamPort, StreamSequence, StreamSink, StreamSource, randomly

SEED = int(os.environ.get("SERRANO_SEED", "1"))

SPECIALS = [magnitude | sign for sign in (0, 1 << 31) for magnitude in (
    0, 1, 2, 0x007FFFFF, 0x00800000, 0x00800001, 0x00FFFFFF, 0x33800000, 0x34000000, 0x3F000000, 0x3F7FFFFF, 0x3F800000,
    0x3F800001, 0x3FFFFFFF, 0x40000000, 0x40490FDB, 0x4B000000, 0x7E800000, 0x7F000000, 0x7F7FFFFF, 0x7F800000,
    0x7F800001, 0x7FC00000, 0x7FFFFFFF,
)]  # fmt: skip
"""Zero, subnormals, the smallest normals, one and its neighbours, powers, the largest, infinity, NaNs; both signs."""


@dataclass(frozen=True)
class Unit:
    """A unit under test: operand tuples to the device's payload, and their golden result."""

    name: str
    shape: ShapeLike
    payload: Callable[[tuple[int, ...]], dict[str, int]]
    golden: Callable[..., Any]
    random: Callable[[random.Random], tuple[int, ...]]
    directed: Sequence[tuple[int, ...]]
    testplan: Path
    latency: int

    def expected(self, operands: Sequence[tuple[int, ...]]) -> list[int]:
        columns = [np.array(column, dtype=np.uint32) for column in zip(*operands, strict=True)]
        return [int(value) for value in self.golden(*columns)]


def binary_unit(
    name: str, golden: Callable[..., Any], draw: Callable[[random.Random], tuple[int, int]], latency: int
) -> Unit:
    """A unit with operands a and b: all pairs of specials are its directed operands."""
    return Unit(name, Operands, lambda pair: {"a": pair[0], "b": pair[1]}, golden, draw,
                [(a, b) for a in SPECIALS for b in SPECIALS], _testplan(name), latency)  # fmt: skip


def function_unit(
    function: Function, golden: Callable[..., Any], draw: Callable[[random.Random], int], more: Sequence[int]
) -> Unit:
    """The table-and-polynomial unit with one of its functions: specials and `more` are its directed arguments."""
    name = function.name.lower()
    return Unit(name, FunctionOperands, lambda x: {"function": function.value, "x": x[0]}, golden,
                lambda generator: (draw(generator),), [(x,) for x in [*SPECIALS, *more]], _testplan(name),
                FunctionUnit.latency)  # fmt: skip


def _testplan(name: str) -> Path:
    return Path(__file__).parent.parent / name / "testplan.toml"


def any_bits(generator: random.Random) -> int:
    """32 random bits: every exponent, subnormals and NaNs included, is as likely."""
    return generator.getrandbits(32)


def kind(bits: int) -> str:
    """The class of an FP32 value, as the testplans' bins name it."""
    exponent, fraction = bits >> 23 & 255, bits & 0x7FFFFF
    if exponent == 255:
        return "nan" if fraction else "infinity"
    if exponent == 0:
        return "subnormal" if fraction else "zero"
    return "normal"


async def reset(dut: Any) -> None:
    dut.rst.value = 1
    start_clock(dut.clk)
    await ClockCycles(dut.clk, 2)
    dut.rst.value = 0


async def run_directed(dut: Any, unit: Unit, idle: float, pause: float) -> None:
    """All directed operands through the unit, in order, with idles and pauses."""
    source = StreamSource(StreamPort(dut, "i", unit.shape), randomly(idle, SEED))
    sink = StreamSink(StreamPort(dut, "o", 32), randomly(pause, SEED + 1))
    await reset(dut)
    expected = unit.expected(unit.directed)
    for operands in unit.directed:
        source.put(unit.payload(operands))
    for operands, value in zip(unit.directed, expected, strict=True):
        found = await sink.receive()
        shown = ", ".join(f"{x:#010x}" for x in operands)
        assert found == value, f"{unit.name}({shown}): expected {value:#010x}, found {found:#010x}"


async def run_throughput(dut: Any, unit: Unit) -> None:
    """A result every cycle, the first `unit.latency` cycles after its operands."""
    count = 64
    source = StreamSource(StreamPort(dut, "i", unit.shape))
    sink = StreamSink(StreamPort(dut, "o", 32))
    await reset(dut)
    await ClockCycles(dut.clk, 1)
    begin = cocotb.utils.get_sim_time("ns")
    for operands in unit.directed[:count]:
        source.put(unit.payload(operands))
    await sink.receive()
    first = cocotb.utils.get_sim_time("ns")
    for _ in range(count - 1):
        await sink.receive()
    assert cocotb.utils.get_sim_time("ns") - first == count - 1
    assert first - begin <= unit.latency + 3, f"the first result took {first - begin} cycles"


class UnitEnvironment(uvm_env):
    """Source and sink with random idles and pauses, scoreboard, coverage of operand and result kinds."""

    def __init__(self, name: str, parent: Any, unit: Unit):
        self.unit = unit
        super().__init__(name, parent)

    def build_phase(self) -> None:
        dut = cocotb.top
        self.coverage = Coverage(load_testplan(self.unit.testplan))
        self.scoreboard = Scoreboard("scoreboard", self)
        port = StreamPort(dut, "i", self.unit.shape)
        self.source = StreamAgent("source", self, port, "source", randomly(0.2, SEED), dut.rst)
        self.sink = StreamAgent("sink", self, StreamPort(dut, "o", 32), "sink", randomly(0.3, SEED + 1), dut.rst)

    def connect_phase(self) -> None:
        self.sink.analysis_port.connect(self.scoreboard.analysis_export)


class RandomUnitTest(uvm_test):
    """Random operands against the golden function; `corrupt` is XORed into one expectation."""

    unit: Unit
    count = 1500
    corrupt = 0

    def build_phase(self) -> None:
        self.environment = UnitEnvironment("environment", self, self.unit)

    async def run_phase(self) -> None:
        self.raise_objection()
        environment, unit = self.environment, self.unit
        await reset(cocotb.top)
        generator = random.Random(SEED)
        operands = [*unit.directed[:: max(1, len(unit.directed) // 60)]]
        operands += [unit.random(generator) for _ in range(self.count)]
        for index, (given, value) in enumerate(zip(operands, unit.expected(operands), strict=True)):
            for operand in given:
                environment.coverage.hit("operand_kinds", kind(operand))
            environment.coverage.hit("result_kinds", kind(value))
            environment.scoreboard.expect(value ^ (self.corrupt if index == self.count // 2 else 0))
        await StreamSequence([unit.payload(given) for given in operands]).start(environment.source.sequencer)
        await ClockCycles(cocotb.top.clk, 100)
        self.drop_objection()

    def check_phase(self) -> None:
        holes = self.environment.coverage.holes()
        assert self.corrupt or not holes, f"never seen: {holes}"
