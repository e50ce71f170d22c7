"""Counters of a router's outputs."""

from __future__ import annotations

from amaranth.hdl import Module
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["OutputCounters", "counters_layout"]


def counters_layout() -> data.StructLayout:
    """What an output of a router has counted since reset; 32 bits each, saturating.

    `flits`: flits that left by it, each branch of a multicast one for itself; at a local output these are the flits
    ejected. `stalls`: cycles in which a flit wanted the output and none left, for want of a place at the other end.
    """
    return data.StructLayout({"flits": 32, "stalls": 32})


class OutputCounters(wiring.Component):
    """Counters of one output.

    Interface attributes
    --------------------
    sent, blocked : In(1)
        A flit leaves in this cycle; one wants to, and none does.
    counters : Out(counters_layout())
        One cycle later.
    """

    def __init__(self) -> None:
        super().__init__({"sent": In(1), "blocked": In(1), "counters": Out(counters_layout())})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for counter, step in ((self.counters.flits, self.sent), (self.counters.stalls, self.blocked)):
            m.d.sync += counter.eq(counter + (step & ~counter.all()))
        return m
