"""pyuvm environment of `hw.hbm.HbmController`: random descriptors under random pauses, AXI traffic beside them."""

from __future__ import annotations

import os
import random
from pathlib import Path

import cocotb
import pyuvm
from cocotb.triggers import ClockCycles, RisingEdge
from cocotbext.axi import AxiBus, AxiMaster
from pyuvm import uvm_env, uvm_test

from hw.hbm.interface import Hint, StreamDescriptor
from tb.common.clock import start_clock
from tb.common.coverage import Coverage, load_testplan
from tb.common.scoreboard import Scoreboard
from tb.common.stream import StreamAgent, StreamPort, StreamSequence, randomly
from tb.hbm.models import CONTROLLERS
from tb.hbm.test_controller import pattern

CONFIG = CONTROLLERS[os.environ["HBM_CONFIG"]]
SEED = int(os.environ.get("SERRANO_SEED", "1"))
TESTPLAN = load_testplan(Path(__file__).with_name("testplan.toml"))
HALF = CONFIG.granules // 2  # streams read the lower half, AXI writes the upper


def sizes(length: int) -> str:
    return "one" if length == 1 else "row" if length <= CONFIG.timing.columns else "rows"


class HbmEnvironment(uvm_env):
    def build_phase(self) -> None:
        dut = cocotb.top
        self.coverage = Coverage(TESTPLAN)
        self.scoreboard = Scoreboard("scoreboard", self)
        descriptor = StreamPort(dut, "descriptor", StreamDescriptor(CONFIG))
        self.source = StreamAgent("source", self, descriptor, "source", randomly(0.3, SEED), dut.rst)
        self.sink = StreamAgent("sink", self, StreamPort(dut, "data", 256), "sink", randomly(0.3, SEED + 1), dut.rst)

    def connect_phase(self) -> None:
        self.sink.analysis_port.connect(self.scoreboard.analysis_export)


@pyuvm.test()
class test_random_traffic(uvm_test):
    """Streams against the device's pattern, while AXI writes and reads elsewhere; all kinds of command seen."""

    corrupt = 0

    def build_phase(self) -> None:
        self.environment = HbmEnvironment("environment", self)

    async def run_phase(self) -> None:
        self.raise_objection()
        dut, environment = cocotb.top, self.environment
        dut.rst.value = 1
        start_clock(dut.clk)
        master = AxiMaster(AxiBus.from_prefix(dut, prefix="axi", bus_separator="__"), dut.clk, dut.rst)
        await ClockCycles(dut.clk, 4)
        dut.rst.value = 0
        cocotb.start_soon(self.sample(dut))
        generator = random.Random(SEED)
        lengths = [generator.choice((1, 2, 7, 32, 90, 200)) for _ in range(24)]
        ranges = [(generator.randrange(HALF - length), length, generator.choice(list(Hint))) for length in lengths]
        for index, (address, length, hint) in enumerate(ranges):
            environment.coverage.hit("descriptor_length", sizes(length))
            environment.coverage.hit("hints", hint.name.lower())
            for granule in range(address, address + length):
                environment.scoreboard.expect(pattern(granule) ^ (self.corrupt if index == 12 else 0))
        traffic = cocotb.start_soon(self.axi_traffic(master))
        descriptors = [{"address": a, "length": n, "hint": hint.value} for a, n, hint in ranges]
        await StreamSequence(descriptors).start(environment.source.sequencer)
        await traffic
        while environment.scoreboard.expected:
            await ClockCycles(dut.clk, 100)
        await ClockCycles(dut.clk, 1000)  # nothing comes unasked
        assert int(dut.violation.value) == 0
        self.drop_objection()

    async def axi_traffic(self, master: AxiMaster) -> None:
        generator, memory = random.Random(SEED + 2), {}
        for _ in range(25):
            address, data = 32 * HALF + 64 * generator.randrange(64), generator.randbytes(generator.choice((3, 64)))
            await master.write(address, data)
            memory[address] = data + memory.get(address, b"")[len(data) :]
            probe = generator.choice(list(memory))
            found = await master.read(probe, len(memory[probe]))
            assert bytes(found.data) == memory[probe], hex(probe)

    async def sample(self, dut) -> None:
        names = ("reads", "writes", "activates", "refreshes", "turnarounds")
        fields = dict(zip(names, (2, 3, 4, 6, 8), strict=True))  # 32-bit words of Counters
        while True:
            await ClockCycles(dut.clk, 50)
            await RisingEdge(dut.clk)
            value = int(dut.counters.value)
            for name, word in fields.items():
                if value >> (32 * word) & 0xFFFFFFFF:
                    self.environment.coverage.hit("commands", name)

    def check_phase(self) -> None:
        holes = self.environment.coverage.holes()
        assert self.corrupt or not holes, f"never seen: {holes}"


@pyuvm.test(expect_error=AssertionError)
class test_wrong_expectation_fails(test_random_traffic):
    """The golden values are wrong in one place: the scoreboard has to notice."""

    corrupt = 1
