"""The edge of a chip: links between routers, carried over a chip-to-chip link."""

from __future__ import annotations

from amaranth.hdl import Const, Module, Mux, Shape, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.emit import once
from hw.fifo import StreamFifo
from hw.noc.arbiter import Arbiter
from hw.noc.config import MeshConfig
from hw.noc.flit import LinkSignature, flit_layout
from hw.noc.link import LinkEndpoint
from hw.noc.router import LaneBuffer

__all__ = ["EdgeChannels", "EdgeLink", "edge_layout"]


def _flit_width(config: MeshConfig) -> int:
    return Shape.cast(flit_layout(config)).width


def edge_layout(config: MeshConfig, ways: int, depth: int) -> data.StructLayout:
    """Payload of the link between two chips.

    `full`: carries `flit` on `channel` (way * virtual channels + virtual channel); `credits` places have become free at
    this end in the buffer of `freed`.
    """
    channels = range(max(2, ways * config.virtual_channels))
    fields = {"full": 1, "channel": channels, "flit": _flit_width(config)}
    return data.StructLayout({**fields, "freed": channels, "credits": range(depth + 1)})


class EdgeChannels(wiring.Component):
    """The buffers and credits of an edge: router links on one side, payloads on the other.

    Every virtual channel of each way has its own buffer at the far end, and credits for it: a flit is sent when it has
    a place there. Credits travel with flits the other way; alone only when a quarter of a buffer is free.

    Parameters
    ----------
    config : MeshConfig
    ways, depth : int
        As in `EdgeLink`.

    Interface attributes
    --------------------
    i : In(LinkSignature), o : Out(LinkSignature), one for each way
    send : Out(stream(edge_layout)), receive : In(stream(edge_layout))
        To and from the far end, in order; `receive` is always ready.
    """

    def __init__(self, config: MeshConfig, ways: int, depth: int):
        if config.channels != 1:
            raise ValueError(f"an edge needs a mesh with one lane a class, not {config.channels}")
        if ways not in range(1, 17):
            raise ValueError(f"ways must be an integer from 1 to 16, not {ways!r}")
        if depth not in range(4, 257):
            raise ValueError(f"depth must be an integer from 4 to 256, not {depth!r}")
        self.config, self.ways, self.depth = config, ways, depth
        self.layout = edge_layout(config, ways, depth)
        size = ways * config.virtual_channels
        # For the proofs: places that each buffer of the far end is known to have, and places to tell it of.
        self.places = [Signal(range(depth + 1), init=depth, name=f"places_{index}") for index in range(size)]
        self.owed = [Signal(range(depth + 1), name=f"owed_{index}") for index in range(size)]
        super().__init__(
            {
                "i": In(LinkSignature(config)).array(ways),
                "o": Out(LinkSignature(config)).array(ways),
                "send": Out(stream.Signature(self.layout)),
                "receive": In(stream.Signature(self.layout)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.queue = queue = StreamFifo(self.layout, 2)
        wiring.connect(m, queue.o, wiring.flipped(self.send))
        m.d.comb += self.receive.ready.eq(1)
        left = self._arrive(m)
        goes, pays = self._depart(m, queue)
        self._pay_back(m, queue, left, goes, pays)
        return m

    def _buffer(self, m: Module, name: str, depth: int) -> wiring.Component:
        width = _flit_width(self.config)
        buffer = once(LaneBuffer(width, depth), f"noc_lane_w{width}_d{depth}")
        m.submodules[name] = buffer
        return buffer

    def _depart(self, m: Module, queue: StreamFifo) -> tuple[Signal, Signal]:
        """Flits of the routers into payloads. Returns: a flit goes; the payload is taken."""
        channels = self.config.virtual_channels
        size = self.ways * channels
        came = self.receive.payload
        m.submodules.arbiter = arbiter = Arbiter(size, self.config.urgent_limit)
        chosen, flit = Const(0), Const(0)
        for index in range(size):
            way, channel = divmod(index, channels)
            link = self.i[way]
            buffer = self._buffer(m, f"departing_{index}", self.config.depth)
            places = self.places[index]
            popped = Signal(name=f"popped_{index}")
            paid = Mux(self.receive.valid & (came.freed == index), came.credits, 0)
            m.d.comb += [
                buffer.write.eq(link.valid & (link.channel == channel)),
                buffer.write_data.eq(link.flit),
                arbiter.request[index].eq(buffer.valid & (places != 0)),
                arbiter.urgent[index].eq(int(channel in self.config.urgent)),
                popped.eq(arbiter.grant[index] & queue.i.ready),
                buffer.pop.eq(popped),
            ]
            m.d.sync += [places.eq(places + paid - popped), link.credit[channel].eq(popped)]
            chosen = chosen | Mux(arbiter.grant[index], index, 0)
            flit = flit | Mux(arbiter.grant[index], buffer.head, 0)
        goes, pays = Signal(), Signal()
        m.d.comb += [
            arbiter.tail.eq(~Const(0, size)),
            arbiter.enable.eq(queue.i.ready),
            goes.eq(arbiter.grant.any()),
            pays.eq(queue.i.valid & queue.i.ready),
            queue.i.payload.full.eq(goes),
            queue.i.payload.channel.eq(chosen),
            queue.i.payload.flit.eq(flit),
        ]
        return goes, pays

    def _arrive(self, m: Module) -> Signal:
        """Flits from the link to the routers. Returns the channels whose buffer has one place more."""
        channels = self.config.virtual_channels
        came, left = self.receive.payload, Signal(self.ways * channels)
        for way, link in enumerate(self.o):
            m.submodules[f"arriving_arbiter_{way}"] = arbiter = Arbiter(channels, self.config.urgent_limit)
            chosen, flit = Const(0), Const(0)
            for channel in range(channels):
                index = way * channels + channel
                buffer = self._buffer(m, f"arriving_{index}", self.depth)
                room = Signal(range(self.config.depth + 1), init=self.config.depth, name=f"room_{index}")
                m.d.comb += [
                    buffer.write.eq(self.receive.valid & came.full & (came.channel == index)),
                    buffer.write_data.eq(came.flit),
                    arbiter.request[channel].eq(buffer.valid & (room != 0)),
                    arbiter.urgent[channel].eq(int(channel in self.config.urgent)),
                    buffer.pop.eq(arbiter.grant[channel]),
                    left[index].eq(arbiter.grant[channel]),
                ]
                m.d.sync += room.eq(room + link.credit[channel] - arbiter.grant[channel])
                chosen = chosen | Mux(arbiter.grant[channel], channel, 0)
                flit = flit | Mux(arbiter.grant[channel], buffer.head, 0)
            m.d.comb += [arbiter.tail.eq(~Const(0, channels)), arbiter.enable.eq(1)]
            m.d.sync += [link.valid.eq(arbiter.grant.any()), link.channel.eq(chosen), link.flit.eq(flit)]
        return left

    def _pay_back(self, m: Module, queue: StreamFifo, left: Signal, goes: Signal, pays: Signal) -> None:
        """Credits: those of one channel in every payload; a payload for them alone when they are many."""
        size = len(left)
        m.submodules.payer = payer = Arbiter(size, 1)
        many = Signal(size)
        freed, credits = Const(0), Const(0)
        for index, owed in enumerate(self.owed):
            m.d.comb += [payer.request[index].eq(owed != 0), many[index].eq(owed >= self.depth // 4)]
            m.d.sync += owed.eq(Mux(payer.grant[index] & pays, 0, owed) + left[index])
            freed = freed | Mux(payer.grant[index], index, 0)
            credits = credits | Mux(payer.grant[index], owed, 0)
        m.d.comb += [
            payer.tail.eq(~Const(0, size)),
            payer.urgent.eq(many),
            payer.enable.eq(pays),
            queue.i.valid.eq(goes | many.any()),
            queue.i.payload.freed.eq(freed),
            queue.i.payload.credits.eq(credits),
        ]


class EdgeLink(wiring.Component):
    """Takes the place of the wires between the routers of two chips: the same flits, channels and order.

    `ways` router links share one chip-to-chip link. A flit is sent when it has a place at the far end, so the link
    itself is never stuck behind one, and a class cannot block another, as on any link of the mesh. Routing, multicast
    and the proof against deadlock are those of the whole mesh: the edge only makes some of its channels longer. Urgent
    classes go first here too.

    Parameters
    ----------
    config : MeshConfig
        Of the whole mesh; one lane a class (`channels` 1), because a router keeps flows in order by what stands in
        the next buffer, and here that is not all that lies ahead.
    ways : int
        Router links, 1 to 16.
    depth : int
        Places of each buffer at the far end, 4 to 256; to fill the link, at least the round trip in frames.
    lane_width, window : int
        As in `LinkEndpoint`.

    Interface attributes
    --------------------
    i : In(LinkSignature), o : Out(LinkSignature), one for each way
        From the routers' outputs, to their inputs: `edge_o` and `edge_i` of a `Mesh`.
    tx, tx_first, rx, rx_first, up, retries, bad_frames :
        As in `LinkEndpoint`.
    """

    def __init__(self, config: MeshConfig, ways: int = 1, depth: int = 32, lane_width: int = 64, window: int = 32):
        self._channels = EdgeChannels(config, ways, depth)
        self._end = LinkEndpoint(self._channels.layout, lane_width, window)
        passed = ("tx", "tx_first", "rx", "rx_first", "up", "retries", "bad_frames")
        super().__init__(
            {name: self._channels.signature.members[name] for name in ("i", "o")}
            | {name: self._end.signature.members[name] for name in passed}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.channels = channels = self._channels
        m.submodules.end = end = self._end
        for way, link in enumerate(channels.i):
            wiring.connect(m, wiring.flipped(self.i[way]), link)
            wiring.connect(m, channels.o[way], wiring.flipped(self.o[way]))
        wiring.connect(m, channels.send, end.send)
        wiring.connect(m, end.receive, channels.receive)
        m.d.comb += [
            self.tx.eq(end.tx), self.tx_first.eq(end.tx_first), end.rx.eq(self.rx), end.rx_first.eq(self.rx_first),
            self.up.eq(end.up), self.retries.eq(end.retries), self.bad_frames.eq(end.bad_frames),
        ]  # fmt: skip
        return m
