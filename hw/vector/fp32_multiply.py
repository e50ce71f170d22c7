"""FP32 multiply, four stages."""

from amaranth.hdl import Module, Mux, Signal, signed, unsigned
from amaranth.lib import data

from hw.numerics.pipeline import normalise
from hw.vector.float32 import BIAS, NAN, infinity, round_pack, unpack
from hw.vector.pipeline import FixedLatency

__all__ = ["Fp32Multiply", "Operands"]


class Operands(data.Struct):
    """Two FP32 values."""

    a: unsigned(32)
    b: unsigned(32)


class Fp32Multiply(FixedLatency):
    """a * b rounded to nearest, ties to even; subnormals in and out; NaN results are `NAN`. Latency 4.

    Golden function: `golden.fp32_ops.multiply`.
    """

    latency = 4

    def __init__(self) -> None:
        super().__init__(Operands, 32)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        a = unpack(m, self.operands.a, "a")
        b = unpack(m, self.operands.b, "b")
        sign = a.sign ^ b.sign
        nan = a.nan | b.nan | (a.infinite & b.zero) | (a.zero & b.infinite)
        infinite = a.infinite | b.infinite

        significands = Signal(data.StructLayout({"a": 24, "b": 24}))
        product = Signal(48)
        normal = Signal(48)
        # Per stage: sign, biased exponent of a product whose point stands after the top bit, exception and its bits.
        stages = [
            Signal(data.StructLayout({"sign": 1, "exponent": signed(10), "special": 1, "bits": 32}), name=f"stage{i}")
            for i in range(3)
        ]
        first, second, third = stages
        shifted, zeros = normalise(m, product, "product")
        rounded = round_pack(m, third.sign, third.exponent, normal)
        with m.If(self.enable):
            m.d.sync += [
                significands.a.eq(a.significand),
                significands.b.eq(b.significand),
                first.sign.eq(sign),
                first.exponent.eq(a.exponent + b.exponent - BIAS + 1),
                first.special.eq(nan | infinite),
                first.bits.eq(Mux(nan, NAN, infinity(sign))),
                product.eq(significands.a * significands.b),
                second.eq(first),
                normal.eq(shifted),
                third.eq(second),
                third.exponent.eq(Mux(product == 0, 0, second.exponent - zeros)),
                self.result.eq(Mux(third.special, third.bits, rounded)),
            ]
        return m
