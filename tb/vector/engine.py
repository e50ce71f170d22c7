"""Environment around `hw.vector.engine.VectorEngine`: agents of its streams, scoreboards, playing of passes."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import cocotb
import numpy as np
from amaranth.lib import data
from cocotb.triggers import ClockCycles, Combine, RisingEdge
from pyuvm import uvm_env, uvm_test

from golden import vector
from golden.vector import Pass, Reduce
from hw.vector.engine import result_layout
from hw.vector.isa import STREAMS, EngineCommand
from tb.common.coverage import Coverage, load_testplan
from tb.common.scoreboard import Scoreboard
from tb.common.stream import StreamAgent, StreamPort, StreamSequence, randomly
from tb.vector.lower import Lowered, kept, lower_all
from tb.vector.units import SEED, reset

LANES = int(os.environ.get("LANES", "2"))
TIMEOUT = 200_000


class _ResultScoreboard(Scoreboard):
    """Compares the elements that exist."""

    def write(self, value: Any) -> None:
        super().write(kept(value))


class _SilentScoreboard(Scoreboard):
    """For an output on which nothing may come."""

    def check_phase(self) -> None:
        assert not self.expected
        assert not self.found, f"{self.get_full_name()}: {len(self.found)} items came, there should be none"


class EngineEnvironment(uvm_env):
    """Agents with random idles on all inputs and random pauses on both outputs."""

    def __init__(self, name: str, parent: Any, idle: float, pause: float, reduces: bool = True):
        self.idle, self.pause, self.reduces = idle, pause, reduces
        super().__init__(name, parent)

    def build_phase(self) -> None:
        dut = cocotb.top
        beat = data.ArrayLayout(32, LANES)
        hooks = (randomly(self.idle, SEED + i) for i in range(8))

        def source(name: str, shape: Any) -> StreamAgent:
            return StreamAgent(f"{name}_agent", self, StreamPort(dut, name, shape), "source", next(hooks), dut.rst)

        self.command = source("command", EngineCommand)
        self.operands = {name: source(name, beat) for name in STREAMS}
        self.result = StreamAgent("result_agent", self, StreamPort(dut, "result", result_layout(LANES)), "sink",
                                  randomly(self.pause, SEED + 10), dut.rst)  # fmt: skip
        self.reduced = StreamAgent("reduced_agent", self, StreamPort(dut, "reduced", 32), "sink",
                                   randomly(self.pause, SEED + 11), dut.rst)  # fmt: skip
        self.result_scoreboard = _ResultScoreboard("result_scoreboard", self)
        kind = Scoreboard if self.reduces else _SilentScoreboard
        self.reduced_scoreboard = kind("reduced_scoreboard", self)

    def connect_phase(self) -> None:
        self.result.analysis_port.connect(self.result_scoreboard.analysis_export)
        self.reduced.analysis_port.connect(self.reduced_scoreboard.analysis_export)

    async def play(self, commands: Sequence[Lowered]) -> int:
        """Run commands back to back, all streams at once; returns the cycles until the engine is idle."""
        dut = cocotb.top
        sequences = [(self.command, [lowered.command for lowered in commands])]
        for name, agent in self.operands.items():
            flat = [dict(enumerate(beat)) for c in commands for beat in c.streams[name]]
            sequences.append((agent, flat))
        for lowered in commands:
            for beat in lowered.result:
                self.result_scoreboard.expect(beat)
            for value in lowered.reduced:
                self.reduced_scoreboard.expect(value)
        begin = cocotb.utils.get_sim_time("ns")
        await Combine(
            *(cocotb.start_soon(StreamSequence(values).start(agent.sequencer)) for agent, values in sequences if values)
        )
        await ClockCycles(dut.clk, 2)
        for _ in range(TIMEOUT):
            if not int(dut.busy.value):
                break
            await RisingEdge(dut.clk)
        else:
            raise AssertionError(f"the engine is still busy after {TIMEOUT} cycles")
        return int(cocotb.utils.get_sim_time("ns") - begin)


class EngineTest(uvm_test):
    """Plays what `passes` records. `corrupt`: one golden element is made wrong first."""

    idle, pause = 0.2, 0.3
    corrupt = False
    reduces = True
    testplan: Path

    def passes(self, generator: np.random.Generator) -> None:
        """Call golden functions: what they pass through the engine is played."""
        raise NotImplementedError

    def build_phase(self) -> None:
        self.coverage = Coverage(load_testplan(self.testplan))
        self.environment = EngineEnvironment("environment", self, self.idle, self.pause, self.reduces)

    async def run_phase(self) -> None:
        self.raise_objection()
        await reset(cocotb.top)
        with vector.recording() as recorded:
            self.passes(np.random.default_rng(SEED))
        commands = lower_all(recorded, LANES)
        if self.corrupt:
            beat = commands[0].result[0]
            commands[0].result[0] = (beat[0] ^ 1, *beat[1:])
        await self.environment.play(commands)
        assert not int(cocotb.top.error.value), "the engine refused a command"
        self.drop_objection()

    def check_phase(self) -> None:
        holes = self.coverage.holes()
        assert self.corrupt or not holes, f"never seen: {holes}"


class FunctionTest(EngineTest):
    """Plays every case of `cases`: name (a bin of the testpoint "cases") to a function of a NumPy generator."""

    cases: dict[str, Callable[[np.random.Generator], Any]]

    def passes(self, generator: np.random.Generator) -> None:
        for name, case in self.cases.items():
            case(generator)
            self.coverage.hit("cases", name)


def random_values(generator: np.random.Generator, shape: tuple[int, ...], spread: float = 3.0) -> np.ndarray:
    """FP32 bits: normal deviates of mixed magnitude, with a sprinkle of zeros, subnormals and large values."""
    values = generator.normal(size=shape) * np.exp2(generator.uniform(-spread, spread, shape))
    bits = np.array(values, dtype=np.float32).view(np.uint32)
    rare = generator.random(shape)
    bits[rare < 0.01] = 0
    bits[(rare >= 0.01) & (rare < 0.02)] = 0x80000000
    bits[(rare >= 0.02) & (rare < 0.03)] &= np.uint32(0x807FFFFF)
    return bits


def any_pass(generator: random.Random, lanes: int, coverage: Coverage | None = None) -> Pass:
    """A pass with random operands of every kind, random combine, function, reduction, mask and shape."""
    numbers = np.random.default_rng(generator.getrandbits(32))
    rows, length = generator.choice([1, 1, 2, 3, lanes, lanes + 1]), generator.randint(1, 5 * lanes)
    shapes = [(rows, length), (rows, length), (rows, 1), ()]
    pool = [random_values(numbers, shape) for shape in (shapes[0], shapes[generator.randrange(3)], shapes[2], ())]
    for array in pool[:2]:
        if generator.random() < 0.15:
            place = tuple(generator.randrange(size) for size in array.shape)
            array[place] = generator.choice([0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001, 0x7F7FFFFF])
    scalars = [pool[3][()], vector.ONE, vector.MINUS_ONE, vector.ZERO, vector.NEGATIVE_ZERO]
    operands = {name: generator.choice([*pool[:3], generator.choice(scalars)]) for name in "yzwv"}
    operands["x"] = pool[0]
    visible = None
    if generator.random() < 0.4:
        group, low = generator.randint(0, 3), generator.randint(-4, length)
        moved = np.arange(rows) // group if group else np.zeros(rows, np.int64)
        bounds = (low + moved)[:, None], (low + generator.randint(0, length + 4) + moved)[:, None]
        visible = (np.arange(length) >= bounds[0]) & (np.arange(length) < bounds[1])
    combine = generator.choice(list(vector.Combine))
    function = generator.choice(list(vector.Function))
    reduce = generator.choice(list(Reduce))
    if coverage:
        coverage.hit("commands", combine.name.lower())
        coverage.hit("commands", f"function_{function.name.lower()}")
        coverage.hit("commands", f"reduce_{reduce.name.lower()}")
        coverage.hit("shapes", "one_row" if rows == 1 else "rows")
        coverage.hit("shapes", "short" if length < lanes else "ragged" if length % lanes else "whole")
        coverage.hit("shapes", "whole" if visible is None else "masked")
    with vector.recording() as recorded:
        vector.vector_pass(**operands, combine=combine, function=function, reduce=reduce, visible=visible)
    return recorded[0]
