"""pyuvm environment: agents drive and watch both managers, memories answer, the scoreboard keeps the bytes."""

import os
import random
from collections import defaultdict, deque
from pathlib import Path

import cocotb
import pyuvm
from cocotb.triggers import ClockCycles, RisingEdge
from pyuvm import (
    uvm_agent,
    uvm_analysis_port,
    uvm_component,
    uvm_driver,
    uvm_env,
    uvm_sequence,
    uvm_sequence_item,
    uvm_sequencer,
    uvm_subscriber,
    uvm_test,
)

from tb.common.coverage import Coverage, load_testplan
from tb.common.stream import randomly
from tb.noc_axi.agents import DECERR, FIXED, INCR, OKAY, SLVERR, WRAP, Manager, Transfer, lanes
from tb.noc_axi.bench import REGION
from tb.noc_axi.test_bursts import memories, reset

SEED = int(os.environ.get("SERRANO_SEED", "1"))
TESTPLAN = load_testplan(Path(__file__).with_name("testplan.toml"))
LENGTHS = {FIXED: (1, 2, 7, 16), INCR: (1, 5, 16, 17, 60), WRAP: (2, 4, 8, 16)}
NAMES = {FIXED: "fixed", INCR: "incr", WRAP: "wrap"}


class Item(uvm_sequence_item):
    def __init__(self, transfer: Transfer):
        super().__init__("transfer")
        self.transfer = transfer


class Driver(uvm_driver):
    """Starts a transfer as soon as it gets it; the sequence waits for the end where it has to."""

    def __init__(self, name, parent, manager):
        super().__init__(name, parent)
        self.manager = manager

    async def run_phase(self):
        while True:
            item = await self.seq_item_port.get_next_item()
            self.manager.start(item.transfer)
            self.seq_item_port.item_done()


class Monitor(uvm_component):
    """Rebuilds transfers from the wires of a manager's port, without knowing what the driver wanted."""

    def __init__(self, name, parent, prefix):
        super().__init__(name, parent)
        self.prefix = prefix
        self.port = uvm_analysis_port("port", self)

    async def run_phase(self):
        dut, get = cocotb.top, lambda name: int(getattr(cocotb.top, f"{self.prefix}__{name}").value)
        reading, writing, addressed, words = defaultdict(deque), defaultdict(deque), deque(), deque()
        edge = RisingEdge(dut.clk)
        while True:
            await edge
            if int(dut.rst.value):
                continue
            for channel, write in (("ar", False), ("aw", True)):
                if get(f"{channel}valid") and get(f"{channel}ready"):
                    fields = [get(channel + name) for name in ("id", "addr", "len", "size", "burst")]
                    t = Transfer(write, fields[0], fields[1], fields[2] + 1, fields[3], fields[4])
                    (writing if write else reading)[t.identity].append(t)
                    if write:
                        addressed.append(t)
            if get("wvalid") and get("wready"):
                words.append((get("wdata"), get("wstrb")))
            while addressed and len(words) >= addressed[0].beats:
                t = addressed.popleft()
                for _ in range(t.beats):
                    word, strobe = words.popleft()
                    t.words.append(word)
                    t.strobes.append(strobe)
            if get("bvalid") and get("bready"):
                t = writing[get("bid")].popleft()
                t.responses.append(get("bresp"))
                self.port.write(t)
            if get("rvalid") and get("rready"):
                t = reading[get("rid")][0]
                t.data.append(get("rdata"))
                t.responses.append(get("rresp"))
                if get("rlast"):
                    self.port.write(reading[t.identity].popleft())


class AxiAgent(uvm_agent):
    def __init__(self, name, parent, index, idle, pause):
        super().__init__(name, parent)
        self.index, self.idle, self.pause = index, idle, pause

    def build_phase(self):
        prefix = f"manager__{self.index}"
        manager = Manager(cocotb.top, prefix, randomly(self.idle, SEED), randomly(self.pause, SEED + 1))
        self.sequencer = uvm_sequencer("sequencer", self)
        self.driver = Driver("driver", self, manager)
        self.monitor = Monitor("monitor", self, prefix)

    def connect_phase(self):
        self.driver.seq_item_port.connect(self.sequencer.seq_item_export)


