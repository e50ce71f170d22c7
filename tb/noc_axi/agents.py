"""Managers and targets on AXI4 channels, transfer by transfer, and the bytes that a burst touches."""

from __future__ import annotations

import random
from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import Any

import cocotb
from cocotb.triggers import Event, FallingEdge, RisingEdge
from cocotbext.axi.axi_channels import (
    AxiARBus,
    AxiARSource,
    AxiARTransaction,
    AxiAWBus,
    AxiAWSource,
    AxiAWTransaction,
    AxiBBus,
    AxiBSink,
    AxiRBus,
    AxiRSink,
    AxiWBus,
    AxiWSource,
    AxiWTransaction,
)

from tb.common.stream import Hook, never
from tb.noc_axi.bench import CONFIG

LANES = CONFIG.data_width // 8
FIXED, INCR, WRAP = 0, 1, 2
OKAY, SLVERR, DECERR = 0, 2, 3


def beat_addresses(address: int, beats: int, size: int, burst: int) -> list[int]:
    """Address of each beat (ARM IHI 0022H, A3.4.1)."""
    step = 1 << size
    if burst == FIXED:
        return [address] * beats
    aligned = address // step * step
    if burst == INCR:
        return [address] + [aligned + n * step for n in range(1, beats)]
    low = address // (beats * step) * (beats * step)
    return [low + (aligned - low + n * step) % (beats * step) for n in range(beats)]


