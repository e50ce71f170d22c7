"""Network interface of an AXI4 manager: its bursts become packets to the targets of an address map."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.axi import read_beat_layout, write_answer_layout
from hw.fifo import StreamFifo
from hw.noc.arbiter import Arbiter
from hw.noc.axi.config import AxiNetworkConfig
from hw.noc.axi.reads import ManagerReads
from hw.noc.axi.writes import ManagerWrites
from hw.noc.flit import Kind, flit_layout

__all__ = ["AxiManagerBridge"]


class AxiManagerBridge(wiring.Component):
    """Stands at an endpoint of its own between an AXI4 manager and the network.

    All bursts of AXI4: FIXED, INCR and WRAP, narrow, unaligned, up to 256 beats (INCR bursts travel as packets of up
    to 16 beats; another manager's access may come between them). Answers of one ID come in the order of its requests,
    whichever targets they went to; those of different IDs as they arrive, and read beats of different IDs may
    interleave. An address outside the map: DECERR. A size wider than the bus, a FIXED or WRAP burst of more than 16
    beats, a reserved burst type: SLVERR. Neither reaches the network.

    Every transaction under way has a place for its answer, so `receive` is always ready, whatever the manager does.

    Parameters
    ----------
    config : AxiNetworkConfig

    Interface attributes
    --------------------
    axi : In(Axi4Signature)
        The manager drives it.
    send : Out(stream(flit_layout)), receive : In(stream(flit_layout))
        Requests and answers: the endpoint's streams of classes `REQUEST` and `RESPONSE`.
    """

    def __init__(self, config: AxiNetworkConfig):
        self.config = config
        flits = stream.Signature(flit_layout(config.mesh))
        super().__init__({"axi": In(config.manager_signature()), "send": Out(flits), "receive": In(flits)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, axi = self.config, self.axi
        m.submodules.reads = reads = ManagerReads(config)
        m.submodules.writes = writes = ManagerWrites(config)
        m.submodules.r = r = StreamFifo(read_beat_layout(config.data_width, config.id_width), 2)
        m.submodules.b = b = StreamFifo(write_answer_layout(config.id_width), 2)
        wiring.connect(m, reads.r, r.i)
        wiring.connect(m, writes.b, b.i)
        for channel, port in (("ar", reads.ar), ("aw", writes.aw)):
            for name in ("id", "addr", "len", "size", "burst"):
                m.d.comb += getattr(port.payload, name).eq(getattr(axi, channel + name))
        for name in ("data", "strb", "last"):
            m.d.comb += getattr(writes.w.payload, name).eq(getattr(axi, f"w{name}"))
        m.d.comb += [
            reads.ar.valid.eq(axi.arvalid), axi.arready.eq(reads.ar.ready),
            writes.aw.valid.eq(axi.awvalid), axi.awready.eq(writes.aw.ready),
            writes.w.valid.eq(axi.wvalid), axi.wready.eq(writes.w.ready),
            axi.rvalid.eq(r.o.valid), r.o.ready.eq(axi.rready), axi.rid.eq(r.o.payload.id),
            axi.rdata.eq(r.o.payload.data), axi.rresp.eq(r.o.payload.resp), axi.rlast.eq(r.o.payload.last),
            axi.bvalid.eq(b.o.valid), b.o.ready.eq(axi.bready), axi.bid.eq(b.o.payload.id),
            axi.bresp.eq(b.o.payload.resp),
        ]  # fmt: skip
        self._join(m, reads, writes)
        return m

    def _join(self, m: Module, reads: ManagerReads, writes: ManagerWrites) -> None:
        """Requests of both kinds, packet by packet, to one stream; answers to where they belong."""
        m.submodules.arbiter = arbiter = Arbiter(2)
        m.submodules.requests = requests = StreamFifo(flit_layout(self.config.mesh), 2)
        wiring.connect(m, requests.o, wiring.flipped(self.send))
        m.d.comb += [
            arbiter.request.eq(reads.offer | writes.offer << 1),
            arbiter.tail.eq(1 | writes.flit.header.last << 1),
            arbiter.enable.eq(requests.i.ready),
            reads.take.eq(arbiter.grant[0] & requests.i.ready),
            writes.take.eq(arbiter.grant[1] & requests.i.ready),
            requests.i.valid.eq(arbiter.grant.any()),
            Value.cast(requests.i.payload).eq(Mux(arbiter.grant[1], Value.cast(writes.flit), Value.cast(reads.flit))),
            self.receive.ready.eq(1),
        ]
        flit = self.receive.payload
        for part, kind in ((reads, Kind.READ), (writes, Kind.WRITE)):
            m.d.comb += [
                Value.cast(part.answer).eq(Value.cast(flit.payload)),  # its low bits
                part.answered.eq(self.receive.valid & (flit.header.kind == kind)),
            ]
