"""Network interface of an AXI4 target: packets become bursts at the target, its answers go back to their managers."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.axi import Response, burst_layout, write_beat_layout
from hw.fifo import StreamFifo
from hw.noc.arbiter import Arbiter
from hw.noc.axi.config import BEATS, AxiNetworkConfig, beat_layout, head_layout, make_flit
from hw.noc.axi.pending import Pending, reply_layout
from hw.noc.flit import Kind, flit_layout

__all__ = ["AxiTargetBridge"]

QUEUE = 4  # bursts between a packet and the target


class AxiTargetBridge(wiring.Component):
    """Stands at an endpoint of its own between the network and an AXI4 target.

    Address and data of a write stand at the target together, so it may wait for either or for both. The target sees
    IDs with the manager's place (x, y, port, from bit `id_width` on) above the manager's ID, so its own rule of order
    within an ID is the manager's.

    A transaction without an answer for `timeout` cycles is answered with SLVERR. From then on until the target has
    given all answers that it owes (they are dropped), further reads, or writes, are answered with SLVERR at once: a
    target that hangs stops nobody else's flits for longer than `timeout`. The handshakes that it has not finished
    stay as they are, as AXI4 asks.

    Parameters
    ----------
    config : AxiNetworkConfig

    Interface attributes
    --------------------
    receive : In(stream(flit_layout)), send : Out(stream(flit_layout))
        Requests and answers: the endpoint's streams of classes `REQUEST` and `RESPONSE`.
    axi : Out(Axi4Signature)
        Drives the target; bursts of at most 16 beats.
    hung : Out(2)
        The target owes answers to reads (bit 0) or writes (bit 1) that were given up.
    """

    def __init__(self, config: AxiNetworkConfig):
        self.config = config
        flits = stream.Signature(flit_layout(config.mesh))
        super().__init__(
            {"receive": In(flits), "send": Out(flits), "axi": Out(config.target_signature()), "hung": Out(2)}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        m.submodules.reads = reads = Pending(config)
        m.submodules.writes = writes = Pending(config)
        layout = burst_layout(config.address_width, config.target_id_width)
        m.submodules.ar = ar = StreamFifo(layout, QUEUE)
        m.submodules.aw = aw = StreamFifo(layout, QUEUE)
        m.submodules.w = w = StreamFifo(write_beat_layout(config.data_width), 2 * BEATS)
        m.submodules.refused = refused = StreamFifo(data.StructLayout({"reply": reply_layout(config), "write": 1}), 2)
        self._drive(m, ar, aw, w)
        self._answers(m, reads, writes)
        self._accept(m, reads, writes, ar, aw, w, refused)
        self._reply(m, reads, writes, refused)
        m.d.comb += self.hung.eq(Cat(reads.hung, writes.hung))
        return m

    def _drive(self, m: Module, ar: StreamFifo, aw: StreamFifo, w: StreamFifo) -> None:
        """The queues' ends are the target's address and data channels."""
        axi = self.axi
        for channel, queue, names in (
            ("ar", ar, ("id", "addr", "len", "size", "burst")),
            ("aw", aw, ("id", "addr", "len", "size", "burst")),
            ("w", w, ("data", "strb", "last")),
        ):
            m.d.comb += getattr(axi, f"{channel}valid").eq(queue.o.valid)
            m.d.comb += queue.o.ready.eq(getattr(axi, f"{channel}ready"))
            for name in names:
                m.d.comb += getattr(axi, channel + name).eq(getattr(queue.o.payload, name))

    def _answers(self, m: Module, reads: Pending, writes: Pending) -> None:
        axi = self.axi
        m.d.comb += [
            reads.beat.valid.eq(axi.rvalid), axi.rready.eq(reads.beat.ready), reads.beat.payload.id.eq(axi.rid),
            reads.beat.payload.data.eq(axi.rdata), reads.beat.payload.resp.eq(axi.rresp),
            reads.beat.payload.last.eq(axi.rlast),
            writes.beat.valid.eq(axi.bvalid), axi.bready.eq(writes.beat.ready), writes.beat.payload.id.eq(axi.bid),
            writes.beat.payload.resp.eq(axi.bresp), writes.beat.payload.last.eq(1),
        ]  # fmt: skip

    def _accept(
        self, m: Module, reads: Pending, writes: Pending, ar: StreamFifo, aw: StreamFifo, w: StreamFifo,
        refused: StreamFifo,
    ) -> None:  # fmt: skip
        """Requests into the queues; those to a target that hangs go to `refused`."""
        config, flit = self.config, self.receive.payload
        head = Signal(head_layout(config))
        beat = Signal(beat_layout(config))
        room = Signal()  # for all beats of a packet: once begun, it never waits for the target
        m.d.comb += [
            Value.cast(head).eq(Value.cast(flit.payload)),  # each its low bits
            Value.cast(beat).eq(Value.cast(flit.payload)),
            room.eq(w.level <= BEATS),
            w.i.payload.data.eq(beat.data),
            w.i.payload.strb.eq(beat.strb),
            w.i.payload.last.eq(flit.header.last),
        ]
        start = Signal()
        for part, queue, kind, fits in ((reads, ar, Kind.READ, Const(1)), (writes, aw, Kind.WRITE, room)):
            able = part.free & queue.i.ready & fits & ~part.hung
            m.d.comb += part.open.eq(start & able & (flit.header.kind == kind))
            self._open(m, part, queue, head, head.len if kind == Kind.READ else Const(0))
        self._refuse(m, reads, writes, refused, head, start)
        with m.FSM():
            with m.State("HEAD"):
                m.d.comb += start.eq(self.receive.valid)
                read, write = flit.header.kind == Kind.READ, flit.header.kind == Kind.WRITE
                taken = reads.open | writes.open | (refused.i.valid & refused.i.ready)
                m.d.comb += self.receive.ready.eq(Mux(read | write, taken, 1))
                with m.If(writes.open):
                    m.next = "DATA"
                with m.Elif(taken & write):
                    m.next = "DROP"
            with m.State("DATA"):
                m.d.comb += [w.i.valid.eq(self.receive.valid), self.receive.ready.eq(w.i.ready)]
                with m.If(self.receive.valid & w.i.ready & flit.header.last):
                    m.next = "HEAD"
            with m.State("DROP"):
                m.d.comb += self.receive.ready.eq(1)
                with m.If(self.receive.valid & flit.header.last):
                    m.next = "HEAD"

    def _open(self, m: Module, part: Pending, queue: StreamFifo, head: data.View, beats: Value) -> None:
        """Into the queue when `part` opens, with the manager's place above its ID."""
        burst = queue.i.payload
        m.d.comb += [
            part.start.id.eq(Cat(head.id, Value.cast(self.receive.payload.header.source))),
            part.start.slot.eq(head.slot),
            part.start.beats.eq(beats),
            queue.i.valid.eq(part.open),
            burst.id.eq(part.start.id),
            burst.addr.eq(head.addr),
            burst.len.eq(head.len),
            burst.size.eq(head.size),
            burst.burst.eq(head.burst),
        ]

    def _refuse(
        self, m: Module, reads: Pending, writes: Pending, refused: StreamFifo, head: data.View, start: Signal
    ) -> None:
        header, reply = self.receive.payload.header, refused.i.payload.reply
        hangs = Mux(header.kind == Kind.READ, reads.hung, (header.kind == Kind.WRITE) & writes.hung)
        m.d.comb += [
            refused.i.valid.eq(start & hangs),
            refused.i.payload.write.eq(header.kind == Kind.WRITE),
            reply.goal.eq(header.source),
            reply.answer.slot.eq(head.slot),
            reply.answer.resp.eq(Response.SLVERR),
            reply.answer.done.eq(1),
        ]

    def _reply(self, m: Module, reads: Pending, writes: Pending, refused: StreamFifo) -> None:
        """All answers, each a packet of one flit, to one stream."""
        m.submodules.arbiter = arbiter = Arbiter(3)
        m.submodules.replies = replies = StreamFifo(flit_layout(self.config.mesh), 2)
        wiring.connect(m, replies.o, wiring.flipped(self.send))
        ready = replies.i.ready
        m.d.comb += [
            arbiter.request.eq(Cat(reads.offer, writes.offer, refused.o.valid)),
            arbiter.tail.eq(~Const(0, 3)),
            arbiter.enable.eq(ready),
            reads.take.eq(arbiter.grant[0] & ready),
            writes.take.eq(arbiter.grant[1] & ready),
            refused.o.ready.eq(arbiter.grant[2] & ready),
            replies.i.valid.eq(arbiter.grant.any()),
        ]
        reply, write = Signal(reply_layout(self.config)), Signal()
        with m.If(arbiter.grant[0]):
            m.d.comb += reply.eq(reads.reply)
        with m.Elif(arbiter.grant[1]):
            m.d.comb += [reply.eq(writes.reply), write.eq(1)]
        with m.Else():
            m.d.comb += [reply.eq(refused.o.payload.reply), write.eq(refused.o.payload.write)]
        kind = Mux(write, Kind.WRITE, Kind.READ)
        payload = Value.cast(reply.answer)
        m.d.comb += replies.i.payload.eq(make_flit(m, self.config, "answer", reply.goal, kind, Const(1), payload))
