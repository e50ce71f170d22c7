"""Top-k of a stream: the router's choice of experts."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.vector.float32 import is_nan, order

__all__ = ["Candidate", "Chosen", "TopK"]

INDEX_BITS = 16


class Candidate(data.Struct):
    """A value to choose from. One that is not `allowed` counts its index but is never chosen."""

    value: unsigned(32)
    allowed: unsigned(1)
    last: unsigned(1)


class Chosen(data.Struct):
    """A chosen value and its place in the input. `missing`: fewer than k were allowed, and this one is none of them."""

    value: unsigned(32)
    index: unsigned(INDEX_BITS)
    missing: unsigned(1)
    last: unsigned(1)


class TopK(wiring.Component):
    """The `k` largest of each row of the input, largest first; of equal values the earlier first.

    An insertion register of `k` places: a value every cycle, then k results, one a cycle. NaN is larger than
    everything. Golden function: `golden.topk.top_k`, which refuses what gives `missing` here.

    Parameters
    ----------
    k: most places, 1 to 32.

    Interface attributes
    --------------------
    count: results a row, 1 to `k`; stable while a row is under way.
    i: values; `last` ends a row, of at most 65536.
    o: results; `last` ends the row.
    """

    def __init__(self, k: int):
        if not isinstance(k, int) or not 1 <= k <= 32:
            raise ValueError(f"k must be an integer from 1 to 32, not {k!r}")
        self.k = k
        super().__init__(
            {
                "count": In(range(k + 1)),
                "i": In(stream.Signature(Candidate)),
                "o": Out(stream.Signature(Chosen)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        place = data.StructLayout({"key": 33, "value": 32, "index": INDEX_BITS})
        places = [Signal(place, name=f"place_{i}") for i in range(self.k)]
        index, sending = Signal(INDEX_BITS), Signal()
        remaining = Signal(range(self.k + 1))

        new = Signal(place)
        candidate = self.i.payload
        # Bit 32 of a key says that the place is taken.
        key = Mux(is_nan(candidate.value), Const(0xFFFFFFFF, 32), order(candidate.value))
        m.d.comb += [
            new.key.eq(Mux(candidate.allowed, Cat(key, Const(1, 1)), 0)),
            new.value.eq(candidate.value),
            new.index.eq(index),
            self.i.ready.eq(~sending),
        ]
        beats = [Signal(name=f"beats_{i}") for i in range(self.k)]  # the new value comes before place i
        m.d.comb += [beats[i].eq(new.key > places[i].key) for i in range(self.k)]
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += index.eq(index + 1)
            for i in range(self.k):
                with m.If(beats[i]):
                    m.d.sync += places[i].eq(new if i == 0 else Mux(beats[i - 1], places[i - 1], new))
            with m.If(candidate.last):
                m.d.sync += [sending.eq(1), index.eq(0), remaining.eq(self.count)]

        first = places[0]
        m.d.comb += [
            self.o.valid.eq(sending),
            self.o.payload.value.eq(first.value),
            self.o.payload.index.eq(first.index),
            self.o.payload.missing.eq(~first.key[32]),
            self.o.payload.last.eq(remaining == 1),
        ]
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += remaining.eq(remaining - 1)
            m.d.sync += [places[i].eq(places[i + 1]) for i in range(self.k - 1)]
            m.d.sync += places[-1].eq(0)
            with m.If(remaining == 1):
                m.d.sync += [sending.eq(0), *(p.eq(0) for p in places)]
        return m
