"""Agents for `amaranth.lib.stream` ports: source, sink and monitor, and their pyuvm wrapping.

Each side has a hook that says, cycle by cycle, whether to pause: `idle` on a source, `pause` on a sink. A hook is an
iterator of booleans (`never`, `randomly`, or a test's own).
"""

from __future__ import annotations

import itertools
import random
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import cocotb
from amaranth.hdl import Shape, ShapeCastable, ShapeLike
from amaranth.lib import data
from cocotb.handle import HierarchyObject
from cocotb.triggers import Event, RisingEdge
from pyuvm import ConfigDB, uvm_agent, uvm_analysis_port, uvm_driver, uvm_sequence, uvm_sequence_item, uvm_sequencer

Hook = Iterator[bool]


def never() -> Hook:
    """Never pause."""
    return itertools.repeat(False)


def randomly(share: float, seed: int) -> Hook:
    """Pause in a `share` of the cycles, in the sequence that `seed` gives."""
    generator = random.Random(seed)
    while True:
        yield generator.random() < share


def encode(shape: ShapeLike, value: Any) -> int:
    """Bits of `value`: an integer, or for a structure a mapping of its fields (nested ones too)."""
    if isinstance(value, int):
        return value & ((1 << Shape.cast(shape).width) - 1)
    assert isinstance(shape, ShapeCastable), f"{shape!r} is not a structure"
    layout = data.Layout.cast(shape)
    bits = 0
    for key, part in value.items():
        entry = layout[key]
        bits |= encode(entry.shape, part) << entry.offset
    return bits


def decode(shape: ShapeLike, bits: int) -> Any:
    """The inverse of `encode`: an integer, or a dict of fields (a list for an array) for a structure."""
    if isinstance(shape, ShapeCastable):
        try:
            layout = data.Layout.cast(shape)
        except TypeError:
            return bits  # an enumeration: its number
        fields = {key: decode(f.shape, (bits >> f.offset) & ((1 << f.width) - 1)) for key, f in layout}
        return list(fields.values()) if isinstance(layout, data.ArrayLayout) else fields
    cast = Shape.cast(shape)
    return bits - (1 << cast.width) if cast.signed and bits >> (cast.width - 1) else bits


class StreamPort:
    """The three signals of the stream `name` on `dut`; payload values go through `encode` and `decode` of `shape`."""

    def __init__(self, dut: HierarchyObject, name: str, shape: ShapeLike, clock: Any = None):
        self.name = name
        self.shape = shape
        self.clock = dut.clk if clock is None else clock
        self.valid = getattr(dut, f"{name}__valid")
        self.ready = getattr(dut, f"{name}__ready")
        self.payload = getattr(dut, f"{name}__payload")

    def read(self) -> Any:
        return decode(self.shape, int(self.payload.value))


class StreamSource:
    """Drives a stream that the device under test receives."""

    def __init__(self, port: StreamPort, idle: Hook | None = None):
        self.port, self.idle = port, idle or never()
        self._queue: deque[tuple[int, Event]] = deque()
        self._work = Event()
        port.valid.value = 0
        port.payload.value = 0
        self._task = cocotb.start_soon(self._run())

    def put(self, value: Any) -> Event:
        """Queue `value`; the event is set when it was taken."""
        done = Event()
        self._queue.append((encode(self.port.shape, value), done))
        self._work.set()
        return done

    async def send(self, value: Any) -> None:
        await self.put(value).wait()

    async def _run(self) -> None:
        port, edge = self.port, RisingEdge(self.port.clock)
        while True:
            while not self._queue:
                self._work.clear()
                await self._work.wait()
                await edge
            bits, done = self._queue[0]
            while next(self.idle):
                await edge
            port.payload.value = bits
            port.valid.value = 1
            await edge
            while not int(port.ready.value):
                await edge
            port.valid.value = 0
            self._queue.popleft()
            done.set()


