"""The reads of a manager: bursts to requests of up to 16 beats, and the answers back in the order of their IDs."""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.axi import Response, burst_layout
from hw.noc.arbiter import Arbiter
from hw.noc.axi.config import BEATS, AxiNetworkConfig, answer_layout, decode, head_layout, make_flit
from hw.noc.axi.order import IdOrder
from hw.noc.flit import Kind, flit_layout

__all__ = ["ManagerReads", "following_address", "read_beat_layout"]


def read_beat_layout(data_width: int, id_width: int) -> data.StructLayout:
    """A beat on the R channel."""
    return data.StructLayout({"id": id_width, "data": data_width, "resp": Response, "last": 1})


def following_address(burst: data.View, beats: int) -> Value:
    """Address of the INCR beat `beats` after the first: those after an unaligned one are aligned."""
    size = (Const(1) << burst.size)[:8]
    return (burst.addr & ~(size - 1)) + (Const(beats) << burst.size)


class ManagerReads(wiring.Component):
    """Every request has a slot with places for all of its beats, so an answer never waits.

    Interface attributes
    --------------------
    ar : In, r : Out
        Streams of `burst_layout` and `read_beat_layout`.
    offer, take : Out(1), In(1); flit : Out(flit_layout)
        A request, a packet of one flit. It may change until it is taken.
    answered : In(1), answer : In(answer_layout)
    """

    def __init__(self, config: AxiNetworkConfig):
        self.config = config
        super().__init__(
            {
                "ar": In(stream.Signature(burst_layout(config.address_width, config.id_width))),
                "r": Out(stream.Signature(read_beat_layout(config.data_width, config.id_width))),
                "offer": Out(1),
                "take": In(1),
                "flit": Out(flit_layout(config.mesh)),
                "answered": In(1),
                "answer": In(answer_layout(config)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.order = order = IdOrder(self.config.slots, self.config.id_width)
        left, failed, final = self._request(m, order)
        self._respond(m, order, left, failed, final)
        return m

    def _request(self, m: Module, order: IdOrder) -> tuple[Signal, Signal, Signal]:
        """Split bursts. Returns what `order.slot` starts with: beats, status, whether it ends its burst."""
        config = self.config
        burst, busy, left = Signal(self.ar.payload.shape()), Signal(), Signal(range(257))
        beats, final, started = Signal(range(BEATS + 1)), Signal(), Signal()
        goal, status = decode(m, config, "read", burst)
        head = Signal(head_layout(config))
        m.d.comb += [
            self.ar.ready.eq(~busy),
            final.eq(left <= BEATS),
            beats.eq(Mux(final, left, BEATS)),
            self.offer.eq(busy & order.free & (status == Response.OKAY)),
            started.eq(busy & order.free & (self.take | (status != Response.OKAY))),
            order.open.eq(started),
            order.id.eq(burst.id),
            head.addr.eq(burst.addr),
            head.id.eq(burst.id),
            head.len.eq(beats - 1),
            head.size.eq(burst.size),
            head.burst.eq(burst.burst),
            head.slot.eq(order.slot),
        ]
        m.d.comb += self.flit.eq(make_flit(m, config, "request", goal, Kind.READ, Const(1), Value.cast(head)))
        with m.If(self.ar.valid & ~busy):
            m.d.sync += [burst.eq(self.ar.payload), left.eq(self.ar.payload.len + 1), busy.eq(1)]
        with m.If(started):
            m.d.sync += [left.eq(left - beats), busy.eq(~final), burst.addr.eq(following_address(burst, BEATS))]
        return beats, status, final

    def _respond(self, m: Module, order: IdOrder, beats: Signal, status: Signal, final: Signal) -> None:
        """Keep the beats of each slot; offer those of the oldest slot of an ID."""
        config, size, answer = self.config, self.config.slots, self.answer
        stored = data.StructLayout({"data": config.data_width, "resp": Response})
        m.submodules.store = store = memory.Memory(shape=stored, depth=size * BEATS, init=[])
        write, read = store.write_port(), store.read_port(domain="comb")
        m.submodules.arbiter = arbiter = Arbiter(size)
        counts = range(BEATS + 1)
        arrived, left, emitted = (
            Array(Signal(counts, name=f"{name}_{slot}") for slot in range(size))
            for name in ("arrived", "left", "emitted")
        )
        missing = Array(Signal(Response, name=f"missing_{slot}") for slot in range(size))  # status of what never comes
        ends = Array(Signal(name=f"ends_{slot}") for slot in range(size))
        over, chosen = Signal(size), Signal(range(size))
        room = arrived[answer.slot] != BEATS
        m.d.comb += [
            write.en.eq(self.answered & answer.beat & room),
            write.addr.eq(Cat(arrived[answer.slot][:4], answer.slot)),
            write.data.data.eq(answer.data),
            write.data.resp.eq(answer.resp),
        ]
        with m.If(write.en):
            m.d.sync += arrived[answer.slot].eq(arrived[answer.slot] + 1)
        with m.If(self.answered & answer.done):
            m.d.sync += over.bit_select(answer.slot, 1).eq(1)
            m.d.sync += missing[answer.slot].eq(Mux(answer.beat, Response.SLVERR, answer.resp))
        for slot in range(size):
            there = emitted[slot] != arrived[slot]
            m.d.comb += [
                arbiter.request[slot].eq(order.oldest[slot] & (there | over[slot])),
                arbiter.tail[slot].eq(left[slot] == 1),
                order.close[slot].eq(arbiter.grant[slot] & self.r.ready & arbiter.tail[slot]),
            ]
            with m.If(arbiter.grant[slot]):
                m.d.comb += chosen.eq(slot)
            with m.If(arbiter.grant[slot] & self.r.ready):
                m.d.sync += [left[slot].eq(left[slot] - 1), emitted[slot].eq(emitted[slot] + there)]
            with m.If(order.open & (order.slot == slot)):
                m.d.sync += [
                    arrived[slot].eq(0), emitted[slot].eq(0), left[slot].eq(beats), ends[slot].eq(final),
                    over[slot].eq(status != Response.OKAY), missing[slot].eq(status),
                ]  # fmt: skip
        there = emitted[chosen] != arrived[chosen]
        m.d.comb += [
            arbiter.enable.eq(self.r.ready),
            read.addr.eq(Cat(emitted[chosen][:4], chosen)),
            self.r.valid.eq(arbiter.grant.any()),
            self.r.payload.id.eq(Array(order.ids)[chosen]),
            self.r.payload.data.eq(Mux(there, read.data.data, 0)),
            self.r.payload.resp.eq(Mux(there, read.data.resp, missing[chosen])),
            self.r.payload.last.eq(ends[chosen] & (left[chosen] == 1)),
        ]
