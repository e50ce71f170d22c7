"""The writes of a manager: bursts to packets of up to 16 beats, sent when they are whole; one answer to each burst."""

from __future__ import annotations

from amaranth.hdl import Array, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.axi import Response, burst_layout, write_answer_layout, write_beat_layout
from hw.fifo import StreamFifo
from hw.noc.arbiter import Arbiter
from hw.noc.axi.config import BEATS, AxiNetworkConfig, answer_layout, beat_layout, decode, head_layout, make_flit
from hw.noc.axi.order import IdOrder
from hw.noc.axi.reads import following_address
from hw.noc.flit import Kind, endpoint_layout, flit_layout

__all__ = ["ManagerWrites"]


def _larger(a: Value, b: Value) -> Value:
    return Mux(Value.cast(a) > Value.cast(b), a, b)


class ManagerWrites(wiring.Component):
    """A packet starts when all of its beats are here, so that a slow manager holds no channel of the network.

    Interface attributes
    --------------------
    aw, w : In, b : Out
        Streams of `burst_layout`, `write_beat_layout`, `write_answer_layout`.
    offer, take : Out(1), In(1); flit : Out(flit_layout)
        A packet, flit by flit.
    answered : In(1), answer : In(answer_layout)
    """

    def __init__(self, config: AxiNetworkConfig):
        self.config = config
        self._chunk = data.StructLayout({"goal": endpoint_layout(config.mesh), "head": head_layout(config)})
        super().__init__(
            {
                "aw": In(stream.Signature(burst_layout(config.address_width, config.id_width))),
                "w": In(stream.Signature(write_beat_layout(config.data_width))),
                "b": Out(stream.Signature(write_answer_layout(config.id_width))),
                "offer": Out(1),
                "take": In(1),
                "flit": Out(flit_layout(config.mesh)),
                "answered": In(1),
                "answer": In(answer_layout(config)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        m.submodules.order = order = IdOrder(config.slots, config.id_width)
        m.submodules.chunks = chunks = StreamFifo(self._chunk, config.slots)
        m.submodules.beats = beats = StreamFifo(beat_layout(config), 2 * BEATS)
        slot, ends, status = self._collect(m, order, chunks, beats)
        self._send(m, chunks, beats)
        self._respond(m, order, chunks.i.valid & chunks.i.ready, slot, ends, status)
        return m

    def _collect(
        self, m: Module, order: IdOrder, chunks: StreamFifo, beats: StreamFifo
    ) -> tuple[Signal, Signal, Signal]:
        """Beats into their queue, one burst at a time. Returns its slot, whether it ends now, and its status."""
        burst, slot = Signal(self.aw.payload.shape()), Signal(range(self.config.slots))
        busy, left, filled = Signal(), Signal(range(257)), Signal(range(BEATS))
        goal, status = decode(m, self.config, "write", burst)
        good, ends, taken = Signal(), Signal(), Signal()
        head = chunks.i.payload.head
        m.d.comb += [
            good.eq(status == Response.OKAY),
            self.aw.ready.eq(~busy & order.free),
            order.open.eq(self.aw.valid & self.aw.ready),
            order.id.eq(self.aw.payload.id),
            self.w.ready.eq(busy & (~good | (beats.i.ready & chunks.i.ready))),
            taken.eq(self.w.valid & self.w.ready),
            ends.eq(taken & (left == 1)),
            beats.i.valid.eq(taken & good),
            beats.i.payload.data.eq(self.w.payload.data),
            beats.i.payload.strb.eq(self.w.payload.strb),
            chunks.i.valid.eq(taken & good & ((left == 1) | (filled == BEATS - 1))),
            chunks.i.payload.goal.eq(goal),
            head.addr.eq(burst.addr),
            head.id.eq(burst.id),
            head.len.eq(filled),
            head.size.eq(burst.size),
            head.burst.eq(burst.burst),
            head.slot.eq(slot),
        ]
        with m.If(order.open):
            m.d.sync += [burst.eq(self.aw.payload), slot.eq(order.slot), busy.eq(1), filled.eq(0)]
            m.d.sync += left.eq(self.aw.payload.len + 1)
        with m.If(taken):
            m.d.sync += [left.eq(left - 1), filled.eq(filled + 1), busy.eq(left != 1)]
            with m.If(filled == BEATS - 1):
                m.d.sync += burst.addr.eq(following_address(burst, BEATS))
        return slot, ends, status

    def _send(self, m: Module, chunks: StreamFifo, beats: StreamFifo) -> None:
        """The head of each packet, then its beats."""
        inside, sent = Signal(), Signal(range(BEATS))
        chunk = chunks.o.payload
        last = Signal()
        m.d.comb += [
            last.eq(inside & (sent == chunk.head.len)),
            self.offer.eq(chunks.o.valid),
            chunks.o.ready.eq(self.take & last),
            beats.o.ready.eq(self.take & inside),
        ]
        payload = Mux(inside, Value.cast(beats.o.payload), Value.cast(chunk.head))
        kind = Mux(inside, Kind.DATA, Kind.WRITE)
        m.d.comb += self.flit.eq(make_flit(m, self.config, "packet", chunk.goal, kind, last, payload))
        with m.If(self.take):
            m.d.sync += [inside.eq(~last), sent.eq(Mux(inside, sent + 1, 0))]

    def _respond(self, m: Module, order: IdOrder, sent: Value, slot: Signal, ends: Signal, status: Signal) -> None:
        """Count the packets of each burst that are not answered; the worst answer of all is the burst's."""
        size, answer = self.config.slots, self.answer
        m.submodules.arbiter = arbiter = Arbiter(size)
        complete, chosen = Signal(size), Signal(range(size))
        worst = Array(Signal(Response, name=f"worst_{index}") for index in range(size))
        for index in range(size):
            waiting = Signal(range(BEATS + 1), name=f"waiting_{index}")  # 256 beats are 16 packets
            mine = slot == index
            answered = self.answered & (answer.slot == index)
            with m.If(order.open & (order.slot == index)):
                m.d.sync += [complete[index].eq(0), waiting.eq(0), worst[index].eq(Response.OKAY)]
            with m.Else():
                m.d.sync += waiting.eq(waiting + (sent & mine) - answered)
                with m.If(ends & mine):
                    m.d.sync += complete[index].eq(1)
                    with m.If(status != Response.OKAY):
                        m.d.sync += worst[index].eq(status)
                with m.If(answered):
                    m.d.sync += worst[index].eq(_larger(worst[index], answer.resp))
            ready = order.oldest[index] & complete[index] & (waiting == 0)
            m.d.comb += [arbiter.request[index].eq(ready), order.close[index].eq(arbiter.grant[index] & self.b.ready)]
            with m.If(arbiter.grant[index]):
                m.d.comb += chosen.eq(index)
        m.d.comb += [
            arbiter.tail.eq(Const(-1, size)),
            arbiter.enable.eq(self.b.ready),
            self.b.valid.eq(arbiter.grant.any()),
            self.b.payload.id.eq(Array(order.ids)[chosen]),
            self.b.payload.resp.eq(worst[chosen]),
        ]