class StreamSink:
    """Accepts a stream that the device under test sends; received values are in `received`."""

    def __init__(self, port: StreamPort, pause: Hook | None = None, callback: Callable[[Any], None] | None = None):
        self.port, self.pause = port, pause or never()
        self.received: deque[Any] = deque()
        self._callback = callback
        self._arrived = Event()
        self._task = cocotb.start_soon(self._run())

    async def receive(self) -> Any:
        while not self.received:
            self._arrived.clear()
            await self._arrived.wait()
        return self.received.popleft()

    async def _run(self) -> None:
        port, edge = self.port, RisingEdge(self.port.clock)
        while True:
            accepting = not next(self.pause)
            port.ready.value = int(accepting)
            await edge
            if accepting and int(port.valid.value):
                value = port.read()
                self.received.append(value)
                self._arrived.set()
                if self._callback:
                    self._callback(value)


class StreamMonitor:
    """Watches a stream: reports each transfer, and fails when the handshake's promise is broken."""

    def __init__(self, port: StreamPort, callback: Callable[[Any], None], reset: Any = None):
        self.port, self.callback, self.reset = port, callback, reset
        self.transfers = 0
        self._task = cocotb.start_soon(self._run())

    async def _run(self) -> None:
        port, edge = self.port, RisingEdge(self.port.clock)
        held: int | None = None
        while True:
            await edge
            if self.reset is not None and int(self.reset.value):
                held = None
                continue
            valid, ready = int(port.valid.value), int(port.ready.value)
            if held is not None:
                assert valid, f"{port.name}: valid was withdrawn before ready"
                found = int(port.payload.value)
                assert found == held, f"{port.name}: payload changed while waiting, from {held:#x} to {found:#x}"
            held = int(port.payload.value) if valid and not ready else None
            if valid and ready:
                self.transfers += 1
                self.callback(port.read())


class StreamItem(uvm_sequence_item):
    """One transfer of a stream."""

    def __init__(self, value: Any):
        super().__init__("stream_item")
        self.value = value


class StreamSequence(uvm_sequence):
    """Sends the given values one after the other."""

    def __init__(self, values: Any, name: str = "stream_sequence"):
        super().__init__(name)
        self.values = values

    async def body(self) -> None:
        for value in self.values:
            item = StreamItem(value)
            await self.start_item(item)
            await self.finish_item(item)


class _StreamDriver(uvm_driver):
    def __init__(self, name: str, parent: Any, port: StreamPort, idle: Hook | None):
        super().__init__(name, parent)
        self._port, self._idle = port, idle

    async def run_phase(self) -> None:
        source = StreamSource(self._port, self._idle)
        while True:
            item = await self.seq_item_port.get_next_item()
            await source.send(item.value)
            self.seq_item_port.item_done()


class StreamAgent(uvm_agent):
    """pyuvm agent of one stream.

    `role` is "source" (drives towards the device, has a sequencer), "sink" (accepts from the device) or "passive".
    `hook` pauses the driven side. Every transfer goes out on `analysis_port` as the decoded value.
    """

    def __init__(
        self, name: str, parent: Any, port: StreamPort, role: str, hook: Hook | None = None, reset: Any = None
    ):
        assert role in ("source", "sink", "passive"), f"role must be source, sink or passive, not {role!r}"
        self.port, self.role, self.hook, self.reset = port, role, hook, reset
        super().__init__(name, parent)

    def build_phase(self) -> None:
        ConfigDB().set(self, "", "is_active", 1 if self.role == "source" else 0)
        super().build_phase()
        self.analysis_port = uvm_analysis_port("analysis_port", self)
        if self.role == "source":
            self.sequencer = uvm_sequencer("sequencer", self)
            self.driver = _StreamDriver("driver", self, self.port, self.hook)

    def connect_phase(self) -> None:
        if self.role == "source":
            self.driver.seq_item_port.connect(self.sequencer.seq_item_export)

    def start_of_simulation_phase(self) -> None:
        self.monitor = StreamMonitor(self.port, self.analysis_port.write, self.reset)
        if self.role == "sink":
            self.sink = StreamSink(self.port, self.hook)