class RandomTransfers(uvm_sequence):
    """Rounds of writes, then of reads, several IDs at a time; each ID has its own page in each target's memory."""

    def __init__(self, index, rounds):
        super().__init__(f"transfers_{index}")
        self.index, self.rounds, self.generator = index, rounds, random.Random(SEED * 7 + index)

    async def body(self):
        for _ in range(self.rounds):
            for write in (True, False):
                transfers = [self.transfer(write) for _ in range(self.generator.randint(2, 9))]
                for transfer in transfers:
                    item = Item(transfer)
                    await self.start_item(item)
                    await self.finish_item(item)
                for transfer in transfers:
                    await transfer.done.wait()

    def transfer(self, write):
        choice = self.generator
        identity, burst, size = choice.randrange(8), choice.choice([FIXED, INCR, INCR, INCR, WRAP]), choice.randrange(3)
        beats = choice.choice(
            [2, 4, 8, 16] if burst == WRAP else [1, 2, 7, 16] if burst == FIXED else [1, 5, 16, 17, 60]
        )
        region = choice.choice([0, 0, 0, 1, 1, 1, 2])  # the third is not mapped
        page = REGION * region + 0x8000 * self.index + 0x1000 * identity
        # A small part of the page, so that reads find what was written.
        offset = choice.randrange(16) * 4 + (0 if burst == WRAP else choice.choice([0, 0, 1, 2, 3]))
        if burst == WRAP:
            offset = offset >> size << size
        if choice.random() < 0.05:
            size = 3  # wider than the bus
        t = Transfer(write, identity, page + offset, beats, size, burst)
        return t.fill(choice, sparse=choice.random() < 0.3) if write else t


class ByteScoreboard(uvm_subscriber):
    """Memory as the finished writes left it, against every finished read; coverage of what was seen."""

    def build_phase(self):
        super().build_phase()
        self.memory, self.corrupt, self.compared = bytearray(2 * REGION), 0, 0
        self.coverage = Coverage(TESTPLAN)

    def write(self, t):
        self.cover(t)
        expected = DECERR if t.address >= 2 * REGION else SLVERR if t.size > 2 else OKAY
        assert set(t.responses) == {expected}, t
        if expected != OKAY:
            return
        if t.write:
            t.apply(self.memory)
            return
        for address, word in zip(t.addresses(), t.data, strict=True):
            for lane in lanes(address, t.size):
                byte = address // 4 * 4 + lane
                expected = self.memory[byte] ^ (self.corrupt if self.compared == 60 else 0)
                found = word >> (8 * lane) & 255
                assert found == expected, f"{byte:#x}: expected {expected:#x}, found {found:#x} in {t}"
                self.compared += 1

    def cover(self, t):
        hit = self.coverage.hit
        hit("burst", f"{'write' if t.write else 'read'}_{NAMES[t.burst]}")
        hit("length", "one" if t.beats == 1 else "packet" if t.beats <= 16 else "split")
        if t.size < 2:
            hit("narrow", "narrow")
        if t.address % (1 << t.size):
            hit("narrow", "unaligned")
        for response, name in ((SLVERR, "slverr"), (DECERR, "decerr")):
            if response in t.responses:
                hit("errors", name)

    def check_phase(self):
        assert self.compared > 100, "hardly anything was compared"


class AxiEnvironment(uvm_env):
    def build_phase(self):
        self.scoreboard = ByteScoreboard("scoreboard", self)
        self.agents = [AxiAgent(f"agent_{x}", self, x, idle=0.2, pause=0.3) for x in range(2)]
        self.memories = memories(cocotb.top, pause=0.3)

    def connect_phase(self):
        for agent in self.agents:
            agent.monitor.port.connect(self.scoreboard.analysis_export)


@pyuvm.test(timeout_time=100, timeout_unit="us")
class test_environment(uvm_test):
    """Random bursts of both managers to both targets and beside them, with idles and pauses on every channel."""

    corrupt, rounds = 0, 12

    def build_phase(self):
        self.environment = AxiEnvironment("environment", self)

    async def run_phase(self):
        self.raise_objection()
        dut, environment = cocotb.top, self.environment
        environment.scoreboard.corrupt = self.corrupt
        for x, memory in enumerate(environment.memories):
            environment.scoreboard.memory[x * REGION : (x + 1) * REGION] = memory.read(x * REGION, REGION)
        await reset(dut)
        runs = [
            cocotb.start_soon(RandomTransfers(x, self.rounds).start(agent.sequencer))
            for x, agent in enumerate(environment.agents)
        ]
        for run in runs:
            await run
        await ClockCycles(dut.clk, 20)
        self.cover_order()
        self.drop_objection()

    def cover_order(self):
        coverage = self.environment.scoreboard.coverage
        for agent in self.environment.agents:
            started = [transfer.started for transfer in agent.driver.manager.order]
            if started != sorted(started):
                coverage.hit("order", "passed")

    def check_phase(self):
        for x, memory in enumerate(self.environment.memories):
            found = bytes(memory.read(x * REGION, REGION))
            assert found == self.environment.scoreboard.memory[x * REGION : (x + 1) * REGION]
        holes = self.environment.scoreboard.coverage.holes()
        assert self.corrupt or not holes, f"never seen: {holes}"


@pyuvm.test(timeout_time=100, timeout_unit="us", expect_error=AssertionError)
class test_wrong_expectation_fails(test_environment):
    """One expected byte is wrong: the scoreboard has to notice."""

    corrupt, rounds = 1, 4
