"""The order of attention's work as a harness with an output `bad`, for `scripts.formal.engine.prove`."""

from __future__ import annotations

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.vector import leaves
from scripts.formal.engine import require

__all__ = ["LeavesInOrder"]

LEAF_BITS = 2
"""Bits of the leaf numbers that are free."""


class LeavesInOrder(wiring.Component):
    """Keys at most two leaves ahead of values, values of the same leaves in the same order, numbers in step.

    Commands come at any time with any leaves, and parts are taken at any time.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "first": In(LEAF_BITS), "last": In(LEAF_BITS), "offered": In(1), "taken": In(1), "bad": Out(1),
            }
        )  # fmt: skip

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.dut = dut = leaves.LeafOrder()
        command, item = dut.commands.payload, dut.o.payload
        m.d.comb += [
            command.first_leaf.eq(self.first),
            command.last_leaf.eq(self.last),
            dut.commands.valid.eq(self.offered),
            dut.o.ready.eq(self.taken),
        ]
        what = Signal(LEAF_BITS + 4)
        m.d.comb += what.eq((item.leaf << 4) | (item.last << 3) | item.sequence)
        waiting = [Signal(LEAF_BITS + 4, name=f"waiting_{i}") for i in range(2)]
        count, next_key, holds = Signal(2), Signal(3), Signal(init=1)
        taken = dut.o.valid & self.taken
        with m.If(taken & (item.part == leaves.Part.KEYS)):
            m.d.comb += holds.eq((count < 2) & (item.sequence == next_key) & (item.leaf < 1 << LEAF_BITS))
            m.d.sync += [count.eq(count + 1), next_key.eq(next_key + 1)]
            with m.If(count == 0):
                m.d.sync += waiting[0].eq(what)
            with m.Else():
                m.d.sync += waiting[1].eq(what)
        with m.Elif(taken):
            m.d.comb += holds.eq((count != 0) & (what == waiting[0]))
            m.d.sync += [count.eq(count - 1), waiting[0].eq(waiting[1])]
        require(m, self.bad, holds, (self.first <= self.last) | ~self.offered)
        return m
