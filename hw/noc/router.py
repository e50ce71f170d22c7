"""Input-buffered router: a flit that nothing stops leaves in the cycle after it came in."""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Const, Module, Mux, Shape, Signal, Value
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from hw.emit import once
from hw.noc.arbiter import Arbiter
from hw.noc.config import MeshConfig
from hw.noc.flit import Direction, LinkSignature, flit_layout
from hw.noc.route import Route, reaches

__all__ = ["InputPort", "LaneBuffer", "OutputPort", "Router", "head_layout"]


def head_layout(config: MeshConfig, ports: int) -> data.StructLayout:
    """What a router knows about a flit at the head of a buffer, worked out while the flit was on the link."""
    return data.StructLayout({"flit": _flit_width(config), "outputs": ports, "lane": range(config.channels), "tail": 1})


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
    """

    def __init__(self, width: int, depth: int):
        self.width, self.depth = width, depth
        super().__init__(
            {"write": In(1), "write_data": In(width), "valid": Out(1), "head": Out(width), "pop": In(1)}
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
            arrived.lane.eq(route.lane),
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
            m.d.comb += self.popped[channel].eq(buffer.pop)
        m.d.sync += self.link.credit.eq(self.popped)
        return m


class OutputPort(wiring.Component):
    """One output of a router: credits and owners of its virtual channels, one arbiter, one column of the crossbar.

    Parameters
    ----------
    config : MeshConfig
    classes : list of int
        Traffic class of each requester.
    lanes : list of int, or None
        For a local port: the lane that each requester's flits keep. None: the lane that the head asks for.

    Interface attributes
    --------------------
    request, tail : In(requesters)
    lane : In(range(config.channels)), flit : In(flit bits); one for each requester
    grant : Out(requesters)
        One-hot. The flit is on `link` in the next cycle.
    link : Out(LinkSignature)
    """

    def __init__(self, config: MeshConfig, classes: list[int], lanes: list[int] | None = None):
        self.config, self.classes, self.lanes = config, classes, lanes
        size = len(classes)
        super().__init__(
            {
                "request": In(size),
                "tail": In(size),
                "lane": In(range(config.channels)).array(size),
                "flit": In(_flit_width(config)).array(size),
                "grant": Out(size),
                "link": Out(LinkSignature(config)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, size = self.config, len(self.classes)
        channels = [self._channel(m, index) for index in range(size)]
        open_to = [self._channel_state(m, channel, channels) for channel in range(config.virtual_channels)]
        ready = Signal(size)
        for index, channel in enumerate(channels):
            may = Array(open_to)[channel] if isinstance(channel, Signal) else open_to[channel]
            m.d.comb += ready[index].eq(self.request[index] & may[index])
        self._arbitrate(m, ready)
        flit, channel = Const(0), Const(0)
        for index in range(size):
            flit = flit | Mux(self.grant[index], self.flit[index], 0)
            channel = channel | Mux(self.grant[index], channels[index], 0)
        m.d.sync += [self.link.valid.eq(self.grant.any()), self.link.flit.eq(flit), self.link.channel.eq(channel)]
        return m

    def _arbitrate(self, m: Module, ready: Signal) -> None:
        """One arbiter among the classes and, beside it and not after it, one among the requesters of each class."""
        config = self.config
        urgent = [traffic in config.urgent for traffic in range(config.classes)]
        m.submodules.among_classes = among = Arbiter(config.classes, urgent, config.urgent_limit)
        m.d.comb += [among.enable.eq(1), among.tail.eq(~Const(0, config.classes))]
        for traffic in range(config.classes):
            members = [index for index, mine in enumerate(self.classes) if mine == traffic]
            m.submodules[f"within_{traffic}"] = within = Arbiter(len(members))
            m.d.comb += [
                within.request.eq(Cat(ready[index] for index in members)),
                within.tail.eq(Cat(self.tail[index] for index in members)),
                within.enable.eq(among.grant[traffic]),
                among.request[traffic].eq(within.request.any()),
            ]
            for bit, index in enumerate(members):
                m.d.comb += self.grant[index].eq(within.grant[bit] & among.grant[traffic])

    def _channel(self, m: Module, index: int) -> Signal | int:
        """Virtual channel on the link for requester `index`."""
        first = self.classes[index] * self.config.channels
        if self.config.channels == 1 or self.lanes is not None:
            return first + (self.lanes[index] if self.lanes else 0)
        channel = Signal(range(self.config.virtual_channels), name=f"channel_{index}")
        m.d.comb += channel.eq(first + self.lane[index])
        return channel

    def _channel_state(self, m: Module, channel: int, channels: list[Signal | int]) -> Value:
        """Keep credits and owner of a virtual channel. Returns who may send on it now, one bit for each requester."""
        size, depth = len(channels), self.config.depth
        credits = Signal(range(depth + 1), init=depth, name=f"credits_{channel}")
        owner = Signal(size, name=f"owner_{channel}")  # who is inside a packet; zero: nobody
        sends = Signal(size, name=f"sends_{channel}")
        m.d.comb += sends.eq(Cat(self.grant[index] & (mine == channel) for index, mine in enumerate(channels)))
        m.d.sync += credits.eq(credits + self.link.credit[channel] - sends.any())
        with m.If(sends.any()):
            m.d.sync += owner.eq(sends & ~self.tail)
        may = Signal(size, name=f"may_{channel}")
        m.d.comb += may.eq(Mux(credits == 0, 0, Mux(owner.any(), owner, ~Const(0, size))))
        return may


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
    """

    def __init__(self, config: MeshConfig, local_ports: int = 1):
        if local_ports not in range(1, 5):
            raise ValueError(f"local_ports must be an integer from 1 to 4, not {local_ports!r}")
        self.config, self.ports = config, Direction.LOCAL + local_ports
        super().__init__(
            {
                "x": In(config.x_width),
                "y": In(config.y_width),
                "i": In(LinkSignature(config)).array(self.ports),
                "o": Out(LinkSignature(config)).array(self.ports),
            }
        )

    def requesters(self, output: int) -> list[tuple[int, int]]:
        """(input port, virtual channel) of each requester of an output, in the order of its bits."""
        config = self.config
        return [
            (arrival, channel)
            for arrival in range(self.ports)
            for channel in range(config.virtual_channels)
            if reaches(config.channels, arrival, channel % config.channels, output)
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
            lanes = [channel % config.channels for _, channel in requesters]
            port = OutputPort(config, classes, lanes if output >= Direction.LOCAL else None)
            m.submodules[f"output_{output}"] = port
            wiring.connect(m, port.link, wiring.flipped(self.o[output]))
            for index, (arrival, channel) in enumerate(requesters):
                head = inputs[arrival].head[channel]
                m.d.comb += [
                    port.request[index].eq(head.outputs[output]),
                    port.tail[index].eq(head.tail),
                    port.lane[index].eq(head.lane),
                    port.flit[index].eq(head.flit),
                    inputs[arrival].taken[channel][output].eq(port.grant[index]),
                ]
        return m
