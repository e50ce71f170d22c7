"""A tile with a vector side on a network that brings back what it sends itself, and its memory's AXI port."""

import os
from collections import deque
from dataclasses import replace

import cocotb
import numpy as np
from amaranth.lib import data
from cocotb.triggers import ClockCycles, RisingEdge

from hw.axi import Response
from hw.tile.isa import Counters, Memory, MoveInstruction
from tb.common.stream import decode, never, randomly
from tb.tile import CONFIGS
from tb.tile.test_tile import TB
from tb.tile.vector_work import NODE, by_place
from tb.tile.work import as_write, remote_write

CONFIG = CONFIGS[os.environ["TILE_CONFIG"]]
SEED = int(os.environ.get("SERRANO_SEED", "1"))


class MemoryPort:
    """The memory's AXI port of a tile with attention: granules into the memory that answers its descriptors.

    What lies beyond that memory is answered with an error. Nothing is answered while `silent`.
    """

    def __init__(self, dut, memory, pause):
        self.dut, self.memory, self.pause, self.silent = dut, memory, pause, False
        cocotb.start_soon(self._run())

    async def _run(self):
        dut, edge, addresses, granules, answers = self.dut, RisingEdge(self.dut.clk), deque(), deque(), deque()
        while True:
            dut.memory__awready.value, dut.memory__wready.value = int(not next(self.pause)), int(not next(self.pause))
            answering = bool(answers) and not self.silent and not next(self.pause)
            dut.memory__bvalid.value = int(answering)
            dut.memory__bresp.value = answers[0].value if answering else 0
            await edge
            if answering:
                answers.popleft()
            if int(dut.memory__awvalid.value) and int(dut.memory__awready.value):
                addresses.append(int(dut.memory__awaddr.value))
            if int(dut.memory__wvalid.value) and int(dut.memory__wready.value):
                granules.append((int(dut.memory__wdata.value), int(dut.memory__wstrb.value)))
            while addresses and granules:
                start, (value, strobe) = addresses.popleft(), granules.popleft()
                inside = start + 32 <= len(self.memory.image)
                answers.append(Response.OKAY if inside else Response.DECERR)
                for byte in range(32 if inside else 0):
                    if strobe >> byte & 1:
                        self.memory.image[start + byte] = value >> 8 * byte & 0xFF


def connect_memory(dut, memory, pause):
    """Plays the tile's AXI memory, where it has that port."""
    return MemoryPort(dut, memory, pause) if CONFIG.attention_rows else None


def returned(write):
    """The transfer that brings back what the tile sent to its own node; None for what went elsewhere only."""
    if not write.reaches(NODE):
        return None
    codes = np.array(write.values, np.uint32).tobytes()
    return remote_write(write.memory, write.address, codes, write.scale, write.counter)


class VectorTB(TB):
    """A tile on a network that brings back what the tile sends itself."""

    def __init__(self, dut, **arguments):
        super().__init__(dut, **arguments)
        self.found = []
        self.sink._callback = self._sent
        self.port = connect_memory(dut, self.memory, randomly(0.3, SEED + 9))

    def _sent(self, value):
        write = as_write(value)
        self.found.append(write)
        if transfer := returned(write):
            self.network.put(transfer)

    async def run(self, work, program):
        await self.load(work, program)
        self.memory.image = bytearray(work.memory().tobytes())
        for transfer in work.inputs():
            self.network.put(transfer)
        await self.start()
        await self.done(400_000)
        await ClockCycles(self.dut.clk, 8)
        found, self.found = self.found, []
        return found


def compare(expected, found):
    """Every place got the writes that it has to get, in order; the signal came last."""
    assert expected, "nothing to compare"
    wanted, have = by_place(expected), by_place(found)
    assert found[-1] == expected[-1] and found[-1].memory == Memory.SIGNAL, f"last: {found[-1]}"
    for place, writes in wanted.items():
        mine = [replace(h, values=w.values) if w.values is None else h
                for w, h in zip(writes, have.get(place, []), strict=False)]  # fmt: skip
        assert mine == writes, f"{place}: expected {writes}, found {have.get(place)}"
    assert len(expected) == len(found), f"expected {len(expected)} writes, found {len(found)}"


def until_attention(dut):
    """A pause until an ATTEND runs."""
    while not decode(Counters, int(dut.counters.value))["attention"]:
        yield True
    yield from never()


def changed(word, name, value, layout=MoveInstruction):
    """An instruction with another value in a field; a dot leads into a field of a field."""
    offset, shape = 0, layout
    for part in name.split("."):
        field = data.Layout.cast(shape)[part]
        offset, shape = offset + field.offset, field.shape
    return word & ~(((1 << field.width) - 1) << offset) | value << offset
