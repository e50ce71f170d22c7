"""The network's arbiter: least recently served first, packets kept together, urgent requests before others."""

from __future__ import annotations

from collections.abc import Sequence

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["Arbiter"]


class Arbiter(wiring.Component):
    """Grants one of `size` requests in the same cycle: a matrix arbiter.

    The least recently served goes first. A winner becomes the last in line, but keeps the grant until its packet ends
    (`tail`) or it stops asking, so that flits of one packet follow each other wherever they can. Whoever asks and
    loses to the start of another's packet gains a place that nobody takes away: between two grants of its own it
    loses to each other request at most once, even if it asks only now and then (a round-robin pointer does not
    promise that where requests come and go with credits).

    Requests whose bit of `urgent` is set go before the others; after `limit` grants in a row that passed over a
    waiting ordinary request, one ordinary request goes.

    Parameters
    ----------
    size : int
        Number of requests, at least 1.
    urgent : sequence of bool
        Which requests are urgent (default: none).
    limit : int
        See above; 1 to 255.

    Interface attributes
    --------------------
    request, tail : In(size)
        Who asks; and whether what it would send ends its packet.
    enable : In(1)
        Low: the grant is not used in this cycle, and nothing changes.
    grant : Out(size)
        One-hot, combinational; zero without a request.
    """

    def __init__(self, size: int, urgent: Sequence[bool] = (), limit: int = 8):
        if size < 1:
            raise ValueError(f"size must be a positive integer, not {size!r}")
        if urgent and len(urgent) != size:
            raise ValueError(f"urgent must have {size} entries, not {len(urgent)}")
        if limit not in range(1, 256):
            raise ValueError(f"limit must be an integer from 1 to 255, not {limit!r}")
        self.size, self.limit = size, limit
        self.urgent = sum(1 << index for index, flag in enumerate(urgent) if flag)
        super().__init__({"request": In(size), "tail": In(size), "enable": In(1), "grant": Out(size)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        eligible = self._eligible(m)
        holder = Signal(self.size)  # who is inside a packet
        holds = Signal()
        m.d.comb += holds.eq((eligible & holder).any())
        for index in range(self.size):
            others = (1 << self.size) - 1 - (1 << index)
            yields = Signal(self.size, name=f"yields_{index}", init=(1 << index) - 1)  # to whom `index` gives way
            first = ~(eligible & yields).any()
            m.d.comb += self.grant[index].eq(eligible[index] & Mux(holds, holder[index], first))
            with m.If(self.enable & self.grant[index]):
                m.d.sync += yields.eq(others)
            with m.Elif(self.enable):
                m.d.sync += yields.eq(yields & ~self.grant)
        with m.If(self.enable & self.grant.any()):
            m.d.sync += holder.eq(self.grant & ~self.tail)
        return m

    def _eligible(self, m: Module) -> Value:
        if self.urgent in (0, (1 << self.size) - 1):
            return self.request
        eligible = Signal(self.size)
        urgent, ordinary = Signal(self.size), Signal(self.size)
        passed = Signal(range(self.limit + 1))
        m.d.comb += [urgent.eq(self.request & self.urgent), ordinary.eq(self.request & ~urgent)]
        turn = ~urgent.any() | (ordinary.any() & (passed == self.limit))
        m.d.comb += eligible.eq(Mux(turn, ordinary, urgent))
        with m.If(self.enable):
            with m.If(turn | ~ordinary.any()):
                m.d.sync += passed.eq(0)
            with m.Else():
                m.d.sync += passed.eq(passed + 1)
        return eligible
