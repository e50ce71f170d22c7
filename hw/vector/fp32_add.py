"""FP32 add, four stages."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import data

from hw.numerics.pipeline import normalise
from hw.vector.float32 import NAN, infinity, round_pack, shift_left, shift_right, unpack
from hw.vector.fp32_multiply import Operands
from hw.vector.pipeline import FixedLatency

__all__ = ["Fp32Add"]

_EXTRA = 3  # Guard, round and sticky bit below the significands.


class Fp32Add(FixedLatency):
    """a + b rounded to nearest, ties to even; subnormals in and out; NaN results are `NAN`. Latency 4.

    Golden function: `golden.fp32_ops.add`.
    """

    latency = 4

    def __init__(self) -> None:
        super().__init__(Operands, 32)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        a = unpack(m, self.operands.a, "a")
        b = unpack(m, self.operands.b, "b")
        nan = a.nan | b.nan | (a.infinite & b.infinite & (a.sign ^ b.sign))

        swap = Signal()
        m.d.comb += swap.eq(self.operands.b[:31] > self.operands.a[:31])
        large, small = (Signal(a.shape(), name=n) for n in ("large", "small"))
        m.d.comb += [large.eq(Mux(swap, b, a)), small.eq(Mux(swap, a, b))]

        carried = {"sign": 1, "exponent": signed(10), "special": 1, "bits": 32}
        first = Signal(
            data.StructLayout({**carried, "large": 24, "small": 24, "distance": 8, "subtract": 1, "zero_sign": 1})
        )
        second = Signal(data.StructLayout({**carried, "total": 25 + _EXTRA, "zero_sign": 1}))
        third = Signal(data.StructLayout({**carried, "normal": 25 + _EXTRA}))
        self._align(m, first, second)
        self._normalise(m, second, third)
        rounded = round_pack(m, third.sign, third.exponent, third.normal)
        with m.If(self.enable):
            m.d.sync += [
                first.sign.eq(large.sign),
                first.exponent.eq(large.exponent),
                first.special.eq(nan | a.infinite | b.infinite),
                first.bits.eq(Mux(nan, NAN, infinity(large.sign))),
                first.large.eq(large.significand),
                first.small.eq(small.significand),
                first.distance.eq(large.exponent - small.exponent),
                first.subtract.eq(a.sign ^ b.sign),
                first.zero_sign.eq(a.sign & b.sign),
                self.result.eq(Mux(third.special, third.bits, rounded)),
            ]
        return m

    def _align(self, m: Module, first: data.View, second: data.View) -> None:
        """Second stage: shift the smaller operand to the larger one's exponent, add or subtract."""
        aligned = Signal(24 + _EXTRA)
        m.d.comb += aligned.eq(shift_right(m, Cat(Const(0, _EXTRA), first.small), first.distance, sticky=True))
        wide = Cat(Const(0, _EXTRA), first.large)
        with m.If(self.enable):
            m.d.sync += second.total.eq(Mux(first.subtract, wide - aligned, wide + aligned))
            for name in ("sign", "exponent", "special", "bits", "zero_sign"):
                m.d.sync += getattr(second, name).eq(getattr(first, name))

    def _normalise(self, m: Module, second: data.View, third: data.View) -> None:
        """Third stage: bring the highest bit to the top, but not below the smallest exponent."""
        zeros = Signal(range(len(second.total) + 1))
        places = Signal(range(len(second.total) + 1))
        zero = second.total == 0
        # `total` has two bits before the point: no shift means an exponent one higher.
        m.d.comb += [
            zeros.eq(normalise(m, second.total, "total")[1]),
            places.eq(Mux(zeros > second.exponent, second.exponent, zeros)),
        ]
        with m.If(self.enable):
            m.d.sync += [
                third.normal.eq(shift_left(m, second.total, places)),
                third.exponent.eq(Mux(zero, 0, second.exponent + 1 - places)),
                third.sign.eq(Mux(zero, second.zero_sign, second.sign)),
                third.special.eq(second.special),
                third.bits.eq(second.bits),
            ]
