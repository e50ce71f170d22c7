"""Properties of the network's parts as harnesses with an output `bad`, for `scripts.formal.engine.prove`."""

from __future__ import annotations

from amaranth.hdl import Const, Module, Mux, Shape, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.fifo import StreamFifo
from hw.noc.arbiter import Arbiter
from hw.noc.axi.order import IdOrder
from hw.noc.config import MeshConfig
from hw.noc.edge import EdgeChannels
from hw.noc.flit import Direction, flit_layout
from hw.noc.route import FLOWS, legal
from hw.noc.router import InputPort, OutputPort, Router
from scripts.formal.engine import require

__all__ = [
    "ArbiterFairness", "ChannelCredits", "EdgeCredits", "EdgeReturns", "IdOrdering", "RouterFlow", "UrgentLimit",
]  # fmt: skip


class ArbiterFairness(wiring.Component):
    """Grants are one-hot, requested and given whenever asked; and whoever asks loses to each other at most once.

    For every pair: once `watched` asked and another's packet was started instead, no packet of that other is started
    while `watched` asks, until `watched` was granted. So a request loses to at most size - 1 packets (and the rest of
    one that had started before it asked), however it comes and goes. `watched` is any of them (a free constant).
    """

    def __init__(self, size: int, arbiter: type[Arbiter] = Arbiter):
        self.size, self._arbiter = size, arbiter
        super().__init__({"request": In(size), "tail": In(size), "enable": In(1), "pick": In(size), "bad": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.dut = dut = self._arbiter(self.size)
        m.d.comb += [dut.request.eq(self.request), dut.tail.eq(self.tail), dut.enable.eq(self.enable)]
        watched, started = Signal(self.size), Signal()
        m.d.sync += started.eq(1)
        with m.If(~started):
            m.d.sync += watched.eq(self.pick & (~self.pick + 1)[: self.size])
        asks = (watched & self.request).any()
        wins = (watched & dut.grant).any()
        lost_to, inside = Signal(self.size), Signal(self.size)
        used = Mux(self.enable & started, dut.grant, 0)
        with m.If((used & watched).any()):
            m.d.sync += lost_to.eq(0)
        with m.Elif(asks & started):
            m.d.sync += lost_to.eq(lost_to | (used & ~inside))
        with m.If(self.enable & dut.grant.any()):
            m.d.sync += inside.eq(dut.grant & ~self.tail)  # whose packet is under way
        one_hot = (dut.grant & (dut.grant - 1)[: self.size]) == 0
        sound = one_hot & ((dut.grant & ~self.request) == 0) & (dut.grant.any() == self.request.any())
        require(m, self.bad, sound & ~(asks & ~wins & (dut.grant & lost_to & ~inside).any()))
        return m


class UrgentLimit(wiring.Component):
    """At most `limit` packets in a row are started past an ordinary request that waits; urgent go first else.

    Which requests are urgent is free, and may change from cycle to cycle.
    """

    def __init__(self, size: int, limit: int):
        self.size, self.limit = size, limit
        super().__init__({"request": In(size), "tail": In(size), "urgent": In(size), "bad": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.dut = dut = Arbiter(self.size, self.limit)
        m.d.comb += [
            dut.request.eq(self.request),
            dut.tail.eq(self.tail),
            dut.urgent.eq(self.urgent),
            dut.enable.eq(1),
        ]
        inside, passed = Signal(self.size), Signal(range(self.limit + 2))
        starts = ~(inside & self.request).any()
        urgent, ordinary = (self.request & self.urgent).any(), (self.request & ~self.urgent).any()
        granted_urgent = (dut.grant & self.urgent).any()
        over = starts & ordinary & granted_urgent
        with m.If(dut.grant.any()):
            m.d.sync += inside.eq(dut.grant & ~self.tail)
        with m.If(starts):
            m.d.sync += passed.eq(Mux(over, passed + 1, 0))
        early = starts & urgent & ~granted_urgent & (passed != self.limit)
        require(m, self.bad, (passed <= self.limit) & ~(over & (passed == self.limit)) & ~early)
        return m


class ChannelCredits(wiring.Component):
    """An output, a link and an input in a loop: what was sent on a channel and not credited is stored or under way.

    A flit on the link always has a place: a buffer is never written when full, a credit never comes that is
    not owed. Requesters, packet ends and what the next router takes are free.
    """

    def __init__(self, config: MeshConfig, requesters: int = 2):
        self.config, self.requesters = config, requesters
        width = Shape.cast(flit_layout(config)).width
        super().__init__(
            {
                "request": In(requesters * config.classes),
                "tail": In(requesters * config.classes),
                "crowded": In(requesters * config.classes),
                "flow": In(range(FLOWS)).array(requesters * config.classes),
                "flit": In(width).array(requesters * config.classes),
                "take": In(Direction.LOCAL + 1).array(config.virtual_channels),
                "bad": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        classes = [index // self.requesters for index in range(self.requesters * config.classes)]
        m.submodules.sender = sender = OutputPort(config, classes)
        m.submodules.receiver = receiver = InputPort(config, Direction.LOCAL + 1, Direction.WEST)
        wiring.connect(m, sender.link, receiver.link)
        m.d.comb += [
            sender.request.eq(self.request),
            sender.tail.eq(self.tail),
            sender.crowded.eq(self.crowded),
        ]
        for index, flit in enumerate(self.flit):
            m.d.comb += [sender.flit[index].eq(flit), sender.flow[index].eq(self.flow[index])]
        holds: Value = Const(1)
        for channel in range(config.virtual_channels):
            m.d.comb += receiver.taken[channel].eq(self.take[channel] & receiver.head[channel].outputs)
            arrives = receiver.link.valid & (receiver.link.channel == channel)
            back, leaves = receiver.link.credit[channel], receiver.popped[channel]
            spent, stored = (Signal(range(config.depth + 2), name=f"{n}_{channel}") for n in ("spent", "stored"))
            m.d.sync += [spent.eq(spent + arrives - back), stored.eq(stored + arrives - leaves)]
            holds &= (spent <= config.depth) & ~(arrives & (spent == config.depth)) & ~(back & (spent == 0))
            holds &= (stored <= config.depth) & ~(arrives & (stored == config.depth))
            holds &= spent == stored + back
        require(m, self.bad, holds)
        return m


class EdgeCredits(wiring.Component):
    """The buffers at the two ends of an edge, with any delay in between: an arriving flit always has a place.

    One way and one class. `near` sends flits of a router that keeps its credits, `far` receives them and pays back;
    the payloads each way wait in a queue for as long as `hold` says. The far buffer never holds more than `depth`, the
    far router gets no flit without a credit, the near one no credit that is not owed.
    """

    def __init__(self, config: MeshConfig, depth: int = 4, channels: type[EdgeChannels] = EdgeChannels):
        self.config, self.depth, self._channels = config, depth, channels
        super().__init__({"offer": In(1), "take": In(1), "hold": In(2), "bad": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        near, far = (self._channels(self.config, 1, self.depth) for _ in range(2))
        m.submodules.near, m.submodules.far = near, far
        for number, (start, end) in enumerate(((near, far), (far, near))):
            m.submodules[f"way_{number}"] = way = StreamFifo(near.layout, 2)
            wiring.connect(m, start.send, way.i)
            released = ~self.hold[number]
            m.d.comb += [
                end.receive.valid.eq(way.o.valid & released),
                end.receive.payload.eq(way.o.payload),
                way.o.ready.eq(released),
            ]
        room = Signal(range(self.config.depth + 1), init=self.config.depth)
        owed = Signal(range(self.config.depth + 1))
        enters, leaves, back = near.i[0].valid, far.o[0].valid, Signal()
        m.d.comb += [
            enters.eq(self.offer & (room != 0)),
            back.eq(self.take & (owed != 0)),
            far.o[0].credit.eq(back),
        ]
        m.d.sync += [room.eq(room + near.i[0].credit - enters), owed.eq(owed + leaves - back)]
        fits = ~(leaves & (owed == self.config.depth)) & ~(near.i[0].credit & (room == self.config.depth))
        require(m, self.bad, self._holds(m, near, far, fits))
        return m

    def _holds(self, m: Module, near: EdgeChannels, far: EdgeChannels, fits: Value) -> Value:
        """The property; `fits`: the credits of the routers on both sides are kept."""
        stored = Signal(range(self.depth + 2))
        m.d.sync += stored.eq(stored + (far.receive.valid & far.receive.payload.full) - far.o[0].valid)
        return (stored <= self.depth) & fits


class EdgeReturns(EdgeCredits):
    """The same two ends: no credit is ever lost, and none made up.

    While nothing waits to go to the lanes, the far end owes exactly the places that the far router has emptied and no
    payload has paid for, and the near end knows of all places but those of flits sent and not paid for. From a quarter
    of `depth` on, what is owed goes by itself. So with lanes that lose nothing, all places come back.
    """

    def _holds(self, m: Module, near: EdgeChannels, far: EdgeChannels, fits: Value) -> Value:
        spent, due, many = Signal(range(self.depth + 1)), Signal(range(self.depth + 1)), Signal()
        goes, paid = near.send.valid & near.send.ready & near.send.payload.full, near.receive.payload.credits
        pays, credits, leaves = far.send.valid & far.send.ready, far.send.payload.credits, far.o[0].valid
        m.d.sync += [
            spent.eq(spent + goes - Mux(near.receive.valid, paid, 0)),
            due.eq(due + leaves - Mux(pays, credits, 0)),
            many.eq(far.owed[0] >= max(1, self.depth // 4)),
        ]
        known = near.send.valid | (near.places[0] + spent == self.depth)
        return known & (far.send.valid | ((far.owed[0] == due + leaves) & ~many))


class IdOrdering(wiring.Component):
    """Of two transactions of one ID the later one is never `oldest` while the earlier one is under way.

    Which two is free (`pick`). Also: a slot that is given out is not in use, and whenever transactions are under way
    some of them may go on. Transactions that may go on end freely, in any order and several at a time.
    """

    def __init__(self, size: int, id_width: int, order: type[IdOrder] = IdOrder):
        self.size, self.id_width, self._order = size, id_width, order
        super().__init__({"open": In(1), "id": In(id_width), "close": In(size), "pick": In(1), "bad": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.dut = dut = self._order(self.size, self.id_width)
        opens, where = Signal(), Signal(self.size)
        m.d.comb += [
            opens.eq(self.open & dut.free),
            where.eq(Mux(opens, 1 << dut.slot, 0)),
            dut.open.eq(opens),
            dut.id.eq(self.id),
            dut.close.eq(self.close & dut.oldest),
        ]
        early, late, identity = Signal(self.size), Signal(self.size), Signal(self.id_width)
        with m.If((early & dut.close).any()):
            m.d.sync += [early.eq(0), late.eq(0)]
        with m.Elif(early.any() & ~late.any() & (self.id == identity) & self.pick):
            m.d.sync += late.eq(where)
        with m.Elif(~early.any() & self.pick):
            m.d.sync += [early.eq(where), identity.eq(self.id)]
        sound = ~(where & dut.active).any() & (dut.oldest.any() == dut.active.any())
        require(m, self.bad, sound & ~(late & dut.oldest).any() & ((early & ~dut.active) == 0))
        return m


class RouterFlow(wiring.Component):
    """Exactly once and in order through a whole router, for the flits of one input that leave by one output.

    Data independence (Wolper): flits of the watched flow carry the numbers 0, ..., 0, 1, 2, ..., 2. A flow that loses
    the 1, doubles it or passes another flit by it shows something else at the output; since any flit may be the 1,
    that holds for all. All other flits carry 3 and may not turn into one of the flow. Inputs are free, within their
    credits; the neighbours return credits freely, for flits they got.
    """

    def __init__(
        self, config: MeshConfig, arrival: int, output: int, node: tuple[int, int], router: type[Router] = Router
    ):
        if Shape.cast(config.payload).width != 2 or config.channels != 1 or config.classes != 1:
            raise ValueError("RouterFlow needs a payload of 2 bits, one class and one channel")
        if not legal(arrival, output):
            raise ValueError(f"no flit goes from side {arrival} to output {output}")
        self.config, self.arrival, self.output, self.node, self._router = config, arrival, output, node, router
        ports = Direction.LOCAL + 1
        width = Shape.cast(flit_layout(config)).width
        super().__init__({"valid": In(ports), "flit": In(width).array(ports), "credit": In(ports), "bad": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, ports = self.config, Direction.LOCAL + 1
        m.submodules.dut = dut = self._router(config)
        m.d.comb += [dut.x.eq(self.node[0]), dut.y.eq(self.node[1])]
        assume: Value = Const(1)
        flits = []
        for port in range(ports):
            room = Signal(range(config.depth + 1), init=config.depth, name=f"room_{port}")
            owed = Signal(range(config.depth + 1), name=f"owed_{port}")
            flit = Signal(flit_layout(config), name=f"in_{port}")
            back = Signal(name=f"back_{port}")
            m.d.comb += [
                Value.cast(flit).eq(self.flit[port]),
                back.eq(self.credit[port] & (owed != 0)),
                dut.i[port].valid.eq(self.valid[port] & (room != 0)),
                dut.i[port].flit.eq(flit),
                dut.o[port].credit.eq(back),
            ]
            m.d.sync += room.eq(room + dut.i[port].credit - dut.i[port].valid)
            m.d.sync += owed.eq(owed + dut.o[port].valid - back)
            flits.append(flit)
        member = self._member(flits[self.arrival])
        for port, flit in enumerate(flits):
            inside = member if port == self.arrival else Const(0)
            assume &= ~dut.i[port].valid | ((flit.payload == 3) == ~inside)
        enters = dut.i[self.arrival].valid & member
        out = Signal(flit_layout(config))
        m.d.comb += Value.cast(out).eq(dut.o[self.output].flit)
        leaves = dut.o[self.output].valid & (out.payload != 3)
        fed, seen = Signal(), Signal()  # the 1 went in; came out
        number = flits[self.arrival].payload
        assume &= ~enters | Mux(fed, number == 2, (number == 0) | (number == 1))
        with m.If(enters & (number == 1)):
            m.d.sync += fed.eq(1)
        with m.If(leaves & (out.payload == 1)):
            m.d.sync += seen.eq(1)
        require(m, self.bad, ~leaves | Mux(seen, out.payload == 2, (out.payload == 0) | (out.payload == 1)), assume)
        return m

    def _member(self, flit: Value) -> Value:
        """Whether a flit that comes in on the watched side leaves by the watched output: from the specification."""
        goal, (x, y) = flit.header.destination, self.node
        column = (goal.x_first <= x) & (goal.x_last >= x)
        wants = {
            Direction.EAST: goal.x_last > x,
            Direction.WEST: goal.x_first < x,
            Direction.NORTH: column & (goal.y_last > y),
            Direction.SOUTH: column & (goal.y_first < y),
            Direction.LOCAL: column & (goal.y_first <= y) & (goal.y_last >= y) & (goal.port == 0),
        }
        return wants[Direction(self.output)]
