"""The dot product of two blocks: exact, as an integer."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw.numerics.formats import COARSE, FormatSet
from hw.numerics.pipeline import Pipeline, balanced_sum, normalise
from hw.numerics.scale import ApplyFactor, FactorProduct

__all__ = ["BlockDot", "DotUnit", "block_dot"]

_FAN_IN = 8
"""Terms that one pipeline stage adds up."""
_FP32_BIAS = 127
_SHALLOW = 32
"""Widest sum that is normalised in one cycle."""
_LOWEST = -1 << 10
"""Exponent of a zero sum: never the larger one."""


class BlockDot(wiring.Component):
    """Sum of the 32 products of two decoded blocks, exact.

    Latency: `latency` cycles of `enable` (3; 4 where elements have a shift), one block a cycle.

    Interface attributes
    --------------------
    a, b: decoded elements.
    enable: registers hold while it is low.
    sums: one sum, in units of the product of the two elements' least significant bits; in builds with
        halved blocks two, of lanes 0 to 15 and of lanes 16 to 31. Infinite elements count with their
        significand: where a flag below is set, the sums have no meaning.
    plus, minus: there is an infinite product of this sign (only if the build has infinities).
    invalid: there is a product of infinity and zero (only if the build has infinities).
    """

    def __init__(self, formats: FormatSet):
        self.formats = formats
        self.latency = 4 if formats.coarse_bits else 3
        self._width = formats.dot_bits + 1
        ports = {
            "a": In(formats.lanes),
            "b": In(formats.lanes),
            "enable": In(1, init=1),
            "sums": Out(data.ArrayLayout(signed(self._width), 2 if formats.halves else 1)),
        }
        if formats.infinities:
            ports |= {"plus": Out(1), "minus": Out(1), "invalid": Out(1)}
        super().__init__(ports)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        pipeline = Pipeline(m, self.enable)
        products = [
            pipeline.register(a.significand * b.significand, f"product_{index}")
            for index, (a, b) in enumerate(zip(self.a, self.b, strict=True))
        ]
        if self.formats.infinities:
            self._infinities(m, pipeline, products)
        terms = products
        if self.formats.coarse_bits:
            terms = []
            for index, (a, b) in enumerate(zip(self.a, self.b, strict=True)):
                coarse = pipeline.register(a.coarse + b.coarse, f"coarse_{index}")
                term = Signal(signed(self._width), name=f"term_{index}")
                m.d.comb += term.eq(products[index] << Cat(Const(0, COARSE.bit_length() - 1), coarse))
                terms.append(pipeline.register(term, f"aligned_{index}"))
        parts = [
            pipeline.register(self._clip(balanced_sum(terms[first : first + _FAN_IN])), f"part_{first}")
            for first in range(0, len(terms), _FAN_IN)
        ]
        share = len(parts) // len(self.sums)
        for index, port in enumerate(self.sums):
            group = parts[index * share : (index + 1) * share]
            m.d.comb += port.eq(pipeline.register(self._clip(balanced_sum(group)), f"sum_{index}"))
        return m

    def _clip(self, value: Value) -> Value:
        """Drop the bits above the width that is known to hold any sum."""
        return value[: self._width].as_signed() if len(value) > self._width else value

    def _infinities(self, m: Module, pipeline: Pipeline, products: list[Value]) -> None:
        infinite = Cat(
            pipeline.register(a.infinite | b.infinite, f"infinite_{index}")
            for index, (a, b) in enumerate(zip(self.a, self.b, strict=True))
        )
        zero = Cat(product == 0 for product in products)
        minus = Cat(product < 0 for product in products)
        for port, lanes in ((self.plus, ~minus & ~zero), (self.minus, minus), (self.invalid, zero)):
            flag = pipeline.register((infinite & lanes).any(), "flag", self.latency - 1)
            m.d.comb += port.eq(flag)


def block_dot(formats: FormatSet) -> wiring.Component:
    """The block dot of a dot unit: `BlockDot`, or the circuit that SERRANO_VARIANT names where it fits the formats."""
    from hw.variants import selected  # here, because it builds on this package

    variant = selected()
    return variant.block_dot(formats) if variant and variant.fits(formats) else BlockDot(formats)


class DotUnit(wiring.Component):
    """Two decoded blocks to a finished block sum, ready for `FusedAccumulate`.

    Latency: `latency` cycles of `enable`, one block a cycle, no feedback: `BlockDot.latency` + 2; with sums of more
    than 32 bits 1 more; with scales that are not powers of two 3 more, and with two of them in a block another 2.

    Parameters
    ----------
    formats: what the decoders of the build deliver.
    dot: the block dot inside, with the ports and the latency of `BlockDot`; `block_dot(formats)` where it is left out.

    Interface attributes
    --------------------
    a, b: decoded blocks (`Decode.operand`).
    enable: registers hold while it is low.
    sum: the block sum (`FormatSet.block_sum`).
    unsupported: a halved block met a block with an offset; the sum is then NaN (only if the build has both).
    """

    def __init__(self, formats: FormatSet, dot: wiring.Component | None = None):
        self.formats = formats
        self._dot = dot or block_dot(formats)
        self._scale_latency = (3 if formats.scaled else 0) + (2 if formats.factor_count == 2 else 0)
        self._deep = formats.sum_bits > _SHALLOW  # normalise in two cycles
        self.latency = self._dot.latency + self._scale_latency + 2 + self._deep
        self._refuses = formats.halves and formats.offsets
        ports = {
            "a": In(formats.operand),
            "b": In(formats.operand),
            "enable": In(1, init=1),
            "sum": Out(formats.block_sum),
        }
        if self._refuses:
            ports["unsupported"] = Out(1)
        super().__init__(ports)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.dot = dot = self._dot
        pipeline = Pipeline(m, self.enable)
        m.d.comb += [dot.a.eq(self.a.lanes), dot.b.eq(self.b.lanes), dot.enable.eq(self.enable)]

        special = Signal(data.StructLayout({"sign": 1, "infinite": 1, "nan": 1}))
        nan = self.a.nan | self.b.nan
        if self._refuses:
            refused = (self.a.halved & self.b.offset) | (self.a.offset & self.b.halved)
            m.d.comb += self.unsupported.eq(pipeline.register(refused, "refused", self.latency))
            nan |= refused
        m.d.comb += special.nan.eq(pipeline.register(nan, "nan", dot.latency))
        if self.formats.infinities:
            with m.If(dot.invalid | (dot.plus & dot.minus)):
                m.d.comb += special.nan.eq(1)
            m.d.comb += [special.infinite.eq(dot.plus | dot.minus), special.sign.eq(dot.minus)]
        exponent = pipeline.register(self.a.exponent + self.b.exponent, "exponent", dot.latency)
        total = Value.cast(dot.sums[0])
        if self.formats.scaled:
            total, exponent, special = self._scale(m, pipeline, exponent, special)
        m.d.comb += self.sum.eq(self._finish(m, pipeline, total, exponent, special))
        return m

    def _scale(
        self,
        m: Module,
        pipeline: Pipeline,
        exponent: Value,
        special: data.View,
    ) -> tuple[Value, Value, data.View]:
        """Multiply the sums by the scale factors: (sum, exponent, special), `_scale_latency` cycles later."""
        formats, dot = self.formats, self._dot
        sums, plain = self._terms(m, pipeline)
        factors = []
        for index in range(formats.factor_count):
            m.submodules[f"factor_{index}"] = product = FactorProduct(formats)
            m.d.comb += [
                product.a.eq(self.a.factors[index]),
                product.b.eq(self.b.factors[index]),
                product.enable.eq(self.enable),
            ]
            factors.append(pipeline.register(product.product, f"factor_{index}", dot.latency + 1 - product.latency))
        scaled = []
        for index, (value, factor) in enumerate(zip(sums, factors, strict=True)):
            m.submodules[f"apply_{index}"] = apply = ApplyFactor(formats.scaled_bits + 1, formats.product_bits)
            m.d.comb += [apply.value.eq(value), apply.factor.eq(factor.significand), apply.enable.eq(self.enable)]
            sign = pipeline.register(factor.sign, f"factor_sign_{index}", apply.latency)
            scaled.append(Mux(sign, -apply.product, apply.product))

        special = pipeline.register(
            self._factor_special(m, pipeline, special, factors), "special", self._scale_latency - 1
        )
        exponent = pipeline.register(exponent, "base", 1)
        unscaled = pipeline.register(sums[0], "unscaled", 2)
        shifts = [pipeline.register(factor.shift, f"shift_{index}", 2) for index, factor in enumerate(factors)]
        single = pipeline.register(self._single(pipeline), "single", 2)
        exponent = pipeline.register(exponent, "moved", 2) + Mux(single, shifts[0], 0)
        plain = pipeline.register(plain, "plain", 2)
        total = Signal(signed(formats.sum_bits + 1))
        if formats.factor_count == 1:
            m.d.comb += total.eq(Mux(plain, unscaled, scaled[0]))
            return total, exponent, special
        aligned = []
        for index, (value, shift) in enumerate(zip(scaled, shifts, strict=True)):
            term = Signal(signed(formats.sum_bits + 1), name=f"shifted_{index}")
            m.d.comb += term.eq(value << Mux(single, 0, shift))
            if index == 0:
                with m.If(plain):
                    m.d.comb += term.eq(unscaled)
            aligned.append(pipeline.register(term, f"aligned_{index}"))
        m.d.comb += total.eq(pipeline.register((aligned[0] + aligned[1])[: len(total)], "both"))
        return total, pipeline.register(exponent, "late", 2), special

    def _single(self, pipeline: Pipeline) -> Value:
        """One factor serves the whole block, at the time of the factors."""
        single = Const(1, 1)
        if self.formats.halves:
            single &= ~(self.a.halved | self.b.halved)
        if self.formats.offsets:
            single &= ~self.b.offset
        return pipeline.register(single, "one_factor", self._dot.latency + 1)

    def _terms(self, m: Module, pipeline: Pipeline) -> tuple[list[Value], Value]:
        """The sums that the factors multiply and whether there is nothing to multiply, a cycle after BlockDot."""
        formats, dot = self.formats, self._dot
        plain = pipeline.register(self.a.plain & self.b.plain, "power_of_two", dot.latency + 1)
        first = Value.cast(dot.sums[0])
        second = Const(0, 1)
        if formats.halves:
            halved = pipeline.register(self.a.halved | self.b.halved, "halved", dot.latency)
            second = Mux(halved, dot.sums[1], 0)
            first = Mux(halved, first, (dot.sums[0] + dot.sums[1])[: len(first)].as_signed())
        if formats.offsets:
            offset = pipeline.register(self.b.offset, "offset", dot.latency)
            second = Mux(offset, pipeline.register(self.a.total, "total", dot.latency), second)
        terms = [pipeline.register(first, "first")]
        if formats.factor_count == 2:
            terms.append(pipeline.register(second, "second"))
        return terms, plain

    def _factor_special(self, m: Module, pipeline: Pipeline, special: data.View, factors: list[data.View]) -> data.View:
        """Infinities under a scale factor: its sign turns them, a zero or an offset makes NaN of them."""
        special = pipeline.register(special, "unscaled_special")
        if not self.formats.infinities:
            return special
        changed = Signal(special.shape())
        zero = Const(0, 1)
        for factor in factors:
            zero |= factor.significand == 0
        if self.formats.offsets:
            zero |= pipeline.register(self.b.offset, "late_offset", self._dot.latency + 1)
        m.d.comb += [
            changed.eq(special),
            changed.nan.eq(special.nan | (special.infinite & zero)),
            changed.sign.eq(special.sign ^ factors[0].sign),
        ]
        return changed

    def _finish(self, m: Module, pipeline: Pipeline, total: Value, exponent: Value, special: data.View) -> data.View:
        """Absolute value, then normalisation: two cycles, three for a wide sum."""
        absolute = Signal(self.formats.block_sum)
        m.d.comb += [
            absolute.magnitude.eq(Mux(total < 0, -total, total)),
            absolute.exponent.eq(exponent + self.formats.sum_bits - 1 + _FP32_BIAS),
            absolute.sign.eq(Mux(special.infinite, special.sign, total < 0)),
            absolute.infinite.eq(special.infinite),
            absolute.nan.eq(special.nan),
        ]
        absolute = pipeline.register(absolute, "absolute")

        if self._deep:
            coarse = Signal(self.formats.block_sum)
            steps = range(3, (self.formats.sum_bits - 1).bit_length())
            shifted, count = normalise(m, absolute.magnitude, "coarse", steps)
            m.d.comb += [
                coarse.eq(absolute),
                coarse.magnitude.eq(shifted),
                coarse.exponent.eq(absolute.exponent - Cat(Const(0, 3), count)),
            ]
            absolute = pipeline.register(coarse, "coarse")
        finished = Signal(self.formats.block_sum)
        normal, count = normalise(m, absolute.magnitude, "normal", range(3) if self._deep else None)
        m.d.comb += [
            finished.eq(absolute),
            finished.magnitude.eq(normal),
            finished.exponent.eq(Mux(normal[-1], absolute.exponent - count, _LOWEST)),
        ]
        return pipeline.register(finished, "finished")
