"""The comparison circuit of the area report: a block dot with a multiplier of its own for each element format."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from golden.formats import Element
from hw.numerics.formats import BLOCK, ElementFormat, FormatSet
from hw.numerics.pipeline import Pipeline, balanced_sum

__all__ = ["SeparateDot"]


class SeparateDot(wiring.Component):
    """Block dot of two blocks of the same format, from one multiplier a lane and format, and a shared adder tree.

    It computes what `Decode` and `BlockDot` compute, less: both operands have one format, and NaN and infinities are
    not handled. Formats that share an element share its multipliers. Not used in the chip.

    Latency: `latency` cycles of `enable` (4; 5 where elements have a shift).

    Interface attributes
    --------------------
    a, b: codes, 8 bits a lane.
    format: the format of both.
    enable: registers hold while it is low.
    sum: the sum in units of the product of the elements' least significant bits.
    """

    def __init__(self, formats: FormatSet):
        if formats.scaled:
            raise ValueError(f"SeparateDot has E8M0 scales only, not those of {', '.join(formats.names)}")
        self.formats = formats
        self.latency = 5 if formats.coarse_bits else 4
        codes = data.ArrayLayout(8, BLOCK)
        super().__init__(
            {
                "a": In(codes),
                "b": In(codes),
                "format": In(ElementFormat),
                "enable": In(1, init=1),
                "sum": Out(signed(formats.dot_bits + 1)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        pipeline = Pipeline(m, self.enable)
        width = self.formats.dot_bits + 1
        held = Signal(data.StructLayout({"a": self.a.shape(), "b": self.b.shape()}))
        m.d.comb += [held.a.eq(self.a), held.b.eq(self.b)]
        held = pipeline.register(held, "codes")
        format = pipeline.register(self.format, "format", 2)
        terms = []
        for index in range(BLOCK):
            term = Signal(signed(width), name=f"term_{index}")
            products = {
                element: self._product(pipeline, element, held.a[index], held.b[index], index)
                for element in self.formats.elements
            }
            with m.Switch(format):
                for entry in self.formats.formats:
                    with m.Case(ElementFormat[entry.name]):
                        m.d.comb += term.eq(products[entry.element])
            terms.append(pipeline.register(term, f"aligned_{index}") if self.formats.coarse_bits else term)
        parts = [
            pipeline.register(balanced_sum(terms[first : first + 8])[:width].as_signed(), f"part_{first}")
            for first in range(0, BLOCK, 8)
        ]
        m.d.comb += self.sum.eq(pipeline.register(balanced_sum(parts)[:width].as_signed(), "sum"))
        return m

    def _product(self, pipeline: Pipeline, element: Element, a: Value, b: Value, index: int) -> Value:
        """Product of two codes of one element, aligned, a cycle later."""
        name = f"{element.name}_{index}"
        if element.is_integer:
            a, b = a[: element.bits].as_signed(), b[: element.bits].as_signed()
            return pipeline.register(a * b, f"product_{name}")
        (sign_a, part_a, shift_a), (sign_b, part_b, shift_b) = (_fields(element, code) for code in (a, b))
        product = pipeline.register(part_a * part_b, f"product_{name}")
        sign = pipeline.register(sign_a ^ sign_b, f"sign_{name}")
        shift = pipeline.register(shift_a + shift_b, f"shift_{name}")
        return Mux(sign, -product, product) << shift


def _fields(element: Element, code: Value) -> tuple[Value, Value, Value]:
    fraction, field = code[: element.mantissa_bits], code[element.mantissa_bits : element.bits - 1]
    normal = field.any()
    return code[element.bits - 1], Cat(fraction, normal), (field - normal)[: len(field)]
