"""A tile's counters."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw.tile.isa import COUNTERS, Counters

__all__ = ["CounterFile", "increments_layout"]

_MAXIMUM = (1 << 32) - 1


def increments_layout(largest: int) -> data.StructLayout:
    """What each counter grows by in this cycle; `block_dots` by at most `largest`, the others by one."""
    return data.StructLayout({name: range(largest + 1) if name == "block_dots" else 1 for name in COUNTERS})


class CounterFile(wiring.Component):
    """Counts while the tile runs; cleared at the start of a program. Counters saturate at 2**32-1.

    Parameters
    ----------
    largest: most block dots in a cycle.

    Interface attributes
    --------------------
    clear: a pulse, before counting.
    increments: see `increments_layout`.
    values: the counters.
    """

    def __init__(self, largest: int):
        super().__init__({"clear": In(1), "increments": In(increments_layout(largest)), "values": Out(Counters)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for name in COUNTERS:
            value: Value = self.values[name]
            total = Signal(33, name=f"{name}_next")
            m.d.comb += total.eq(value + self.increments[name])
            with m.If(self.clear):
                m.d.sync += value.eq(0)
            with m.Else():
                m.d.sync += value.eq(Mux(total[32], _MAXIMUM, total))
        return m
