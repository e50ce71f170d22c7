"""Gathers the weight blocks of one slot: one for each column of the array."""

from __future__ import annotations

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.tile.isa import Block

__all__ = ["WeightCollector"]


class WeightCollector(wiring.Component):
    """Every `columns` blocks become one operand set, in registers; the next set gathers while one is held.

    A set that is held for `passes` cycles costs max(`columns`, `passes`) cycles: holding and gathering overlap fully.

    Parameters
    ----------
    columns: columns of the array.

    Interface attributes
    --------------------
    blocks: blocks in order of columns.
    sets: `columns` blocks, block c for column c.
    """

    def __init__(self, columns: int):
        self.columns = columns
        super().__init__(
            {
                "blocks": In(stream.Signature(Block)),
                "sets": Out(stream.Signature(data.ArrayLayout(Block, columns))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        last = self.columns - 1
        gathered = Signal(data.ArrayLayout(Block, max(1, last)))
        count = Signal(range(self.columns))
        complete = count == last  # the block that is offered is the last of its set: it goes straight to the output
        vacant = ~self.sets.valid | self.sets.ready
        m.d.comb += self.blocks.ready.eq(~complete | vacant)
        with m.If(self.sets.ready):
            m.d.sync += self.sets.valid.eq(0)
        with m.If(self.blocks.valid & self.blocks.ready):
            with m.If(complete):
                m.d.sync += [self.sets.valid.eq(1), self.sets.payload[last].eq(self.blocks.payload), count.eq(0)]
                m.d.sync += [self.sets.payload[column].eq(gathered[column]) for column in range(last)]
            if last:
                with m.Else():
                    m.d.sync += [gathered[count].eq(self.blocks.payload), count.eq(count + 1)]
        return m
