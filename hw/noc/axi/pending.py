"""What a target owes: its transactions under way, whose they are, and since when they wait."""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.axi import Response, read_beat_layout
from hw.noc.axi.config import BEATS, AxiNetworkConfig, answer_layout
from hw.noc.axi.order import IdOrder
from hw.noc.flit import endpoint_layout

__all__ = ["Pending", "reply_layout"]


def reply_layout(config: AxiNetworkConfig) -> data.StructLayout:
    """An answer and the endpoint that it goes to."""
    return data.StructLayout({"goal": endpoint_layout(config.mesh), "answer": answer_layout(config)})


class Pending(wiring.Component):
    """Finds the transaction of each beat that a target answers with, and gives up those that wait too long.

    A transaction without an answer for `timeout` cycles since it started, or since its last beat, is answered with
    SLVERR. What the target still sends for it is taken and dropped; until it has, the target is `hung`.

    Of a target that breaks AXI4's rules: a read ends at `last`, and at the latest when all of its beats are there;
    `last` too early ends it with SLVERR in place of the missing beats. An answer with an ID that nobody waits for is
    dropped; so are beats after the last, unless a later read of their ID waits, which then gets them for its own.

    Interface attributes
    --------------------
    open : In(1), start : In; free : Out(1)
        A transaction starts, only while `free`: `id` (the target's), `slot`, `beats` (of its answer, less one).
    beat : In(stream(read_beat_layout))
        From the target; an answer to a write is one beat with `last`.
    reply : Out(reply_layout), offer : Out(1), take : In(1)
        It may change until it is taken.
    hung : Out(1)
    """

    def __init__(self, config: AxiNetworkConfig):
        self.config = config
        width = config.target_id_width
        start = data.StructLayout({"id": width, "slot": config.slot_width, "beats": range(BEATS)})
        super().__init__(
            {
                "open": In(1),
                "start": In(start),
                "free": Out(1),
                "beat": In(stream.Signature(read_beat_layout(config.data_width, width))),
                "reply": Out(reply_layout(config)),
                "offer": Out(1),
                "take": In(1),
                "hung": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, size = self.config, self.config.pending
        m.submodules.order = order = IdOrder(size, config.target_id_width)
        slots = Array(Signal(config.slot_width, name=f"slot_{index}") for index in range(size))
        left = Array(Signal(range(BEATS), name=f"left_{index}") for index in range(size))
        given_up, overdue, matches = Signal(size), Signal(size), Signal(size)
        beat, answer = self.beat.payload, self.reply.answer
        late, done = Signal(), Signal()  # the beat is of a transaction that was given up; it ends its transaction
        found, chosen = Signal(range(size)), Signal(range(size))
        m.d.comb += [
            self.free.eq(order.free),
            order.open.eq(self.open),
            order.id.eq(self.start.id),
            matches.eq(order.oldest & Cat(identity == beat.id for identity in order.ids)),
            late.eq((matches & given_up).any()),
            done.eq(beat.last | (left[found] == 0)),
            self.hung.eq((order.active & given_up).any()),
        ]
        for index in reversed(range(size)):
            with m.If(matches[index]):
                m.d.comb += found.eq(index)
        m.d.comb += chosen.eq(found)
        for index in reversed(range(size)):
            with m.If(overdue[index]):
                m.d.comb += chosen.eq(index)
        expected, gives_up = Signal(), Signal()
        m.d.comb += [
            gives_up.eq(overdue.any()),
            expected.eq(matches.any() & ~late),
            self.offer.eq(gives_up | (self.beat.valid & expected)),
            self.beat.ready.eq(Mux(expected, self.take & ~gives_up, 1)),
            self.reply.goal.eq(Array(order.ids)[chosen][self.config.id_width :]),
            answer.slot.eq(slots[chosen]),
            answer.resp.eq(Mux(gives_up, Response.SLVERR, beat.resp)),
            answer.beat.eq(~gives_up),
            answer.done.eq(gives_up | done),
            answer.data.eq(beat.data),
        ]
        moves = Mux(self.beat.valid & self.beat.ready, matches, 0)
        for index in range(size):
            m.d.comb += order.close[index].eq(moves[index] & done)
            with m.If(self.open & (order.slot == index)):
                m.d.sync += [slots[index].eq(self.start.slot), left[index].eq(self.start.beats)]
            with m.Elif(moves[index]):
                m.d.sync += left[index].eq(left[index] - 1)
        given = Mux(self.take & gives_up, 1 << chosen, 0)
        self._wait(m, order, moves, given, given_up, overdue)
        return m

    def _wait(self, m: Module, order: IdOrder, moves: Value, given: Value, given_up: Signal, overdue: Signal) -> None:
        """Count cycles since each transaction started or got a beat (`moves`); note those given up now (`given`)."""
        limit = self.config.timeout
        for index in range(self.config.pending):
            timer = Signal(range(limit + 1), name=f"timer_{index}")
            m.d.comb += overdue[index].eq(order.active[index] & ~given_up[index] & (timer == limit))
            with m.If(self.open & (order.slot == index)):
                m.d.sync += [timer.eq(0), given_up[index].eq(0)]
            with m.Else():
                with m.If(moves[index]):
                    m.d.sync += timer.eq(0)
                with m.Elif(timer != limit):
                    m.d.sync += timer.eq(timer + 1)
                with m.If(given[index]):
                    m.d.sync += given_up[index].eq(1)
