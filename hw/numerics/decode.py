"""Codes and a scale to a decoded block: one `Decode` serves a whole row or column of an array."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from golden.formats import E8M0_BIAS, E8M0_NAN, Element
from hw.numerics.formats import BLOCK, COARSE, ElementFormat, FormatSet
from hw.numerics.pipeline import Pipeline

__all__ = ["Decode"]


class Decode(wiring.Component):
    """Decode a block of 32 codes and its scale.

    Latency: `Decode.latency` cycles of `enable`, one block a cycle.

    Parameters
    ----------
    formats: the formats of the build.

    Interface attributes
    --------------------
    codes: 32 lanes of 8 bits; a narrower code stands in the low bits, the rest is ignored.
    scale: E8M0 scale of the block; 0xFF makes the block NaN.
    format: the element format of the block.
    enable: registers hold while it is low.
    operand: the decoded block.
    unsupported: the block's `format` is not in the build; `operand.nan` is then set, so that no result
        passes for a good one.
    """

    latency = 1

    def __init__(self, formats: FormatSet):
        self.formats = formats
        super().__init__({
            "codes": In(data.ArrayLayout(8, BLOCK)),
            "scale": In(8),
            "format": In(ElementFormat),
            "enable": In(1, init=1),
            "operand": Out(formats.operand),
            "unsupported": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        operand = Signal(self.formats.operand)
        unsupported = Signal()
        lane_nan = Signal(BLOCK)
        lsb = Signal(range(-32, 1))
        with m.Switch(self.format):
            for format in self.formats.formats:
                with m.Case(ElementFormat[format.name]):
                    m.d.comb += lsb.eq(format.element.lsb)
                    for index in range(BLOCK):
                        nan = self._lane(m, format.element, self.codes[index], operand.lanes[index])
                        m.d.comb += lane_nan[index].eq(nan)
            with m.Default():
                m.d.comb += unsupported.eq(1)
        m.d.comb += [
            operand.exponent.eq(self.scale + lsb - E8M0_BIAS),
            operand.nan.eq(unsupported | lane_nan.any() | (self.scale == E8M0_NAN)),
        ]
        pipeline = Pipeline(m, self.enable)
        m.d.comb += [
            self.operand.eq(pipeline.register(operand, "operand")),
            self.unsupported.eq(pipeline.register(unsupported, "unsupported")),
        ]
        return m

    def _lane(self, m: Module, element: Element, code: Value, lane: data.View) -> Value:
        """Drive `lane` from a code of `element`; returns whether the code is a NaN."""
        code = code[:element.bits]
        if element.is_integer:
            m.d.comb += lane.significand.eq(code.as_signed())
            return Const(0, 1)
        magnitude = code[:-1]
        fraction, field = magnitude[:element.mantissa_bits], magnitude[element.mantissa_bits:]
        normal = field.any()
        shift = (field - normal)[:len(field)]
        fine = shift[:2] if self.formats.coarse(element) else shift
        significand = Cat(fraction, normal) << fine
        m.d.comb += lane.significand.eq(Mux(code[-1], -significand, significand))
        if self.formats.coarse(element):
            m.d.comb += lane.coarse.eq(shift >> COARSE.bit_length() - 1)
        special = magnitude > element.max_code
        if not element.has_infinity:
            return special
        infinite = magnitude == element.max_code + 1
        m.d.comb += lane.infinite.eq(infinite)
        return special & ~infinite
