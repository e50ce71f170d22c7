"""Scale factors that are not powers of two: their product, and the block's sums times it."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, signed, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from golden.formats_scale import FACTOR_BITS
from hw.numerics.formats import FormatSet
from hw.numerics.pipeline import Pipeline, normalise

__all__ = ["ApplyFactor", "FactorProduct"]


def product_layout(formats: FormatSet) -> data.StructLayout:
    """The product of two scale factors: (-1)**sign * significand * 2**shift."""
    return data.StructLayout(
        {
            "significand": unsigned(formats.product_bits),
            "shift": unsigned(formats.shift_bits + 2),
            "sign": unsigned(1),
        }
    )


def rounds(formats: FormatSet) -> bool:
    """Whether the product of two scales can have more bits than are kept."""
    return 2 * formats.factor_bits > FACTOR_BITS


class FactorProduct(wiring.Component):
    """Product of two scale factors, rounded to 24 significant bits (to nearest, ties to even).

    Latency: `FactorProduct.latency` cycles of `enable`.

    Interface attributes
    --------------------
    a, b: factors (`FormatSet.factor`).
    enable: registers hold while it is low.
    product: `product_layout`; the significand may be 2**24 after a carry.
    """

    latency = 3

    def __init__(self, formats: FormatSet):
        self.formats = formats
        super().__init__(
            {
                "a": In(formats.factor),
                "b": In(formats.factor),
                "enable": In(1, init=1),
                "product": Out(product_layout(formats)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        pipeline = Pipeline(m, self.enable)
        sign = pipeline.register(self.a.sign ^ self.b.sign, "sign", 3)
        shift = pipeline.register(self.a.shift + self.b.shift, "shift", 2)
        exact = pipeline.register(self.a.significand * self.b.significand, "exact")
        width = len(exact)
        m.d.comb += self.product.sign.eq(sign)
        if not rounds(self.formats):
            m.d.comb += [
                self.product.significand.eq(pipeline.register(exact, "kept", 2)),
                self.product.shift.eq(pipeline.register(shift, "moved")),
            ]
            return m
        _, zeros = normalise(m, exact, "leading")
        excess = Signal(range(width - FACTOR_BITS + 1))
        m.d.comb += excess.eq(Mux(zeros < width - FACTOR_BITS, width - FACTOR_BITS - zeros, 0))
        held = pipeline.register(exact, "held")
        excess = pipeline.register(excess, "excess")
        # One bit more than is kept (the half), below it the bits that only break a tie.
        shifted = Signal(width + 1)
        below = Signal(width)
        m.d.comb += [shifted.eq((held << 1) >> excess), below.eq(((1 << excess) - 1) >> 1)]
        round_up = shifted[0] & (shifted[1] | (held & below).any())
        m.d.comb += [
            self.product.significand.eq(pipeline.register((shifted >> 1)[:FACTOR_BITS] + round_up, "rounded")),
            self.product.shift.eq(pipeline.register(shift + excess, "moved")),
        ]
        return m


class ApplyFactor(wiring.Component):
    """A sum times a factor's significand, exact.

    Latency: `ApplyFactor.latency` cycles of `enable`.

    Interface attributes
    --------------------
    value: signed sum.
    factor: unsigned significand.
    enable: registers hold while it is low.
    product: signed.
    """

    latency = 2

    def __init__(self, value_bits: int, factor_bits: int):
        self._split = (factor_bits + 1) // 2
        super().__init__(
            {
                "value": In(signed(value_bits)),
                "factor": In(unsigned(factor_bits)),
                "enable": In(1, init=1),
                "product": Out(signed(value_bits + factor_bits)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        pipeline = Pipeline(m, self.enable)
        lower = pipeline.register(self.value * self.factor[: self._split], "lower")
        upper = pipeline.register(self.value * self.factor[self._split :], "upper")
        m.d.comb += self.product.eq(pipeline.register(lower + (upper << self._split), "both"))
        return m
