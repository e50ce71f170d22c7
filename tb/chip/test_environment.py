"""The chip under random software: order of programs and starts, gaps, bursts of any length, pauses on both ports."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import cocotb
import pyuvm
from cocotb.triggers import ClockCycles
from pyuvm import (
    uvm_agent,
    uvm_analysis_port,
    uvm_driver,
    uvm_env,
    uvm_sequence,
    uvm_sequence_item,
    uvm_sequencer,
    uvm_test,
)

from tb.chip.host import Host
from tb.chip.test_chip import PLAN, SEED, golden_machines, golden_memory
from tb.common.coverage import Coverage, load_testplan
from tb.common.scoreboard import Scoreboard

TESTPLAN = load_testplan(Path(__file__).with_name("testplan.toml"))


class HostItem(uvm_sequence_item):
    """One thing that the host's software does: a method of `Host` with its arguments."""

    def __init__(self, method: str, *arguments: Any):
        super().__init__(method)
        self.method, self.arguments = method, arguments


class HostDriver(uvm_driver):
    """Runs items on the chip's ports, with idle cycles between them."""

    def build_phase(self) -> None:
        self.results = uvm_analysis_port("results", self)
        self.choice = random.Random(SEED)
        self.addresses = sorted(golden_memory(PLAN))

    async def run_phase(self) -> None:
        self.host = Host(cocotb.top)
        await self.host.reset()
        while True:
            item = await self.seq_item_port.get_next_item()
            await ClockCycles(cocotb.top.clk, self.choice.choice([1, 1, 1, 20]))
            found = await getattr(self.host, item.method)(*item.arguments)
            if item.method == "counters":
                self.results.write(("sent", *item.arguments, found["result_granules"]))
            if item.method == "results":
                for address in self.addresses:
                    self.results.write((address, tuple(int(value) for value in found[address])))
            self.seq_item_port.item_done()


class HostAgent(uvm_agent):
    def build_phase(self) -> None:
        self.sequencer = uvm_sequencer("sequencer", self)
        self.driver = HostDriver("driver", self)

    def connect_phase(self) -> None:
        self.driver.seq_item_port.connect(self.sequencer.seq_item_export)


class PlanSequence(uvm_sequence):
    """A plan in an order that software may choose; `corrupt` changes one activation block on its way."""

    def __init__(self, choice: random.Random, coverage: Coverage, corrupt: bool = False):
        super().__init__("plan")
        self.choice, self.coverage, self.corrupt = choice, coverage, corrupt

    async def do(self, method: str, *arguments: Any) -> None:
        item = HostItem(method, *arguments)
        await self.start_item(item)
        await self.finish_item(item)

    async def body(self) -> None:
        tiles = list(range(PLAN.config.tiles))
        self.choice.shuffle(tiles)
        for tile in tiles:
            await self.do("load_program", tile, PLAN.programs[tile])
        await self.do("write", "clear", 1)
        # Tiles may be started before or after the first activations are there.
        late = [tile for tile in tiles if self.choice.random() < 0.5]
        for tile in tiles:
            if tile not in late:
                await self.do("start", tile)
        for number, phase in enumerate(PLAN.phases):
            await self.blocks(list(phase.blocks))
            if number == 0:
                for tile in late:
                    self.coverage.hit("starts", "after_data")
                    await self.do("start", tile)
                if len(late) < len(tiles):
                    self.coverage.hit("starts", "before_data")
            await self.do("signals", len(tiles) * (number + 1))
        # The result memory may still hold the run before: the counters tell how much of it is new.
        for tile in sorted(tiles):
            await self.do("counters", tile)
        await self.do("results", PLAN.result_granules)

    async def blocks(self, left: list[Any]) -> None:
        """All blocks, as many at a time as chance has it; their order does not matter."""
        if self.choice.random() < 0.5:
            self.choice.shuffle(left)
            self.coverage.hit("order", "shuffled")
        else:
            self.coverage.hit("order", "in_order")
        if self.corrupt:
            address, codes, scale = left[0]
            left[0] = address, codes ^ 0x11, scale
        while left:
            size = self.choice.choice([1, 7, len(left)])
            await self.do("write_blocks", left[:size])
            left = left[size:]


class ChipEnvironment(uvm_env):
    def build_phase(self) -> None:
        self.coverage = Coverage(TESTPLAN)
        self.scoreboard = Scoreboard("scoreboard", self)
        self.agent = HostAgent("agent", self)

    def connect_phase(self) -> None:
        self.agent.driver.results.connect(self.scoreboard.analysis_export)


@pyuvm.test()
class test_random_software(uvm_test):
    """The same products several times on one chip, each time in another order and with other pauses."""

    runs, corrupt = 4, False

    def build_phase(self) -> None:
        self.environment = ChipEnvironment("environment", self)

    async def run_phase(self) -> None:
        self.raise_objection()
        choice, environment = random.Random(SEED), self.environment
        memory = golden_memory(PLAN)
        for run in range(self.runs):
            for tile, machine in enumerate(golden_machines(PLAN)):
                environment.scoreboard.expect(("sent", tile, len(machine.sent)))
            for address in sorted(memory):
                environment.scoreboard.expect((address, memory[address]))
            sequence = PlanSequence(choice, environment.coverage, self.corrupt)
            pause = run % 2 * 0.5
            environment.coverage.hit("host_pauses", "heavy" if pause else "none")
            while not hasattr(environment.agent.driver, "host"):
                await ClockCycles(cocotb.top.clk, 1)
            environment.agent.driver.host.pause(pause, SEED + 100 * run)
            await sequence.start(environment.agent.sequencer)
        self.drop_objection()

    def check_phase(self) -> None:
        if self.runs > 1:
            holes = self.environment.coverage.holes()
            assert not holes, f"never seen: {holes}"


@pyuvm.test(expect_error=AssertionError)
class test_changed_block_fails(test_random_software):
    """One activation block arrives with other elements than the golden machines got: the scoreboard has to notice."""

    runs, corrupt = 1, True
