"""Barrier over all nodes of a mesh, by messages on one traffic class."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.noc.config import MeshConfig
from hw.noc.flit import Kind, flit_layout

__all__ = ["Barrier"]


class Barrier(wiring.Component):
    """Stands between a node and the streams of one class of its endpoint, and passes everything but barrier flits.

    `arrive` sends one flit to node (0, 0). When all nodes' flits are there, that node sends one multicast flit, and
    `released` is high for a cycle at every node. So nobody is released before everybody arrived, and each node once
    for each of its arrivals. A barrier takes at least columns * rows cycles (one endpoint takes all arrivals) and two
    ways through the mesh.

    Parameters
    ----------
    config : MeshConfig

    Interface attributes
    --------------------
    arrive : In(1), ready : Out(1)
        A pulse while `ready`: this node has arrived. `ready` is low from then on until the flit is sent; the node has
        to wait for `released` before it arrives again.
    released : Out(1)
    node_send : In, node_receive : Out (streams of flits)
        Towards the node.
    send : Out, receive : In (streams of flits)
        Towards the network. Barrier flits go first.
    """

    def __init__(self, config: MeshConfig):
        self.config = config
        flits = stream.Signature(flit_layout(config))
        super().__init__(
            {
                "arrive": In(1),
                "ready": Out(1),
                "released": Out(1),
                "node_send": In(flits),
                "node_receive": Out(flits),
                "send": Out(flits),
                "receive": In(flits),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        arrivals = Signal(range(self.config.nodes + 1))
        everybody = Signal()
        m.d.comb += everybody.eq(arrivals == self.config.nodes)
        arrived = self._filter(m)
        with m.If(arrived):
            m.d.sync += arrivals.eq(arrivals + 1)
        sent = self._insert(m, everybody)
        with m.If(sent & everybody):
            m.d.sync += arrivals.eq(0)
        return m

    def _filter(self, m: Module) -> Value:
        """Take barrier flits out of what comes in. Returns: an arrival came (at the root)."""
        kind = self.receive.payload.header.kind
        arrival, release = kind == Kind.BARRIER, kind == Kind.RELEASE
        m.d.comb += [
            Value.cast(self.node_receive.payload).eq(self.receive.payload),
            self.node_receive.valid.eq(self.receive.valid & ~arrival & ~release),
            self.receive.ready.eq(self.node_receive.ready | arrival | release),
            self.released.eq(self.receive.valid & release),
        ]
        return self.receive.valid & arrival

    def _insert(self, m: Module, everybody: Signal) -> Value:
        """Send an arrival or the release between the node's packets. Returns: a barrier flit was taken."""
        waiting, inside = Signal(), Signal()  # an arrival has to be sent; the node is inside a packet
        own, offered = Signal(flit_layout(self.config)), Signal()
        busy = Signal()  # the node's flit was offered and not taken: it has to stay
        goal = own.header.destination
        m.d.comb += [
            self.ready.eq(~waiting),
            offered.eq((waiting | everybody) & ~inside & ~busy),
            own.header.kind.eq(Mux(everybody, Kind.RELEASE, Kind.BARRIER)),
            own.header.last.eq(1),
            goal.x_last.eq(Mux(everybody, self.config.columns - 1, 0)),
            goal.y_last.eq(Mux(everybody, self.config.rows - 1, 0)),
            Value.cast(self.send.payload).eq(Mux(offered, own, self.node_send.payload)),
            self.send.valid.eq(offered | self.node_send.valid),
            self.node_send.ready.eq(self.send.ready & ~offered),
        ]
        taken = offered & self.send.ready
        m.d.sync += busy.eq(self.node_send.valid & ~offered & ~self.send.ready)
        with m.If(self.node_send.valid & self.node_send.ready):
            m.d.sync += inside.eq(~self.node_send.payload.header.last)
        with m.If(self.arrive & self.ready):
            m.d.sync += waiting.eq(1)
        with m.Elif(taken & ~everybody):
            m.d.sync += waiting.eq(0)
        return taken
