"""FP32 accumulator plus block sum, rounded once."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from golden.formats import FP32
from hw.numerics.formats import FormatSet
from hw.numerics.pipeline import Pipeline, normalise, shift_right_sticky

__all__ = ["FusedAccumulate"]


class FusedAccumulate(wiring.Component):
    """accumulator + sum as one exact sum with one round to nearest even.

    Latency: `FusedAccumulate.latency` cycles of `enable`, one operation a cycle. A result may be the
    accumulator of the operation that starts `latency` cycles later, at the earliest.

    The operand of larger exponent stays, the other is shifted right by the difference of the exponents into a frame
    with three more bits, the last of which is sticky. That is exact enough: bits are lost only when the
    exponents differ by two or more, and then at most one leading bit of the difference cancels.

    Parameters
    ----------
    formats: the formats of the build, whose block sums it takes.
    fraction_bits, exponent_bits: of the accumulator; other than FP32's are for proofs at reduced width, with the
        exponents of `sum` biased as the accumulator's.

    Interface attributes
    --------------------
    accumulator: FP32, subnormals, infinities and NaN included.
    sum: a block sum (`FormatSet.block_sum`).
    enable: registers hold while it is low.
    result: FP32. Overflow gives infinity, NaN is 0x7FC00000, an exact zero is +0.
    """

    latency = 4

    def __init__(
        self, formats: FormatSet, fraction_bits: int = FP32.mantissa_bits, exponent_bits: int = FP32.exponent_bits
    ):
        self.formats = formats
        self._fraction = fraction_bits
        self._exponent = exponent_bits
        self._infinity = (1 << exponent_bits) - 1
        self._frame = max(formats.sum_bits, fraction_bits + 1) + 3
        width = 1 + exponent_bits + fraction_bits
        super().__init__(
            {
                "accumulator": In(width),
                "sum": In(formats.block_sum),
                "enable": In(1, init=1),
                "result": Out(width),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        pipeline = Pipeline(m, self.enable)
        aligned = pipeline.register(self._align(m), "aligned")
        added = pipeline.register(self._add(m, aligned), "added")
        normal = pipeline.register(self._normalise(m, added), "normal")
        m.d.comb += self.result.eq(pipeline.register(self._round(m, normal), "rounded"))
        return m

    def _layout(self, **members) -> data.StructLayout:
        """What every stage carries: the biased exponent of the frame's top bit, the sign, and special results."""
        return data.StructLayout(members | {"exponent": signed(12), "sign": 1, "infinite": 1, "nan": 1})

    def _align(self, m: Module) -> data.View:
        sign, field = self.accumulator[-1], self.accumulator[self._fraction : -1]
        fraction = self.accumulator[: self._fraction]
        special = field == self._infinity
        normal = field.any()
        exponent = Cat(field[0] | ~normal, field[1:])  # a subnormal has the smallest normal's exponent
        # Both significands with their leading bit at the top of the frame.
        held = Signal(self._frame)
        added = Signal(self._frame)
        forward = Signal(signed(12))
        backward = Signal(signed(12))
        m.d.comb += [
            held.eq(Cat(fraction, normal) << (self._frame - self._fraction - 1)),
            added.eq(self.sum.magnitude << (self._frame - self.formats.sum_bits)),
            forward.eq(self.sum.exponent - exponent),
            backward.eq(exponent - self.sum.exponent),
        ]
        swap = backward < 0  # the sum has the larger exponent
        aligned = Signal(self._layout(large=unsigned(self._frame), small=unsigned(self._frame), subtract=1))
        clash = special & self.sum.infinite & (sign ^ self.sum.sign)
        m.d.comb += [
            aligned.large.eq(Mux(swap, added, held)),
            aligned.small.eq(shift_right_sticky(m, Mux(swap, held, added), Mux(swap, forward, backward)[:-1], "small")),
            aligned.subtract.eq(sign ^ self.sum.sign),
            aligned.exponent.eq(Mux(swap, self.sum.exponent, exponent)),
            aligned.sign.eq(Mux(Mux(special | self.sum.infinite, self.sum.infinite, swap), self.sum.sign, sign)),
            aligned.infinite.eq(special | self.sum.infinite),
            aligned.nan.eq((special & fraction.any()) | self.sum.nan | clash),
        ]
        return aligned

    def _add(self, m: Module, aligned: data.View) -> data.View:
        added = Signal(self._layout(total=unsigned(self._frame + 1), floor=unsigned(self._frame + 1)))
        # "Large" has the larger exponent; at equal exponents, or as a subnormal, it can be the smaller number.
        difference = Signal(signed(self._frame + 1))
        negative = aligned.subtract & (difference < 0)
        m.d.comb += difference.eq(aligned.large - aligned.small)
        m.d.comb += added.total.eq(aligned.large + aligned.small)
        with m.If(aligned.subtract):
            m.d.comb += added.total.eq(Mux(difference < 0, aligned.small - aligned.large, difference))
        # A one where the smallest normal exponent has its leading bit: normalisation stops there.
        reach = Signal(11)
        m.d.comb += reach.eq(aligned.exponent)
        m.d.comb += [
            added.floor.eq((1 << self._frame) >> reach),
            added.exponent.eq(aligned.exponent + 1),
            added.sign.eq(aligned.sign ^ (negative & ~aligned.infinite)),
            added.infinite.eq(aligned.infinite),
            added.nan.eq(aligned.nan),
        ]
        return added

    def _normalise(self, m: Module, added: data.View) -> data.View:
        _, count = normalise(m, added.total | added.floor, "leading")
        normal = Signal(self._layout(total=unsigned(self._frame + 1), count=unsigned(len(count))))
        m.d.comb += [
            normal.total.eq(added.total << count),
            normal.count.eq(count),
            normal.exponent.eq(added.exponent),
            normal.sign.eq(added.sign & (added.infinite | added.total.any())),
            normal.infinite.eq(added.infinite),
            normal.nan.eq(added.nan),
        ]
        return normal

    def _round(self, m: Module, normal: data.View) -> Signal:
        bits = self._fraction
        kept = normal.total[-bits - 1 :]
        half, rest = normal.total[-bits - 2], normal.total[: -bits - 2]
        fraction = Signal(bits + 1)
        m.d.comb += fraction.eq(kept[:-1] + (half & (rest.any() | kept[0])))
        # Both exponents are made beside the rounding, whose carry only chooses.
        fields = [Signal(12, name=f"field_{carry}") for carry in range(2)]
        for carry, field in enumerate(fields):
            m.d.comb += field.eq(Mux(kept[-1], normal.exponent + carry - normal.count, carry))
        carry = fraction[-1]
        overflow = Mux(carry, fields[1] >= self._infinity, fields[0] >= self._infinity)

        result = Signal(self.result.shape())
        exponent = Mux(carry, fields[1], fields[0])[: self._exponent]
        m.d.comb += result.eq(Cat(fraction[:-1], exponent, normal.sign))
        with m.If(normal.infinite | overflow):
            m.d.comb += result.eq(Cat(Const(self._infinity << bits, bits + self._exponent), normal.sign))
        with m.If(normal.nan):
            m.d.comb += result.eq((2 * self._infinity + 1) << (bits - 1))
        return result
