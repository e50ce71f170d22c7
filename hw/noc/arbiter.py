"""The network's arbiter: least recently served first, packets kept together, urgent requests before others."""

from __future__ import annotations

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

    Requests whose bit of `urgent` is set go before the others (but do not interrupt a packet); after `limit` packets
    in a row that were started past a waiting ordinary request, an ordinary one goes.

    Parameters
    ----------
    size : int
        Number of requests, at least 1.
    limit : int
        See above; 1 to 255.

    Interface attributes
    --------------------
    request, tail, urgent : In(size)
        Who asks; whether what it would send ends its packet; whether it is urgent.
    enable : In(1)
        Low: the grant is not used in this cycle, and nothing changes.
    grant : Out(size)
        One-hot, combinational; zero without a request.
    """

    def __init__(self, size: int, limit: int = 8):
        if size < 1:
            raise ValueError(f"size must be a positive integer, not {size!r}")
        if limit not in range(1, 256):
            raise ValueError(f"limit must be an integer from 1 to 255, not {limit!r}")
        self.size, self.limit = size, limit
        ports = {"request": In(size), "tail": In(size), "urgent": In(size), "enable": In(1), "grant": Out(size)}
        super().__init__(ports)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        holder = Signal(self.size)  # who is inside a packet
        holds = Signal()
        m.d.comb += holds.eq((self.request & holder).any())
        eligible = self._eligible(m, self.enable & ~holds)
        for index in range(self.size):
            others = (1 << self.size) - 1 - (1 << index)
            yields = Signal(self.size, name=f"yields_{index}", init=(1 << index) - 1)  # to whom `index` gives way
            first = eligible[index] & ~(eligible & yields).any()
            m.d.comb += self.grant[index].eq(Mux(holds, self.request[index] & holder[index], first))
            with m.If(self.enable & self.grant[index]):
                m.d.sync += yields.eq(others)
            with m.Elif(self.enable):
                m.d.sync += yields.eq(yields & ~self.grant)
        with m.If(self.enable & self.grant.any()):
            m.d.sync += holder.eq(self.grant & ~self.tail)
        return m

    def _eligible(self, m: Module, start: Value) -> Value:
        """Requests of the rank whose turn it is; `start`: a packet is started now."""
        eligible = Signal(self.size)
        urgent, ordinary = Signal(self.size), Signal(self.size)
        passed = Signal(range(self.limit + 1))
        m.d.comb += [urgent.eq(self.request & self.urgent), ordinary.eq(self.request & ~self.urgent)]
        turn = ~urgent.any() | (ordinary.any() & (passed == self.limit))
        m.d.comb += eligible.eq(Mux(turn, ordinary, urgent))
        with m.If(start):
            with m.If(turn | ~ordinary.any()):
                m.d.sync += passed.eq(0)
            with m.Else():
                m.d.sync += passed.eq(passed + 1)
        return eligible
