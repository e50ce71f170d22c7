"""Network interface of an endpoint: streams of flits, one for each traffic class, to and from a router's local port."""

from __future__ import annotations

from amaranth.hdl import Const, Module, Mux, Shape, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.emit import once
from hw.noc.arbiter import Arbiter
from hw.noc.config import MeshConfig
from hw.noc.flit import LinkSignature, flit_layout
from hw.noc.route import ends_packet, flow_number, single_target
from hw.noc.router import LaneBuffer

__all__ = ["NetworkInterface"]


class NetworkInterface(wiring.Component):
    """Streams to links and back.

    Sending: fills in source and class; refuses (takes and drops, with `refused` high for a cycle) what no endpoint
    can receive: a destination outside the mesh, an empty rectangle or list, a port that the node does not have.
    Receiving: a buffer for each virtual channel; packets of one channel come whole, and the channels of one class are
    merged packet by packet.

    Parameters
    ----------
    config : MeshConfig

    Interface attributes
    --------------------
    x, y, port : In
        Which endpoint this is; constant.
    send : In(stream(flit_layout)), one for each class
        `ready` depends on `valid`: on the destination and on the other classes.
    receive : Out(stream(flit_layout)), one for each class
    to_router : Out(LinkSignature), from_router : In(LinkSignature)
    refused : Out(classes)
        A flit of the class was refused in this cycle.
    """

    def __init__(self, config: MeshConfig):
        self.config = config
        flits = stream.Signature(flit_layout(config))
        super().__init__(
            {
                "x": In(config.x_width),
                "y": In(config.y_width),
                "port": In(config.port_width),
                "send": In(flits).array(config.classes),
                "receive": Out(flits).array(config.classes),
                "to_router": Out(LinkSignature(config)),
                "from_router": In(LinkSignature(config)),
                "refused": Out(config.classes),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self._send(m)
        for traffic in range(self.config.classes):
            self._receive(m, traffic)
        return m

    def _send(self, m: Module) -> None:
        config = self.config
        m.submodules.arbiter = arbiter = Arbiter(config.classes, config.urgent_limit)
        urgent = sum(1 << traffic for traffic in set(config.urgent))
        m.d.comb += [arbiter.enable.eq(1), arbiter.tail.eq(~Const(0, config.classes)), arbiter.urgent.eq(urgent)]
        sent = Signal(config.virtual_channels)
        room = Signal(config.virtual_channels)
        for channel in range(config.virtual_channels):
            credits = Signal(range(config.depth + 1), init=config.depth, name=f"credits_{channel}")
            m.d.sync += credits.eq(credits + self.to_router.credit[channel] - sent[channel])
            m.d.comb += room[channel].eq(credits != 0)
        chosen, link_flit = Const(0), Const(0)
        for traffic, i in enumerate(self.send):
            flit = Signal(flit_layout(config), name=f"flit_{traffic}")
            channel = Signal(range(config.virtual_channels), name=f"channel_{traffic}")
            reachable = self._reachable(m, traffic, flit.header.destination)
            m.d.comb += [
                flit.eq(i.payload),
                flit.header.source.x.eq(self.x),
                flit.header.source.y.eq(self.y),
                flit.header.source.port.eq(self.port),
                flit.header.traffic.eq(traffic),
                channel.eq(traffic * config.channels + flow_number(config, flit.header) % config.channels),
                arbiter.request[traffic].eq(i.valid & reachable & room.bit_select(channel, 1)),
                i.ready.eq(arbiter.grant[traffic] | ~reachable),
                self.refused[traffic].eq(i.valid & ~reachable),
            ]
            chosen = chosen | Mux(arbiter.grant[traffic], channel, 0)
            link_flit = link_flit | Mux(arbiter.grant[traffic], Value.cast(flit), 0)
        m.d.comb += [
            self.to_router.valid.eq(arbiter.grant.any()),
            self.to_router.channel.eq(chosen),
            self.to_router.flit.eq(link_flit),
            sent.eq(Mux(self.to_router.valid, 1 << self.to_router.channel, 0)),
        ]

    def _reachable(self, m: Module, traffic: int, goal: data.View) -> Value:
        config = self.config
        inside = (goal.x_first <= goal.x_last) & (goal.x_last < config.columns)
        inside &= (goal.y_first <= goal.y_last) & (goal.y_last < config.rows)
        single = single_target(config, goal)
        if config.lists:
            inside = Mux(goal.listed, goal.nodes.any(), inside)
        exists = goal.port == 0
        for x, y, port in config.endpoints()[config.nodes :]:
            exists |= single & (goal.x_first == x) & (goal.y_first == y) & (goal.port == port)
        reachable = Signal(name=f"reachable_{traffic}")
        m.d.comb += reachable.eq(inside & exists)
        return reachable

    def _receive(self, m: Module, traffic: int) -> None:
        config, o = self.config, self.receive[traffic]
        width = Shape.cast(flit_layout(config)).width
        m.submodules[f"merge_{traffic}"] = merge = Arbiter(config.channels)
        valid = Signal(config.channels, name=f"valid_{traffic}")
        owner = Signal(config.channels, name=f"owner_{traffic}")
        merged: Value = Const(0)
        for lane in range(config.channels):
            channel = traffic * config.channels + lane
            buffer = once(LaneBuffer(width, config.depth), f"noc_lane_w{width}_d{config.depth}")
            m.submodules[f"buffer_{channel}"] = buffer
            head = data.View(flit_layout(config), buffer.head)
            m.d.comb += [
                buffer.write.eq(self.from_router.valid & (self.from_router.channel == channel)),
                buffer.write_data.eq(self.from_router.flit),
                valid[lane].eq(buffer.valid),
                merge.tail[lane].eq(ends_packet(config, head.header)),
                buffer.pop.eq(merge.grant[lane] & o.ready),
            ]
            m.d.sync += self.from_router.credit[channel].eq(buffer.pop)
            merged = merged | Mux(merge.grant[lane], buffer.head, 0)
        # An offer that is not taken yet must stay, so the arbiter's choice is kept until it is.
        m.d.comb += [
            merge.request.eq(Mux(owner.any(), owner & valid, valid)),
            merge.enable.eq(o.ready),
            o.valid.eq(merge.grant.any()),
            Value.cast(o.payload).eq(merged),
        ]
        with m.If(o.valid):
            m.d.sync += owner.eq(Mux(o.ready, merge.grant & ~merge.tail, merge.grant))
