"""Streams that share a way."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.fifo import StreamFifo
from hw.tile.isa import WeightRange
from hw.tile.unpack import GRANULE

__all__ = ["RangeSharer", "arbitrate", "choose"]

_RANGES = 16


def choose(m: Module, first: Value, target: stream.Interface, one: stream.Interface, other: stream.Interface) -> None:
    """`target` gets what `one` offers while `first` is high, else what `other` offers."""
    m.d.comb += [
        target.payload.eq(Mux(first, one.payload, other.payload)),
        target.valid.eq(Mux(first, one.valid, other.valid)),
        one.ready.eq(target.ready & first),
        other.ready.eq(target.ready & ~first),
    ]


def arbitrate(m: Module, target: stream.Interface, sources: list[stream.Interface]) -> Value:
    """`target` gets what the first source that has something offers; what was offered and not taken stays. Returns
    the index of the source."""
    choice, held, chosen = Signal(range(len(sources))), Signal(range(len(sources))), Signal()
    for index, source in reversed(list(enumerate(sources))):
        with m.If(source.valid):
            m.d.comb += choice.eq(index)
    with m.If(chosen):
        m.d.comb += choice.eq(held)
    m.d.sync += [held.eq(choice), chosen.eq(target.valid & ~target.ready)]
    with m.Switch(choice):
        for index, source in enumerate(sources):
            with m.Case(index):
                m.d.comb += [
                    target.payload.eq(source.payload),
                    target.valid.eq(source.valid),
                    source.ready.eq(target.ready),
                ]
    return choice


class RangeSharer(wiring.Component):
    """Two readers of one memory: their ranges go out, and each gets the granules of its own.

    A reader's granules wait behind those of the other's ranges that were taken before, so neither may ask for what it
    cannot take until the other has got something.

    Interface attributes
    --------------------
    first, second: ranges; where both have one, the first's goes.
    ranges, granules: the memory. Up to 16 ranges are under way.
    first_granules, second_granules: what is in the ranges.
    """

    def __init__(self) -> None:
        range_, granule = stream.Signature(WeightRange), stream.Signature(GRANULE)
        super().__init__(
            {
                "first": In(range_),
                "second": In(range_),
                "ranges": Out(range_),
                "granules": In(granule),
                "first_granules": Out(granule),
                "second_granules": Out(granule),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        order = StreamFifo(
            data.StructLayout({"second": 1, "length": data.Layout.cast(WeightRange)["length"].shape}), _RANGES
        )
        m.submodules.order = order
        wanted = stream.Signature(WeightRange).create(path=("wanted",))
        second = arbitrate(m, wanted, [self.first, self.second])
        m.d.comb += [
            self.ranges.payload.eq(wanted.payload),
            self.ranges.valid.eq(wanted.valid & order.i.ready),
            wanted.ready.eq(self.ranges.ready & order.i.ready),
            order.i.payload.second.eq(second),
            order.i.payload.length.eq(wanted.payload.length),
            order.i.valid.eq(wanted.valid & self.ranges.ready),
        ]
        count, now, taken = Signal.like(wanted.payload.length), order.o.payload, Signal()
        for index, target in enumerate((self.first_granules, self.second_granules)):
            m.d.comb += [
                target.payload.eq(self.granules.payload),
                target.valid.eq(self.granules.valid & order.o.valid & (now.second == index)),
            ]
        m.d.comb += [
            self.granules.ready.eq(
                order.o.valid & Mux(now.second, self.second_granules.ready, self.first_granules.ready)
            ),
            taken.eq(self.granules.valid & self.granules.ready),
            order.o.ready.eq(taken & (count + 1 == now.length)),
        ]
        with m.If(taken):
            m.d.sync += count.eq(Mux(order.o.ready, 0, count + 1))
        return m