def lanes(address: int, size: int) -> range:
    """Byte lanes of a beat: from its address to the end of its aligned part of the bus."""
    first = address % LANES
    return range(first, (address // (1 << size) * (1 << size)) % LANES + (1 << size))


@dataclass
class Transfer:
    """A burst, and what came of it: `responses` of its beats (one for a write), `data` of a read's beats."""

    write: bool
    identity: int
    address: int
    beats: int
    size: int = 2
    burst: int = INCR
    words: list[int] = field(default_factory=list)
    strobes: list[int] = field(default_factory=list)
    responses: list[int] = field(default_factory=list)
    data: list[int] = field(default_factory=list)
    started: int = -1  # numbers in their manager's order
    finished: int = -1
    done: Event = field(default_factory=Event)

    def addresses(self) -> list[int]:
        return beat_addresses(self.address, self.beats, self.size, self.burst)

    def fill(self, generator: random.Random, sparse: bool = False) -> Transfer:
        """Random data; strobes on all lanes of each beat, or (`sparse`) on some."""
        for address in self.addresses():
            mask = sum(1 << lane for lane in lanes(address, self.size)) % (1 << LANES)
            self.words.append(generator.getrandbits(8 * LANES))
            self.strobes.append(mask & generator.getrandbits(LANES) if sparse else mask)
        return self

    def apply(self, memory: bytearray | dict[int, int]) -> None:
        """Write the burst into `memory`."""
        for address, word, strobe in zip(self.addresses(), self.words, self.strobes, strict=True):
            for lane in range(LANES):
                if strobe >> lane & 1:
                    memory[address // LANES * LANES + lane] = word >> (8 * lane) & 255

    def matches(self, memory: bytearray) -> bool:
        """Whether a read's data are those of `memory`, on the lanes that count."""
        return len(self.data) == self.beats and all(
            word >> (8 * lane) & 255 == memory[address // LANES * LANES + lane]
            for address, word in zip(self.addresses(), self.data, strict=True)
            for lane in lanes(address, self.size)
        )


class Manager:
    """Starts any number of transfers; every answer goes to the oldest transfer of its ID. `order`: as they ended."""

    def __init__(self, dut: Any, prefix: str, idle: Hook | None = None, pause: Hook | None = None):
        names = {"prefix": prefix, "bus_separator": "__"}
        self.ar = AxiARSource(AxiARBus.from_entity(dut, **names), dut.clk, dut.rst)
        self.aw = AxiAWSource(AxiAWBus.from_entity(dut, **names), dut.clk, dut.rst)
        self.w = AxiWSource(AxiWBus.from_entity(dut, **names), dut.clk, dut.rst)
        self.b = AxiBSink(AxiBBus.from_entity(dut, **names), dut.clk, dut.rst)
        self.r = AxiRSink(AxiRBus.from_entity(dut, **names), dut.clk, dut.rst)
        for channel in (self.ar, self.aw, self.w):
            channel.set_pause_generator(idle or never())
        for channel in (self.b, self.r):
            channel.set_pause_generator(pause or never())
        self.reading: dict[int, deque[Transfer]] = defaultdict(deque)
        self.writing: dict[int, deque[Transfer]] = defaultdict(deque)
        self.order: list[Transfer] = []
        self.count = 0
        self._tasks = [cocotb.start_soon(self._read()), cocotb.start_soon(self._written())]

    def start(self, transfer: Transfer) -> Transfer:
        t, transfer.started = transfer, self.count
        self.count += 1
        if t.write:
            self.aw.send_nowait(AxiAWTransaction(
                awid=t.identity, awaddr=t.address, awlen=t.beats - 1, awsize=t.size, awburst=t.burst
            ))  # fmt: skip
            for n, (word, strobe) in enumerate(zip(t.words, t.strobes, strict=True)):
                self.w.send_nowait(AxiWTransaction(wdata=word, wstrb=strobe, wlast=n == t.beats - 1))
            self.writing[t.identity].append(t)
        else:
            self.ar.send_nowait(AxiARTransaction(
                arid=t.identity, araddr=t.address, arlen=t.beats - 1, arsize=t.size, arburst=t.burst
            ))  # fmt: skip
            self.reading[t.identity].append(t)
        return t

    async def run(self, transfer: Transfer) -> Transfer:
        await self.start(transfer).done.wait()
        return transfer

    def _end(self, transfer: Transfer) -> None:
        transfer.finished = len(self.order)
        self.order.append(transfer)
        transfer.done.set()

    async def _written(self) -> None:
        while True:
            b = await self.b.recv()
            assert self.writing[int(b.bid)], f"an answer to a write that nobody started: ID {int(b.bid)}"
            transfer = self.writing[int(b.bid)].popleft()
            transfer.responses.append(int(b.bresp))
            self._end(transfer)

    async def _read(self) -> None:
        while True:
            r = await self.r.recv()
            assert self.reading[int(r.rid)], f"a beat that nobody asked for: ID {int(r.rid)}"
            transfer = self.reading[int(r.rid)][0]
            transfer.data.append(int(r.rdata))
            transfer.responses.append(int(r.rresp))
            assert bool(int(r.rlast)) == (len(transfer.data) == transfer.beats), "RLAST at the wrong beat"
            if int(r.rlast):
                self.reading[int(r.rid)].popleft()
                self._end(transfer)


class ScriptedTarget:
    """An AXI4 target in which a test decides, cycle by cycle, what is taken and what is answered.

    `together`: takes an address and its first data only in one cycle. `take_*`: whether it takes a channel at all.
    `choose` picks the next answer among the transactions that AXI4 lets it answer (None: none now); `resp` is the
    response for an address. `memory` holds bytes by address; `seen` counts the writes that are complete.

    What AXI4 forbids: `last` says at which beat (of an ID, from 0, of so many) a read has RLAST, and until then it goes
    on; `stray` are IDs of beats (`r`) and answers (`b`) that it sends though nobody asked for them.
    """

    def __init__(self, dut: Any, prefix: str, choose=lambda waiting: 0 if waiting else None):
        self.dut, self.prefix, self.choose = dut, prefix, choose
        self.together = False
        self.take_ar = self.take_aw = self.take_w = True
        self.answer_r = self.answer_b = True
        self.resp = lambda address: OKAY
        self.last = lambda identity, beat, beats: beat == beats - 1
        self.stray: dict[str, deque[int]] = {"r": deque(), "b": deque()}
        self.beats_left: int | None = None  # of reads, before it stops; None: it does not
        self.memory: dict[int, int] = defaultdict(int)
        self.reads: list[list] = []  # ID, addresses, beats that were sent
        self.writes: deque[list] = deque()
        self.complete: list[list] = []
        self.words: deque[tuple[int, int, int]] = deque()
        self.asked = [0, 0]  # reads, writes whose addresses it took
        self.seen = 0
        self._task = cocotb.start_soon(self._run())

    def _get(self, name: str) -> int:
        return int(getattr(self.dut, f"{self.prefix}__{name}").value)

    def _set(self, **values: int) -> None:
        for name, value in values.items():
            getattr(self.dut, f"{self.prefix}__{name}").value = value

    async def _run(self) -> None:
        self._set(arready=0, awready=0, wready=0, rvalid=0, bvalid=0, rdata=0, rid=0, rresp=0, rlast=0, bid=0, bresp=0)
        edge = RisingEdge(self.dut.clk)
        read = answer = None
        while True:
            await edge
            if self._get("rvalid") and self._get("rready"):
                self._set(rvalid=0)
                read = None
            if self._get("bvalid") and self._get("bready"):
                self._set(bvalid=0)
                answer = None
            self._take()
            if read is None and self.answer_r:
                read = self._offer_read()
            if answer is None and self.answer_b:
                answer = self._offer_answer()
            await FallingEdge(self.dut.clk)
            self._drive_ready()

    def _drive_ready(self) -> None:
        """For the coming edge; `together` looks at what stands there now."""
        both = self._get("awvalid") and self._get("wvalid")
        begun = bool(self.writes)  # an address has come whose data have not all
        if self.together:
            self._set(awready=int(both and not begun), wready=int(begun or both))
        else:
            self._set(awready=int(self.take_aw), wready=int(self.take_w))
        self._set(arready=int(self.take_ar))

    def _take(self) -> None:
        if self._get("arvalid") and self._get("arready"):
            t = Transfer(False, self._get("arid"), self._get("araddr"), self._get("arlen") + 1, self._get("arsize"),
                         self._get("arburst"))  # fmt: skip
            self.reads.append([t.identity, t.addresses(), 0])
            self.asked[False] += 1
        if self._get("awvalid") and self._get("awready"):
            t = Transfer(True, self._get("awid"), self._get("awaddr"), self._get("awlen") + 1, self._get("awsize"),
                         self._get("awburst"))  # fmt: skip
            self.writes.append([t.identity, t.addresses(), t.size])
            self.asked[True] += 1
        if self._get("wvalid") and self._get("wready"):
            self.words.append((self._get("wdata"), self._get("wstrb"), self._get("wlast")))
        while self.writes and len(self.words) >= len(self.writes[0][1]):
            identity, addresses, size = self.writes.popleft()
            for n, address in enumerate(addresses):
                word, strobe, last = self.words.popleft()
                assert last == (n == len(addresses) - 1), "WLAST at the wrong beat"
                assert not strobe & ~sum(1 << lane for lane in lanes(address, size)), "a strobe beside the beat's bytes"
                for lane in range(LANES):
                    if strobe >> lane & 1:
                        self.memory[address // LANES * LANES + lane] = word >> (8 * lane) & 255
            self.complete.append([identity, addresses])
            self.seen += 1

    def _oldest(self, waiting: list[list]) -> list[list]:
        """The first of each ID: those that AXI4 lets a target answer."""
        return [entry for n, entry in enumerate(waiting) if entry[0] not in [other[0] for other in waiting[:n]]]

    def _offer_read(self) -> list | None:
        if self.stray["r"]:
            identity = self.stray["r"].popleft()
            self._set(rvalid=1, rid=identity, rdata=0xBAD, rresp=OKAY, rlast=len(self.stray["r"]) & 1)
            return [identity]
        candidates = self._oldest(self.reads)
        pick = self.choose(candidates)
        if pick is None or self.beats_left == 0:
            return None
        if self.beats_left is not None:
            self.beats_left -= 1
        entry = candidates[pick]
        identity, addresses, beat = entry
        address = addresses[min(beat, len(addresses) - 1)]
        base = address // LANES * LANES
        word = sum(self.memory[base + lane] << (8 * lane) for lane in range(LANES))
        last = self.last(identity, beat, len(addresses))
        self._set(rvalid=1, rid=identity, rdata=word, rresp=self.resp(address), rlast=int(last))
        entry[2] += 1
        if last:
            self.reads.remove(entry)
        return entry

    def _offer_answer(self) -> list | None:
        if self.stray["b"]:
            identity = self.stray["b"].popleft()
            self._set(bvalid=1, bid=identity, bresp=OKAY)
            return [identity]
        candidates = self._oldest(self.complete)
        pick = self.choose(candidates)
        if pick is None:
            return None
        entry = candidates[pick]
        self.complete.remove(entry)
        worst = max(self.resp(address) for address in entry[1])
        self._set(bvalid=1, bid=entry[0], bresp=worst)
        return entry
