"""The pyuvm environment of a tile's vector side."""

import os
from dataclasses import replace
from pathlib import Path

import cocotb
import pyuvm
from pyuvm import uvm_env

from hw.tile.drain import Outgoing
from hw.tile.isa import RemoteWrite
from tb.common.coverage import Coverage, load_testplan
from tb.common.scoreboard import Scoreboard
from tb.common.stream import StreamAgent, StreamPort, randomly
from tb.tile import CONFIGS

CONFIG = CONFIGS[os.environ["TILE_CONFIG"]]
SEED = int(os.environ.get("SERRANO_SEED", "1"))
TESTPLAN = load_testplan(Path(__file__).with_name("testplan.toml"))


class PlaceScoreboard(Scoreboard):
    """Compares writes place by place: between the array's results and the vector side's there is no order."""

    def __init__(self, name, parent):
        super().__init__(name, parent)
        self.wanted, self.have = {}, {}

    def expect(self, value):
        self._queue(self.wanted, value).append(value)
        self._match(value)

    def write(self, value):
        self._queue(self.have, value).append(value)
        self._match(value)

    def _queue(self, side, value):
        return side.setdefault((value.destination, value.memory.value, value.address), [])

    def _match(self, value):
        wanted, have = self._queue(self.wanted, value), self._queue(self.have, value)
        while wanted and have:
            expected, found = wanted.pop(0), have.pop(0)
            if expected.values is None:
                found = replace(found, values=None)
            assert expected == found, f"expected {expected}, found {found}"
            self.compared += 1

    def check_phase(self):
        for text, side in (("never came", self.wanted), ("were not expected", self.have)):
            rest = [value for queue in side.values() for value in queue]
            assert not rest, f"{len(rest)} writes {text}, first {rest[0]}"
        assert self.compared, "nothing was compared"


class VectorEnvironment(uvm_env):
    """Agents of both network ports; the network agent's sequence brings back what the tile sends itself."""

    def build_phase(self):
        dut = cocotb.top
        self.coverage = Coverage(TESTPLAN)
        self.scoreboard = PlaceScoreboard("scoreboard", self)
        self.network = StreamAgent(
            "network", self, StreamPort(dut, "i", RemoteWrite), "source", randomly(0.2, SEED + 2), dut.rst
        )
        self.results = StreamAgent(
            "results", self, StreamPort(dut, "o", Outgoing), "sink", randomly(0.4, SEED + 3), dut.rst
        )


class Subscriber(pyuvm.uvm_subscriber):
    """Hands every value to a function."""

    def __init__(self, name, parent, callback):
        super().__init__(name, parent)
        self.callback = callback

    def write(self, value):
        self.callback(value)
