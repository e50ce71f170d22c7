"""The dot product of two blocks: exact, as an integer."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.numerics.formats import COARSE, FormatSet
from hw.numerics.pipeline import Pipeline, normalise

__all__ = ["BlockDot", "DotUnit"]

_FAN_IN = 8
"""Terms that one pipeline stage adds up."""
_FP32_BIAS = 127
_LOWEST = -1 << 10
"""Exponent of a zero sum: never the larger one."""


class BlockDot(wiring.Component):
    """Sum of the 32 products of two decoded blocks, exact.

    Latency: `latency` cycles of `enable` (3; 4 where elements have a shift), one block a cycle.

    Interface attributes
    --------------------
    a, b: decoded elements.
    enable: registers hold while it is low.
    sum: the sum in units of the product of the two elements' least significant bits. Infinite elements
        count with their significand: where a flag below is set, the sum has no meaning.
    plus, minus: there is an infinite product of this sign (only if the build has infinities).
    invalid: there is a product of infinity and zero (only if the build has infinities).
    """

    def __init__(self, formats: FormatSet):
        self.formats = formats
        self.latency = 4 if formats.coarse_bits else 3
        ports = {
            "a": In(formats.lanes),
            "b": In(formats.lanes),
            "enable": In(1, init=1),
            "sum": Out(signed(formats.sum_bits + 1)),
        }
        if formats.infinities:
            ports |= {"plus": Out(1), "minus": Out(1), "invalid": Out(1)}
        super().__init__(ports)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        pipeline = Pipeline(m, self.enable)
        products = [pipeline.register(a.significand * b.significand, f"product_{index}")
                    for index, (a, b) in enumerate(zip(self.a, self.b, strict=True))]
        if self.formats.infinities:
            self._infinities(m, pipeline, products)
        terms = products
        if self.formats.coarse_bits:
            terms = []
            for index, (a, b) in enumerate(zip(self.a, self.b, strict=True)):
                coarse = pipeline.register(a.coarse + b.coarse, f"coarse_{index}")
                term = Signal(signed(self.formats.sum_bits + 1), name=f"term_{index}")
                m.d.comb += term.eq(products[index] << Cat(*[0] * (COARSE.bit_length() - 1), coarse))
                terms.append(pipeline.register(term, f"aligned_{index}"))
        while len(terms) > 1:
            groups = [terms[first:first + _FAN_IN] for first in range(0, len(terms), _FAN_IN)]
            terms = [pipeline.register(self._clip(m, _tree(group)), f"sum_{len(groups)}_{index}")
                     for index, group in enumerate(groups)]
        m.d.comb += self.sum.eq(terms[0])
        return m

    def _clip(self, m: Module, value: Value) -> Value:
        """Drop the bits above the width that is known to hold any sum."""
        width = self.formats.sum_bits + 1
        return value[:width].as_signed() if len(value) > width else value

    def _infinities(self, m: Module, pipeline: Pipeline, products: list[Value]) -> None:
        infinite = Cat(pipeline.register(a.infinite | b.infinite, f"infinite_{index}")
                       for index, (a, b) in enumerate(zip(self.a, self.b, strict=True)))
        zero = Cat(product == 0 for product in products)
        minus = Cat(product < 0 for product in products)
        for port, lanes in ((self.plus, ~minus & ~zero), (self.minus, minus), (self.invalid, zero)):
            flag = pipeline.register((infinite & lanes).any(), "flag", self.latency - 1)
            m.d.comb += port.eq(flag)


def _tree(terms: list[Value]) -> Value:
    """Balanced sum."""
    while len(terms) > 1:
        terms = [left + right for left, right in zip(terms[::2], terms[1::2], strict=True)]
    return terms[0]


class DotUnit(wiring.Component):
    """Two decoded blocks to a finished block sum, ready for `FusedAccumulate`.

    Latency: `latency` cycles of `enable`, one block a cycle, no feedback.

    Interface attributes
    --------------------
    a, b: decoded blocks (`Decode.operand`).
    enable: registers hold while it is low.
    sum: the block sum (`FormatSet.block_sum`).
    """

    def __init__(self, formats: FormatSet):
        self.formats = formats
        self._dot = BlockDot(formats)
        self.latency = self._dot.latency + 2
        super().__init__({
            "a": In(formats.operand),
            "b": In(formats.operand),
            "enable": In(1, init=1),
            "sum": Out(formats.block_sum),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.dot = dot = self._dot
        pipeline = Pipeline(m, self.enable)
        m.d.comb += [dot.a.eq(self.a.lanes), dot.b.eq(self.b.lanes), dot.enable.eq(self.enable)]
        exponent = pipeline.register(self.a.exponent + self.b.exponent, "exponent", dot.latency)
        nan = pipeline.register(self.a.nan | self.b.nan, "nan", dot.latency)

        absolute = Signal(self.formats.block_sum)
        m.d.comb += [
            absolute.magnitude.eq(Mux(dot.sum < 0, -dot.sum, dot.sum)),
            absolute.exponent.eq(exponent + self.formats.sum_bits - 1 + _FP32_BIAS),
            absolute.sign.eq(dot.sum < 0),
            absolute.nan.eq(nan),
        ]
        if self.formats.infinities:
            m.d.comb += absolute.nan.eq(nan | dot.invalid | (dot.plus & dot.minus))
            with m.If(dot.plus | dot.minus):
                m.d.comb += [absolute.infinite.eq(1), absolute.sign.eq(dot.minus)]
        absolute = pipeline.register(absolute, "absolute")

        finished = Signal(self.formats.block_sum)
        normal, count = normalise(m, absolute.magnitude, "normal")
        m.d.comb += [
            finished.eq(absolute),
            finished.magnitude.eq(normal),
            finished.exponent.eq(Mux(normal[-1], absolute.exponent - count, _LOWEST)),
        ]
        m.d.comb += self.sum.eq(pipeline.register(finished, "finished"))
        return m
