"""Gather in order: what several nodes send arrives at one, in an order that does not depend on the network."""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.fifo import StreamFifo
from hw.noc.arbiter import Arbiter
from hw.noc.config import MeshConfig
from hw.noc.flit import Kind, flit_layout, to_endpoint

__all__ = ["GatherCollector", "GatherSource", "item_layout"]

Place = tuple[int, int, int]


def _check(config: MeshConfig, sources: list[Place], depth: int) -> None:
    if not sources or len(set(sources)) != len(sources) or not set(sources) <= set(config.endpoints()):
        raise ValueError(f"sources must be different endpoints (x, y, port) of the mesh, not {sources!r}")
    if depth not in range(2, 257) or depth % 2:
        raise ValueError(f"depth must be an even number from 2 to 256, not {depth!r}")


def item_layout(config: MeshConfig) -> data.StructLayout:
    """What is gathered: a payload; `last` ends a turn."""
    return data.StructLayout({"payload": config.payload, "last": 1})


class GatherSource(wiring.Component):
    """A node's part: sends its items to the collector, as far as that has promised places for them.

    Each item is a packet of its own: a longer one would hold its way through the network while it waits for places.

    Parameters
    ----------
    config : MeshConfig
    collector : (x, y, port)
    depth : int
        Places that the collector has for each source; the same there.

    Interface attributes
    --------------------
    i : In(stream(item_layout(config)))
    send : Out(stream of flits), receive : In(stream of flits)
        The endpoint's streams of the gather's class. `receive` is ready for `CREDIT` flits alone: whoever shares the
        class takes the other kinds.
    """

    def __init__(self, config: MeshConfig, collector: Place, depth: int = 8):
        _check(config, [collector], depth)
        self.config, self.collector, self.depth = config, collector, depth
        flits = stream.Signature(flit_layout(config))
        super().__init__({"i": In(stream.Signature(item_layout(config))), "send": Out(flits), "receive": In(flits)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        places = Signal(range(self.depth + 1), init=self.depth)
        more, sent = Signal(), Signal()
        m.d.comb += [
            more.eq(self.receive.valid & (self.receive.payload.header.kind == Kind.CREDIT)),
            self.receive.ready.eq(self.receive.payload.header.kind == Kind.CREDIT),
            self.send.valid.eq(self.i.valid & (places != 0)),
            self.i.ready.eq(self.send.ready & (places != 0)),
            sent.eq(self.send.valid & self.send.ready),
        ]
        m.d.sync += places.eq(places + Mux(more, self.depth // 2, 0) - sent)
        m.d.comb += to_endpoint(self.send.payload.header.destination, *self.collector)
        m.d.comb += [
            self.send.payload.header.kind.eq(Mux(self.i.payload.last, Kind.GATHER_LAST, Kind.GATHER)),
            self.send.payload.header.last.eq(1),
            Value.cast(self.send.payload.payload).eq(Value.cast(self.i.payload.payload)),
        ]
        return m


class GatherCollector(wiring.Component):
    """The other end: one turn of each source after the other, in the order of `sources`, for ever.

    A turn is what a source sends up to an item with `last`; it may be of any length. Every source has `depth` places
    of its own here, and sends no more than it has been promised: whatever arrives has a place, so the class is never
    stuck behind a source whose turn has not come, and the order costs no flit more than a credit for each `depth`/2
    items. A source waits only while its own places are full: turns longer than `depth` go at `depth` items in a round
    trip, shorter ones at one a cycle when `depth` times the sources covers it.

    Parameters
    ----------
    config : MeshConfig
    sources : list of (x, y, port)
    depth : int

    Interface attributes
    --------------------
    o : Out(stream(item_layout(config)))
    source : Out(range(len(sources)))
        Index of the source of what `o` offers.
    send : Out(stream of flits), receive : In(stream of flits)
        As at `GatherSource`; `receive` is ready for the gather's flits of `sources` alone, and for them always.
    """

    def __init__(self, config: MeshConfig, sources: list[Place], depth: int = 8):
        _check(config, sources, depth)
        self.config, self.sources, self.depth = config, sources, depth
        flits = stream.Signature(flit_layout(config))
        super().__init__(
            {
                "o": Out(stream.Signature(item_layout(config))),
                "source": Out(range(max(2, len(sources)))),
                "send": Out(flits),
                "receive": In(flits),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        header = self.receive.payload.header
        from_source = [
            (header.source.x == x) & (header.source.y == y) & (header.source.port == port)
            for x, y, port in self.sources
        ]
        last = header.kind == Kind.GATHER_LAST
        m.d.comb += self.receive.ready.eq(((header.kind == Kind.GATHER) | last) & Cat(from_source).any())
        queues = []
        for index, mine in enumerate(from_source):
            m.submodules[f"queue_{index}"] = queue = StreamFifo(item_layout(self.config), self.depth)
            queues.append(queue)
            m.d.comb += [
                queue.i.valid.eq(self.receive.valid & self.receive.ready & mine),
                Value.cast(queue.i.payload.payload).eq(Value.cast(self.receive.payload.payload)),
                queue.i.payload.last.eq(last),
                queue.o.ready.eq(self.o.ready & (self.source == index)),
            ]
        m.d.comb += [
            self.o.valid.eq(Array(queue.o.valid for queue in queues)[self.source]),
            Value.cast(self.o.payload).eq(Array(Value.cast(queue.o.payload) for queue in queues)[self.source]),
        ]
        with m.If(self.o.valid & self.o.ready & self.o.payload.last):
            m.d.sync += self.source.eq(Mux(self.source == len(queues) - 1, 0, self.source + 1))
        self._credits(m, Cat(queue.o.valid & queue.o.ready for queue in queues))
        return m

    def _credits(self, m: Module, freed: Value) -> None:
        """Tell each source of its free places, half of `depth` at a time."""
        batch, size = self.depth // 2, len(self.sources)
        m.submodules.arbiter = arbiter = Arbiter(size)
        m.submodules.flits = flits = StreamFifo(flit_layout(self.config), 2)
        wiring.connect(m, flits.o, wiring.flipped(self.send))
        granted = Signal(size)
        m.d.comb += [
            arbiter.tail.eq(~Const(0, size)),
            arbiter.enable.eq(flits.i.ready),
            granted.eq(Mux(flits.i.ready, arbiter.grant, 0)),
            flits.i.valid.eq(arbiter.grant.any()),
            flits.i.payload.header.kind.eq(Kind.CREDIT),
            flits.i.payload.header.last.eq(1),
        ]
        for index, place in enumerate(self.sources):
            free = Signal(range(self.depth + 1), name=f"free_{index}")  # places that the source does not know of
            m.d.comb += arbiter.request[index].eq(free >= batch)
            m.d.sync += free.eq(free + freed[index] - Mux(granted[index], batch, 0))
            with m.If(arbiter.grant[index]):
                m.d.comb += to_endpoint(flits.i.payload.header.destination, *place)
