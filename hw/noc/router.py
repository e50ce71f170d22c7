"""Input-buffered router: a flit that nothing stops leaves in the cycle after it came in."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Shape, Signal, Value
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from hw.emit import once
from hw.noc.arbiter import Arbiter
from hw.noc.config import MeshConfig
from hw.noc.counters import OutputCounters, counters_layout
from hw.noc.flit import Direction, LinkSignature, flit_layout
from hw.noc.route import FLOWS, Route, legal

__all__ = ["InputPort", "LaneBuffer", "OutputPort", "Router", "head_layout"]


def head_layout(config: MeshConfig, ports: int) -> data.StructLayout:
    """What a router knows about a flit at the head of a buffer, worked out while the flit was on the link."""
    return data.StructLayout({"flit": _flit_width(config), "outputs": ports, "flow": range(FLOWS), "tail": 1})


def _flit_width(config: MeshConfig) -> int:
    return Shape.cast(flit_layout(config)).width


class LaneBuffer(wiring.Component):
    """Queue of one virtual channel; a place is promised by a credit, so it has no `ready`.

    Interface attributes
    --------------------
    write, write_data : In
        A word comes in. Only with a credit: writing to a full buffer loses words.
    valid, head : Out
        The oldest word, from the cycle after it came in.
    pop : In(1)
        Take the oldest word away; only with `valid`.
    crowded : Out(1)
        More than half of the places are taken.
    """

    def __init__(self, width: int, depth: int):
        self.width, self.depth = width, depth
        super().__init__(
            {
                "write": In(1),
                "write_data": In(width),
                "valid": Out(1),
                "head": Out(width),
                "pop": In(1),
                "crowded": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.storage = storage = memory.Memory(shape=self.width, depth=self.depth, init=[])
        write, read = storage.write_port(), storage.read_port(domain="comb")
        level = Signal(range(self.depth + 1))
        m.d.comb += [
            write.en.eq(self.write),
            write.data.eq(self.write_data),
            self.head.eq(read.data),
            self.valid.eq(level != 0),
            self.crowded.eq(level > self.depth // 2),
        ]
        for pointer, step in ((write.addr, self.write), (read.addr, self.pop)):
            position = Signal(range(self.depth))
            m.d.comb += pointer.eq(position)
            with m.If(step):
                m.d.sync += position.eq(Mux(position == self.depth - 1, 0, position + 1))
        m.d.sync += level.eq(level + self.write - self.pop)
        return m


class InputPort(wiring.Component):
    """Buffers of one side of a router, one for each virtual channel, with the routing function in front.

    Interface attributes
    --------------------
    x, y : In
        Position of the router.
    link : In(LinkSignature)
    head : Out(head_layout), one for each virtual channel
        Oldest flit of the channel. `outputs` are those that it still has to leave by; zero: there is no flit.
    taken : In(ports), one for each virtual channel
        Outputs that take the flit in this cycle. When all have it, the flit is gone and its credit goes back.
    popped : Out(virtual channels)
        A flit left its buffer in this cycle.
    crowded : Out(virtual channels)
        The buffer is more than half full.
    """

    def __init__(self, config: MeshConfig, ports: int, arrival: int):
        self.config, self.ports, self.arrival = config, ports, arrival
        channels = config.virtual_channels
        super().__init__(
            {
                "x": In(config.x_width),
                "y": In(config.y_width),
                "link": In(LinkSignature(config)),
                "head": Out(head_layout(config, ports)).array(channels),
                "taken": In(ports).array(channels),
                "popped": Out(channels),
                "crowded": Out(channels),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, layout = self.config, head_layout(self.config, self.ports)
        m.submodules.route = route = Route(config, self.ports, self.arrival)
        arrived = Signal(layout)
        m.d.comb += [
            route.x.eq(self.x),
            route.y.eq(self.y),
            Value.cast(route.header).eq(self.link.flit[: Shape.cast(route.header.shape()).width]),
            arrived.outputs.eq(route.outputs),
            arrived.flow.eq(route.flow),
            arrived.tail.eq(route.tail),
            arrived.flit.eq(self.link.flit),
        ]
        for channel in range(config.virtual_channels):
            width = layout.as_shape().width
            buffer = once(LaneBuffer(width, config.depth), f"noc_lane_w{width}_d{config.depth}")
            m.submodules[f"channel_{channel}"] = buffer
            left = Signal(self.ports, name=f"left_{channel}")  # outputs that have the flit at the head already
            head = data.View(layout, buffer.head)
            waiting = Signal(self.ports, name=f"waiting_{channel}")
            m.d.comb += [
                buffer.write.eq(self.link.valid & (self.link.channel == channel)),
                buffer.write_data.eq(arrived),
                waiting.eq(Mux(buffer.valid, head.outputs & ~left, 0)),
                self.head[channel].eq(head),
                self.head[channel].outputs.eq(waiting),
                buffer.pop.eq(buffer.valid & ((waiting & ~self.taken[channel]) == 0)),
            ]
            m.d.sync += left.eq(Mux(buffer.pop, 0, left | self.taken[channel]))
            m.d.comb += [self.popped[channel].eq(buffer.pop), self.crowded[channel].eq(buffer.crowded)]
        m.d.sync += self.link.credit.eq(self.popped)
        return m


class Lane(wiring.Component):
    """What an output knows of one virtual channel of its link: places, the packet under way, the flows inside.

    Interface attributes
    --------------------
    send : In(size), tail : In(1), flow : In(range(FLOWS))
        A requester sends on this lane in this cycle (one-hot), what it sends ends its packet, and its flow.
    credit : In(1)
        The receiver has one more place.
    room : Out(1)
        There is a place.
    owner : Out(size)
        Requester inside a packet; zero: none.
    flows : Out(FLOWS)
        Flows of which the receiver may still hold flits.
    """

    def __init__(self, size: int, depth: int, ordered: bool):
        self.size, self.depth, self.ordered = size, depth, ordered
        super().__init__(
            {
                "send": In(size),
                "tail": In(1),
                "flow": In(range(FLOWS)),
                "credit": In(1),
                "room": Out(1),
                "owner": Out(size),
                "flows": Out(FLOWS),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        credits = Signal(range(self.depth + 1), init=self.depth)
        m.d.comb += self.room.eq(credits != 0)
        m.d.sync += credits.eq(credits + self.credit - self.send.any())
        with m.If(self.send.any()):
            m.d.sync += self.owner.eq(Mux(self.tail, 0, self.send))
        if self.ordered:
            self._remember(m)
        return m

    def _remember(self, m: Module) -> None:
        """Flows of the flits that are out, oldest first: credits come back in the order of the flits."""
        newest, oldest = Signal(range(self.depth)), Signal(range(self.depth))
        for pointer, step in ((newest, self.send.any()), (oldest, self.credit)):
            with m.If(step):
                m.d.sync += pointer.eq(Mux(pointer == self.depth - 1, 0, pointer + 1))
        inside = Mux(self.send.any(), 1 << self.flow, 0)[:FLOWS]
        for place in range(self.depth):
            used, flow = Signal(name=f"used_{place}"), Signal(range(FLOWS), name=f"flow_{place}")
            with m.If(self.send.any() & (newest == place)):
                m.d.sync += [used.eq(1), flow.eq(self.flow)]
            with m.Elif(self.credit & (oldest == place)):
                m.d.sync += used.eq(0)
            inside = inside | Mux(used, 1 << flow, 0)[:FLOWS]
        m.d.sync += self.flows.eq(inside)


class OutputPort(wiring.Component):
    """One output of a router: the lanes of its link, arbitration, one column of the crossbar.

    A packet takes the first lane of its class that is free and has a place, unless flits of its flow stand in
    another: then only that one. So flows stay in order, and packets pass each other where they can. Requesters whose
    buffers are more than half full go first, with a limit.

    Parameters
    ----------
    config : MeshConfig
    classes : list of int
        Traffic class of each requester.

    Interface attributes
    --------------------
    request, tail, crowded : In(requesters)
    flow : In(range(FLOWS)), flit : In(flit bits); one for each requester
    grant : Out(requesters)
        One-hot. The flit is on `link` in the next cycle.
    blocked : Out(1)
        There are requests and no grant: no lane that they may use has a place.
    link : Out(LinkSignature)
    """

    def __init__(self, config: MeshConfig, classes: list[int]):
        self.config, self.classes = config, classes
        size = len(classes)
        super().__init__(
            {
                "request": In(size),
                "tail": In(size),
                "crowded": In(size),
                "flow": In(range(FLOWS)).array(size),
                "flit": In(_flit_width(config)).array(size),
                "grant": Out(size),
                "blocked": Out(1),
                "link": Out(LinkSignature(config)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, size = self.config, len(self.classes)
        flow, flit, channel = Const(0), Const(0), Const(0)
        ready = Signal(size)
        lanes = [Lane(size, config.depth, config.channels > 1) for _ in range(config.virtual_channels)]
        for index, traffic in enumerate(self.classes):
            first = traffic * config.channels
            chosen, able = self._choose(m, index, lanes[first : first + config.channels])
            m.d.comb += ready[index].eq(self.request[index] & able)
            flow = flow | Mux(self.grant[index], self.flow[index], 0)
            flit = flit | Mux(self.grant[index], self.flit[index], 0)
            channel = channel | Mux(self.grant[index], first + chosen, 0)
        self._arbitrate(m, ready)
        m.d.comb += self.blocked.eq(self.request.any() & ~self.grant.any())
        m.d.sync += [self.link.valid.eq(self.grant.any()), self.link.flit.eq(flit), self.link.channel.eq(channel)]
        used = Signal(range(config.virtual_channels))
        m.d.comb += used.eq(channel)
        for index, lane in enumerate(lanes):
            m.submodules[f"lane_{index}"] = lane
            m.d.comb += [
                lane.send.eq(Mux(used == index, self.grant, 0)),
                lane.tail.eq((self.grant & self.tail).any()),
                lane.flow.eq(flow),
                lane.credit.eq(self.link.credit[index]),
            ]
        return m

    def _choose(self, m: Module, index: int, lanes: list[Lane]) -> tuple[Value, Value]:
        """Lane for requester `index` among those of its class; and whether there is one."""
        owns = Cat(lane.owner[index] for lane in lanes)
        able = Signal(len(lanes), name=f"able_{index}")
        for number, lane in enumerate(lanes):
            others = Cat(other.flows.bit_select(self.flow[index], 1) for other in lanes if other is not lane)
            free = ~lane.owner.any() & ~others.any()
            m.d.comb += able[number].eq(lane.room & Mux(owns.any(), owns[number], free))
        chosen: Value = Const(len(lanes) - 1)
        for number in reversed(range(len(lanes) - 1)):
            chosen = Mux(able[number], number, chosen)
        return chosen, able.any()

    def _arbitrate(self, m: Module, ready: Signal) -> None:
        """One arbiter among the classes and, beside it and not after it, one among the requesters of each class."""
        config = self.config
        m.submodules.among_classes = among = Arbiter(config.classes, config.urgent_limit)
        urgent = sum(1 << traffic for traffic in set(config.urgent))
        m.d.comb += [among.enable.eq(1), among.tail.eq(~Const(0, config.classes)), among.urgent.eq(urgent)]
        for traffic in range(config.classes):
            members = [index for index, mine in enumerate(self.classes) if mine == traffic]
            m.submodules[f"within_{traffic}"] = within = Arbiter(len(members), limit=3)
            m.d.comb += [
                within.request.eq(Cat(ready[index] for index in members)),
                within.tail.eq(Cat(self.tail[index] for index in members)),
                within.urgent.eq(Cat(self.crowded[index] for index in members)),
                within.enable.eq(among.grant[traffic]),
                among.request[traffic].eq(within.request.any()),
            ]
            for bit, index in enumerate(members):
                m.d.comb += self.grant[index].eq(within.grant[bit] & among.grant[traffic])


class Router(wiring.Component):
    """Router of a mesh: four sides and `local_ports` local ones.

    A flit that is on an input link in cycle t, and that nothing stops, is on an output link in cycle t + 2: one cycle
    to cross the link into the buffer (the routing function works meanwhile), one through arbiter and crossbar. A
    credit takes two cycles more, so a buffer of 4 flits sustains a flit a cycle. Every virtual channel has its own
    way into the crossbar, so an output needs one arbiter and no other has to agree. A flit for several outputs goes
    to each as soon as that one takes it.

    Parameters
    ----------
    config : MeshConfig
    local_ports : int

    Interface attributes
    --------------------
    x, y : In
        Position; constant while the router is in use.
    i, o : In, Out (LinkSignature), one for each port
        Indices as `Direction`. A side without neighbour: inputs zero, outputs left open.
    counters : Out(counters_layout()), one for each port, where the configuration has counters
        What left by the port.
    """

    def __init__(self, config: MeshConfig, local_ports: int = 1):
        if local_ports not in range(1, 5):
            raise ValueError(f"local_ports must be an integer from 1 to 4, not {local_ports!r}")
        self.config, self.ports = config, Direction.LOCAL + local_ports
        ports = {
            "x": In(config.x_width),
            "y": In(config.y_width),
            "i": In(LinkSignature(config)).array(self.ports),
            "o": Out(LinkSignature(config)).array(self.ports),
        }
        super().__init__(ports | ({"counters": Out(counters_layout()).array(self.ports)} if config.counters else {}))

    def requesters(self, output: int) -> list[tuple[int, int]]:
        """(input port, virtual channel) of each requester of an output, in the order of its bits."""
        config = self.config
        return [
            (arrival, channel)
            for arrival in range(self.ports)
            for channel in range(config.virtual_channels)
            if legal(arrival, output)
        ]

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        inputs = [InputPort(config, self.ports, arrival) for arrival in range(self.ports)]
        for arrival, port in enumerate(inputs):
            m.submodules[f"input_{arrival}"] = port
            m.d.comb += [port.x.eq(self.x), port.y.eq(self.y)]
            wiring.connect(m, wiring.flipped(self.i[arrival]), port.link)
        for output in range(self.ports):
            requesters = self.requesters(output)
            classes = [channel // config.channels for _, channel in requesters]
            port = OutputPort(config, classes)
            m.submodules[f"output_{output}"] = port
            wiring.connect(m, port.link, wiring.flipped(self.o[output]))
            if config.counters:
                m.submodules[f"counters_{output}"] = counted = OutputCounters()
                m.d.comb += [counted.sent.eq(port.grant.any()), counted.blocked.eq(port.blocked)]
                m.d.comb += self.counters[output].eq(counted.counters)
            for index, (arrival, channel) in enumerate(requesters):
                head = inputs[arrival].head[channel]
                m.d.comb += [
                    port.request[index].eq(head.outputs[output]),
                    port.tail[index].eq(head.tail),
                    port.flow[index].eq(head.flow),
                    port.crowded[index].eq(inputs[arrival].crowded[channel]),
                    port.flit[index].eq(head.flit),
                    inputs[arrival].taken[channel][output].eq(port.grant[index]),
                ]
        return m
