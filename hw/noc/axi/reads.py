"""The reads of a manager: bursts to requests of up to 16 beats, and the answers back in the order of their IDs."""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.axi import Response, burst_layout, read_beat_layout
from hw.noc.arbiter import Arbiter
from hw.noc.axi.config import BEATS, AxiNetworkConfig, answer_layout, decode, head_layout, make_flit
from hw.noc.axi.order import IdOrder
from hw.noc.flit import Kind, flit_layout

__all__ = ["ManagerReads", "following_address"]


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
        """Offer the beats of the oldest slot of an ID, as they arrive."""
        size, slots = self.config.slots, _Slots(self.config.slots)
        m.submodules.arbiter = arbiter = Arbiter(size)
        chosen = Signal(range(size))
        stored = self._store(m, slots, chosen)
        for slot in range(size):
            there = slots.emitted[slot] != slots.arrived[slot]
            m.d.comb += [
                arbiter.request[slot].eq(order.oldest[slot] & (there | slots.over[slot])),
                arbiter.tail[slot].eq(slots.left[slot] == 1),
                order.close[slot].eq(arbiter.grant[slot] & self.r.ready & arbiter.tail[slot]),
            ]
            with m.If(arbiter.grant[slot]):
                m.d.comb += chosen.eq(slot)
            with m.If(arbiter.grant[slot] & self.r.ready):
                m.d.sync += slots.left[slot].eq(slots.left[slot] - 1)
                m.d.sync += slots.emitted[slot].eq(slots.emitted[slot] + there)
            with m.If(order.open & (order.slot == slot)):
                m.d.sync += slots.start(slot, beats, status, final)
        there = slots.emitted[chosen] != slots.arrived[chosen]
        m.d.comb += [
            arbiter.enable.eq(self.r.ready),
            self.r.valid.eq(arbiter.grant.any()),
            self.r.payload.id.eq(Array(order.ids)[chosen]),
            self.r.payload.data.eq(Mux(there, stored.data, 0)),
            self.r.payload.resp.eq(Mux(there, stored.resp, slots.missing[chosen])),
            self.r.payload.last.eq(slots.ends[chosen] & (slots.left[chosen] == 1)),
        ]

    def _store(self, m: Module, slots: _Slots, chosen: Signal) -> data.View:
        """Keep the beats that arrive, each in its slot. Returns the next one of slot `chosen`."""
        answer, size = self.answer, self.config.slots
        beat = data.StructLayout({"data": self.config.data_width, "resp": Response})
        m.submodules.store = store = memory.Memory(shape=beat, depth=size * BEATS, init=[])
        write, read = store.write_port(), store.read_port(domain="comb")
        arrived = slots.arrived[answer.slot]
        m.d.comb += [
            write.en.eq(self.answered & answer.beat & (arrived != BEATS)),
            write.addr.eq(Cat(arrived[:4], answer.slot)),
            write.data.data.eq(answer.data),
            write.data.resp.eq(answer.resp),
            read.addr.eq(Cat(slots.emitted[chosen][:4], chosen)),
        ]
        with m.If(write.en):
            m.d.sync += arrived.eq(arrived + 1)
        with m.If(self.answered & answer.done):
            m.d.sync += slots.over[answer.slot].eq(1)
            m.d.sync += slots.missing[answer.slot].eq(Mux(answer.beat, Response.SLVERR, answer.resp))
        return read.data


class _Slots:
    """Registers of the slots: beats that arrived, were given on, and are left; whether nothing more comes (`over`), and
    the response of what is then missing; whether the slot's last beat ends its burst."""

    def __init__(self, size: int):
        shapes = {"arrived": range(BEATS + 1), "emitted": range(BEATS + 1), "left": range(BEATS + 1), "over": 1,
                  "missing": Response, "ends": 1}  # fmt: skip
        self.arrived, self.emitted, self.left, self.over, self.missing, self.ends = (
            Array(Signal(shape, name=f"{name}_{slot}") for slot in range(size)) for name, shape in shapes.items()
        )

    def start(self, slot: int, beats: Value, status: Value, final: Value) -> list:
        """A request of `beats` beats; one that `status` refuses is over before it has begun."""
        return [
            self.arrived[slot].eq(0),
            self.emitted[slot].eq(0),
            self.left[slot].eq(beats),
            self.over[slot].eq(status != Response.OKAY),
            self.missing[slot].eq(status),
            self.ends[slot].eq(final),
        ]
