"""Codes and a scale word to a decoded block: one `Decode` serves a whole row or column of an array."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from golden.formats import BF16, E4M3_ELEMENT, E8M0_BIAS, E8M0_NAN, FP16, FP32, Element, Format, ScaleType
from hw.emit import once
from hw.numerics.formats import BLOCK, COARSE, ElementFormat, FormatSet
from hw.numerics.pipeline import Pipeline, balanced_sum

__all__ = ["Decode", "LaneDecode"]


class LaneDecode(wiring.Component):
    """Decode one code, without registers.

    Interface attributes
    --------------------
    code: the code in the low bits.
    element: index into `FormatSet.elements`.
    zero_point: what is taken off an unsigned code (only if the build has zero points).
    lane: the decoded element.
    nan: the code is a NaN.
    """

    def __init__(self, formats: FormatSet):
        self.formats = formats
        ports = {
            "code": In(8),
            "element": In(range(max(len(formats.elements), 2))),
            "lane": Out(formats.lane),
            "nan": Out(1),
        }
        if formats.zeros:
            ports["zero_point"] = In(5)
        super().__init__(ports)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        with m.Switch(self.element):
            for index, element in enumerate(self.formats.elements):
                with m.Case(index):
                    if element.is_integer:
                        self._integer(m, element)
                    else:
                        self._floating(m, element)
        return m

    def _integer(self, m: Module, element: Element) -> None:
        code = self.code[: element.bits]
        value = code.as_signed() if element.signed else code
        if self.formats.zeros and not element.signed:
            value = value - self.zero_point
        m.d.comb += self.lane.significand.eq(value)

    def _floating(self, m: Module, element: Element) -> None:
        sign, significand, shift, special = _fields(element, self.code[: element.bits])
        coarse = self.formats.coarse(element)
        value = significand << (shift[:2] if coarse else shift)
        m.d.comb += self.lane.significand.eq(Mux(sign, -value, value))
        if coarse:
            m.d.comb += self.lane.coarse.eq(shift >> COARSE.bit_length() - 1)
        if element.has_infinity:
            infinite = self.code[: element.bits - 1] == element.max_code + 1
            m.d.comb += self.lane.infinite.eq(infinite)
            special &= ~infinite
        m.d.comb += self.nan.eq(special)


class Decode(wiring.Component):
    """Decode a block of 32 codes and its scale word.

    Latency: `latency` cycles of `enable` (1; 3 where the build has offsets), one block a cycle.

    Parameters
    ----------
    formats: the formats of the build.
    side: "a" or "b", the port of `DotUnit` that it feeds. It matters in builds with offsets alone: side a has
        no format with an offset, and sums up the lanes for those of side b.

    Interface attributes
    --------------------
    codes: 32 lanes of 8 bits; a narrower code stands in the low bits, the rest is ignored.
    scale: scale word of the block.
    format: the format of the block.
    enable: registers hold while it is low.
    operand: the decoded block.
    unsupported: the block's `format` is not in the build; `operand.nan` is then set, so that no result
        passes for a good one.
    """

    def __init__(self, formats: FormatSet, side: str = "a"):
        if side not in ("a", "b"):
            raise ValueError(f"Side must be 'a' or 'b', not {side!r}")
        self.formats = formats
        self.side = side
        self.latency = 3 if formats.offsets else 1
        super().__init__(
            {
                "codes": In(data.ArrayLayout(8, BLOCK)),
                "scale": In(formats.scale_bits),
                "format": In(ElementFormat),
                "enable": In(1, init=1),
                "operand": Out(formats.operand),
                "unsupported": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        operand = Signal(self.formats.operand)
        unsupported = Signal()
        lane_nan = Signal(BLOCK)
        scale_nan = Signal()
        elements = self.formats.elements
        element = Signal(range(max(len(elements), 2)))
        zero_point = Signal(5)
        with m.Switch(self.format):
            for format in self.formats.formats:
                if format.has_offset and self.side == "a":
                    continue
                with m.Case(ElementFormat[format.name]):
                    m.d.comb += scale_nan.eq(self._scale(m, format, operand))
                    m.d.comb += element.eq(elements.index(format.element))
                    if format.scale == ScaleType.FP16_ZERO:
                        m.d.comb += zero_point.eq(self._zero_point())
            with m.Default():
                m.d.comb += unsupported.eq(1)
        name = "_".join(["lane_decode", *self.formats.names]).lower()
        for index in range(BLOCK):
            m.submodules[f"lane_{index}"] = lane = once(LaneDecode(self.formats), name)
            m.d.comb += [
                lane.code.eq(self.codes[index]),
                lane.element.eq(element),
                operand.lanes[index].eq(lane.lane),
                lane_nan[index].eq(lane.nan),
            ]
            if self.formats.zeros:
                m.d.comb += lane.zero_point.eq(zero_point)
        m.d.comb += operand.nan.eq(unsupported | lane_nan.any() | scale_nan)
        pipeline = Pipeline(m, self.enable)
        decoded = pipeline.register(operand, "decoded", self.latency)
        m.d.comb += [
            self.operand.eq(decoded),
            self.unsupported.eq(pipeline.register(unsupported, "refused", self.latency)),
        ]
        if self.formats.offsets:
            m.d.comb += self.operand.total.eq(self._total(m, pipeline, operand) if self.side == "a" else 0)
        return m

    def _zero_point(self) -> Value:
        return self.scale[FP16.bits : FP16.bits + 5]

    def _scale(self, m: Module, format: Format, operand: data.View) -> Value:
        """Drive exponent, factors and modes of `operand`; returns whether the scale word is a NaN."""
        lsb = format.element.lsb
        if format.scale == ScaleType.E8M0:
            scale = self.scale[:8]
            m.d.comb += operand.exponent.eq(scale + (lsb - E8M0_BIAS))
            if self.formats.scaled:
                m.d.comb += operand.plain.eq(1)
                m.d.comb += [factor.significand.eq(1) for factor in operand.factors]
            return scale == E8M0_NAN
        if format.scale == ScaleType.E4M3_PAIR:
            element = E4M3_ELEMENT
            m.d.comb += operand.halved.eq(1)
        elif format.scale == ScaleType.FP16_OFFSET:
            element = FP16
            m.d.comb += operand.offset.eq(1)
        else:
            return self._one_scale(m, format, operand)
        m.d.comb += operand.exponent.eq(lsb + element.lsb)
        nan = Const(0, 1)
        for index, factor in enumerate(operand.factors):
            sign, significand, shift, special = _fields(element, self.scale.word_select(index, element.bits))
            m.d.comb += [factor.sign.eq(sign), factor.significand.eq(significand), factor.shift.eq(shift)]
            nan |= special
            if format.scale == ScaleType.E4M3_PAIR:
                nan |= sign
        return nan

    def _one_scale(self, m: Module, format: Format, operand: data.View) -> Value:
        element = {ScaleType.BF16: BF16, ScaleType.FP32: FP32, ScaleType.FP16_ZERO: FP16}[format.scale]
        sign, significand, shift, special = _fields(element, self.scale[: element.bits])
        m.d.comb += operand.exponent.eq(shift + (format.element.lsb + element.lsb))
        for factor in operand.factors:
            m.d.comb += [factor.sign.eq(sign), factor.significand.eq(significand)]
        if format.scale == ScaleType.FP16_ZERO:
            special |= self._zero_point() > 16
        return special

    def _total(self, m: Module, pipeline: Pipeline, operand: data.View) -> Value:
        """Sum of the lanes, three registers after `operand` is made."""
        terms = []
        for index, lane in enumerate(operand.lanes):
            term = Signal(signed(self.formats.total_bits + 1), name=f"term_{index}")
            coarse = lane.coarse if self.formats.coarse_bits else Const(0, 1)
            m.d.comb += term.eq(lane.significand << Cat(Const(0, COARSE.bit_length() - 1), coarse))
            terms.append(pipeline.register(term, f"lane_{index}"))
        parts = [
            pipeline.register(balanced_sum(terms[first : first + 8]), f"part_{first}") for first in range(0, BLOCK, 8)
        ]
        return pipeline.register(balanced_sum(parts), "total")


def _fields(element: Element, code: Value) -> tuple[Value, Value, Value, Value]:
    """(sign, significand, shift, infinity or NaN) of a floating code."""
    fraction, field = code[: element.mantissa_bits], code[element.mantissa_bits : -1]
    normal = field.any()
    return code[-1], Cat(fraction, normal), (field - normal)[: len(field)], code[:-1] > element.max_code
