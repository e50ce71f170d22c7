"""Gathers the weight blocks of one slot: one for each column of the array."""

from __future__ import annotations

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.tile.isa import Block
from hw.tile.unpack import blocks_layout

__all__ = ["WeightCollector"]


class WeightCollector(wiring.Component):
    """Every `columns` blocks become one operand set, in registers; the next set gathers while one is held.

    A set that is held for `passes` cycles costs max(ceil(`columns` / blocks a cycle), `passes`) cycles: holding and
    gathering overlap fully.

    Parameters
    ----------
    columns: columns of the array.
    at_once: blocks that can come in a cycle, 1 or 2; one column takes one a cycle all the same.

    Interface attributes
    --------------------
    blocks: blocks in order of columns.
    sets: `columns` blocks, block c for column c.
    """

    def __init__(self, columns: int, at_once: int = 1):
        self.columns, self.at_once = columns, at_once
        super().__init__(
            {
                "blocks": In(stream.Signature(blocks_layout(at_once))),
                "sets": Out(stream.Signature(data.ArrayLayout(Block, columns))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        block, two = self.blocks.payload.block, Signal()
        sets, vacant = self.sets, Signal()
        m.d.comb += vacant.eq(~sets.valid | sets.ready)
        with m.If(sets.ready):
            m.d.sync += sets.valid.eq(0)
        if self.at_once == 2:
            m.d.comb += two.eq(self.blocks.payload.two)
        if self.columns == 1:
            self._one_column(m, two, vacant)
            return m

        # What has come of the next set; with two at once the set can be complete and its follower begun.
        gathered = Signal(data.ArrayLayout(Block, self.columns - 1))
        count = Signal(range(self.columns))
        complete = (count == self.columns - 1) | (two & (count == self.columns - 2))
        over = two & (count == self.columns - 1)  # the second block opens the set behind
        m.d.comb += self.blocks.ready.eq(~complete | vacant)
        with m.If(self.blocks.valid & self.blocks.ready):
            m.d.sync += count.eq(count + 1 + two)
            with m.Switch(count):
                for column in range(self.columns - 1):
                    with m.Case(column):
                        m.d.sync += gathered[column].eq(block[0])
                        if self.at_once == 2 and column + 1 < self.columns - 1:
                            m.d.sync += gathered[column + 1].eq(block[1])
            with m.If(complete):
                m.d.sync += [sets.valid.eq(1), count.eq(over)]
                m.d.sync += [sets.payload[column].eq(gathered[column]) for column in range(self.columns - 1)]
                m.d.sync += sets.payload[self.columns - 1].eq(block[0])
                if self.at_once == 2:
                    with m.If(~over & two):
                        m.d.sync += sets.payload[self.columns - 2].eq(block[0])
                        m.d.sync += sets.payload[self.columns - 1].eq(block[1])
                    with m.If(over):
                        m.d.sync += gathered[0].eq(block[1])
        return m

    def _one_column(self, m: Module, two: Signal, vacant: Signal) -> None:
        """Each block is a set: of two, the first goes while the second waits."""
        second = Signal()
        block = self.blocks.payload.block
        m.d.comb += self.blocks.ready.eq(vacant & (~two | second))
        with m.If(self.blocks.valid & vacant):
            m.d.sync += [self.sets.valid.eq(1), self.sets.payload[0].eq(block[0]), second.eq(two & ~second)]
            if self.at_once == 2:
                with m.If(second):
                    m.d.sync += self.sets.payload[0].eq(block[1])
