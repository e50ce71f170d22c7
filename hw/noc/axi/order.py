"""Transactions under way, each in a slot, and which of them may go on under AXI4's rule of order within an ID."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["IdOrder"]


class IdOrder(wiring.Component):
    """`size` slots; each open one remembers the older open ones of its ID.

    Parameters
    ----------
    size, id_width : int

    Interface attributes
    --------------------
    open : In(1), id : In(id_width)
        A transaction starts; only while `free`.
    free : Out(1), slot : Out(range(size))
        There is a free slot, and which one the next transaction gets.
    close : In(size)
        Transactions that end in this cycle; only open ones.
    active, oldest : Out(size)
        Open slots; those of them without an older one of the same ID.
    ids : Out(id_width), one for each slot
    """

    def __init__(self, size: int, id_width: int):
        self.size = size
        super().__init__(
            {
                "open": In(1),
                "id": In(id_width),
                "free": Out(1),
                "slot": Out(range(size)),
                "close": In(size),
                "active": Out(size),
                "oldest": Out(size),
                "ids": Out(id_width).array(size),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for index in reversed(range(self.size)):
            with m.If(~self.active[index]):
                m.d.comb += [self.slot.eq(index), self.free.eq(1)]
        same = Cat(self.active[index] & (self.ids[index] == self.id) for index in range(self.size))
        m.d.sync += self.active.eq(self.active & ~self.close)
        for index in range(self.size):
            before = Signal(self.size, name=f"before_{index}")
            m.d.comb += self.oldest[index].eq(self.active[index] & ~before.any())
            m.d.sync += before.eq(before & ~self.close)
            with m.If(self.open & (self.slot == index)):
                m.d.sync += [self.active[index].eq(1), self.ids[index].eq(self.id), before.eq(same & ~self.close)]
        return m
