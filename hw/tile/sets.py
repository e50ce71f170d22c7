"""The weight buffer: what the memory brings while the array has no work, whole sets for when it has."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.tile.isa import Block
from hw.tile.unpack import blocks_layout

__all__ = ["SetBuffer"]


class SetBuffer(wiring.Component):
    """A queue of operand sets: blocks come one or two a cycle, a set of `columns` blocks leaves in a cycle.

    A memory for each column: a block is written to its column's as it comes, all are read at one address. What was
    written in a cycle can be read from the next but one on.

    Parameters
    ----------
    columns: columns of the array.
    depth: sets that the memories hold, at least 2; `depth` - 1 of them whole, the last may be in the making.
    at_once: blocks that can come in a cycle, 1 or 2; one column takes one a cycle all the same.
    scale_bits: bits of a scale word that are kept.

    Interface attributes
    --------------------
    blocks: blocks in order of columns.
    sets: `columns` blocks, block c for column c.
    discard: sets are dropped instead of offered.
    taken: a set leaves, either way.
    """

    def __init__(self, columns: int, depth: int, at_once: int = 1, scale_bits: int = 32):
        self.columns, self.depth, self.at_once, self.scale_bits = columns, depth, at_once, scale_bits
        super().__init__(
            {
                "blocks": In(stream.Signature(blocks_layout(at_once))),
                "sets": Out(stream.Signature(data.ArrayLayout(Block, columns))),
                "discard": In(1),
                "taken": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        last = self.depth - 1
        produce, consume, whole = Signal(range(self.depth)), Signal(range(self.depth)), Signal(range(self.depth))
        here, pop, complete = Signal(), self.taken, Signal()
        behind, ahead = (Mux(pointer == last, 0, pointer + 1) for pointer in (produce, consume))
        m.d.comb += [self.sets.valid.eq(here & ~self.discard), pop.eq(here & (self.sets.ready | self.discard))]
        ports = []
        for column, block in enumerate(self.sets.payload):
            width = len(block.elements.as_value()) + self.scale_bits
            m.submodules[f"column_{column}"] = storage = memory.Memory(shape=width, depth=self.depth, init=[])
            ports.append(storage.write_port())
            read = storage.read_port()
            m.d.comb += [
                read.addr.eq(Mux(pop, ahead, consume)),
                read.en.eq(pop | ~here),
                self._kept(block).eq(read.data),
            ]
        gather = self._one_column if self.columns == 1 else self._columns
        gather(m, ports, whole != last, produce, behind, complete)
        m.d.sync += [whole.eq(whole + complete - pop), here.eq(whole != pop)]
        with m.If(complete):
            m.d.sync += produce.eq(behind)
        with m.If(pop):
            m.d.sync += consume.eq(ahead)
        return m

    def _kept(self, block: data.View) -> Value:
        return Cat(block.elements.as_value(), block.scale[: self.scale_bits])

    def _columns(
        self, m: Module, ports: list[memory.WritePort], room: Value, produce: Signal, behind: Value, complete: Signal
    ) -> None:
        """The second of two blocks goes into the next column, which may be the first of the set behind."""
        block, column, two = self.blocks.payload.block, Signal(range(self.columns)), Signal()
        taken, filled = self.blocks.valid & self.blocks.ready, column + 1 + two
        m.d.comb += [self.blocks.ready.eq(room), complete.eq(taken & (filled >= self.columns))]
        with m.If(taken):
            m.d.sync += column.eq(Mux(complete, filled - self.columns, filled))
        for index, port in enumerate(ports):
            m.d.comb += [
                port.addr.eq(produce),
                port.data.eq(self._kept(block[0])),
                port.en.eq(taken & (column == index)),
            ]
            if self.at_once == 2:
                with m.If(two & (column == (index - 1) % self.columns)):
                    m.d.comb += [port.data.eq(self._kept(block[1])), port.en.eq(taken)]
                    if index == 0:
                        m.d.comb += port.addr.eq(behind)
        if self.at_once == 2:
            m.d.comb += two.eq(self.blocks.payload.two)

    def _one_column(
        self, m: Module, ports: list[memory.WritePort], room: Value, produce: Signal, behind: Value, complete: Signal
    ) -> None:
        """Each block is a set: of two, the first goes while the second waits."""
        block, two, second = self.blocks.payload.block, Signal(), Signal()
        m.d.comb += [
            complete.eq(self.blocks.valid & room),
            self.blocks.ready.eq(room & (~two | second)),
            ports[0].en.eq(complete),
            ports[0].addr.eq(produce),
            ports[0].data.eq(self._kept(block[0])),
        ]
        with m.If(complete):
            m.d.sync += second.eq(two & ~second)
        if self.at_once == 2:
            m.d.comb += two.eq(self.blocks.payload.two)
            with m.If(second):
                m.d.comb += ports[0].data.eq(self._kept(block[1]))
