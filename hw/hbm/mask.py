"""Operations on masks, one bit a bank or a queue slot.

Bank state is kept as masks and bit planes instead of arrays of counters: all banks count in a handful of word
operations, in the simulator as well as in gates.
"""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["MaskTimer", "lowest", "one_hot", "select"]


def lowest(mask: Value) -> Value:
    """The lowest set bit of `mask`, alone."""
    return (mask & (~mask + 1))[: len(mask)]


def one_hot(index: Value, width: int) -> Value:
    """Decode `index`, as a product of the decodes of its halves."""
    if len(index) == 0:
        return Cat(index == 0)
    masks: list[Value] = []
    for bit in index:
        high, low = [bit & m for m in masks] or [bit], [~bit & m for m in masks] or [~bit]
        masks = low + high
    return Cat(*masks[:width])


def select(condition: Value, mask: Value) -> Value:
    """`mask` where the one-bit `condition` holds, else zero."""
    return mask & condition.replicate(len(mask))


class MaskTimer(wiring.Component):
    """A count-down for every bit of a mask.

    A bit of `start` at one clock makes the same bit of `busy` high in the `cycles - 1` clocks that follow, so that
    what waits for ~busy happens at least `cycles` clocks after the start. Starting again extends.

    Parameters
    ----------
    width : int
        Bits of the mask.
    cycles : int
        The distance to keep.
    """

    def __init__(self, width: int, cycles: int):
        self._width = width
        self._cycles = cycles
        super().__init__({"start": In(width), "busy": Out(width)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        load = self._cycles - 1
        if load < 1:
            return m
        planes = [Signal(self._width, name=f"plane{k}") for k in range(load.bit_length())]
        running = planes[0]
        for plane in planes[1:]:
            running = running | plane
        busy = Signal(self._width)
        m.d.comb += [busy.eq(running), self.busy.eq(busy)]
        borrow = busy
        for k, plane in enumerate(planes):
            counted = plane ^ borrow
            borrow = borrow & ~plane
            m.d.sync += plane.eq(Mux(load >> k & 1, counted | self.start, counted & ~self.start))
        return m
