"""Quotient of two numbers, rounded once to an element format: what group scales need."""

from __future__ import annotations

from collections.abc import Sequence

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from golden.formats import Element
from hw.numerics.pipeline import normalise, shift_right_sticky

__all__ = ["Divide", "number", "number_layout"]

_DIVIDEND = 24
_DIVISOR = 28
_QUOTIENT = 30
"""Bits of the quotient before rounding: its leading one is the first or the second of them."""


def number_layout(bits: int) -> data.StructLayout:
    """(-1)**sign * significand * 2**exponent."""
    return data.StructLayout({"significand": unsigned(bits), "exponent": signed(11), "sign": unsigned(1)})


def number(element: Element, code: Value) -> tuple[Value, Value, Value]:
    """(significand, exponent, sign) of a finite code."""
    fraction, field = code[: element.mantissa_bits], code[element.mantissa_bits : element.bits - 1]
    normal = field.any()
    return Cat(fraction, normal), Cat(field[0] | ~normal, field[1:]) + (element.lsb - 1), code[element.bits - 1]


class Divide(wiring.Component):
    """dividend / divisor to the nearest code of one of some elements, ties to even, saturated.

    One quotient bit a cycle: `Divide.cycles` cycles from `start` to `done`.

    Parameters
    ----------
    targets: the elements. Integers are signed or unsigned as the element is (a negative quotient gives 0).

    Interface attributes
    --------------------
    dividend, divisor: numbers; a divisor of zero gives a quotient of zero.
    target: index into `targets`.
    start: take them. Ignored until `done`.
    done: `code` is the result, for one cycle.
    """

    cycles = _QUOTIENT + 4

    def __init__(self, targets: Sequence[Element]):
        self.targets = tuple(targets)
        super().__init__(
            {
                "dividend": In(number_layout(_DIVIDEND)),
                "divisor": In(number_layout(_DIVISOR)),
                "target": In(range(max(len(self.targets), 2))),
                "start": In(1),
                "done": Out(1),
                "code": Out(max(element.bits for element in self.targets)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        dividend, count_n = normalise(m, self.dividend.significand, "dividend")
        divisor, count_d = normalise(m, self.divisor.significand, "divisor")
        rest, by = Signal(_DIVISOR + 1), Signal(_DIVISOR)
        quotient = Signal(_QUOTIENT)
        exponent, sign = Signal(signed(13)), Signal()  # the exponent of the quotient's first bit
        step = Signal(range(self.cycles))
        target = Signal.like(self.target)
        enough = rest >= by

        with m.If(step == 0):
            with m.If(self.start):
                m.d.sync += [
                    step.eq(1),
                    target.eq(self.target),
                    quotient.eq(0),
                    by.eq(Mux(divisor[-1], divisor, 1)),
                    rest.eq(Mux(divisor[-1], dividend << (_DIVISOR - _DIVIDEND), 0)),
                    exponent.eq(
                        (self.dividend.exponent + (_DIVIDEND - 1) - count_n)
                        - (self.divisor.exponent + (_DIVISOR - 1) - count_d)
                    ),
                    sign.eq(self.dividend.sign ^ self.divisor.sign),
                ]
        with m.Elif(step <= _QUOTIENT):
            m.d.sync += [
                step.eq(step + 1),
                quotient.eq(Cat(enough, quotient)[:_QUOTIENT]),
                rest.eq(Mux(enough, rest - by, rest) << 1),
            ]
        self._round(m, step, quotient, rest.any(), exponent, sign, target)
        return m

    def _round(
        self, m: Module, step: Signal, quotient: Signal, inexact: Value, exponent: Signal, sign: Signal, target: Signal
    ) -> None:
        """Three cycles: the place of the result's last bit, the shift to it, the rounding."""
        small = ~quotient[-1]
        top = exponent - small
        shift, steps = Signal(12), Signal(12)
        held = Signal.like(shift)
        binades = Signal.like(steps)
        halves = Signal(_QUOTIENT + 1)
        kept = (halves >> 2) + (halves[1] & (halves[0] | halves[2]))
        with m.Switch(target):
            for index, element in enumerate(self.targets):
                with m.Case(index):
                    self._place(m, element, top, small, shift, steps)
                    m.d.comb += self.code.eq(_code(element, sign, kept, binades))
        zero = ~quotient.any()
        aligned = shift_right_sticky(m, Cat(inexact, quotient), held, "aligned")
        with m.If(step == _QUOTIENT + 1):
            m.d.sync += [step.eq(step + 1), held.eq(shift), binades.eq(Mux(zero, 0, steps))]
        with m.If(step == _QUOTIENT + 2):
            m.d.sync += [step.eq(step + 1), halves.eq(aligned)]
        with m.If(step == _QUOTIENT + 3):
            m.d.comb += self.done.eq(1)
            m.d.sync += step.eq(0)

    def _place(self, m: Module, element: Element, top: Value, small: Value, shift: Signal, steps: Signal) -> None:
        """`aligned` keeps two bits below the result's last (the half and the sticky bit)."""
        # The quotient's first bit is bit _QUOTIENT of Cat(inexact, quotient), with exponent top + small.
        least = Signal(signed(14), name=f"least_{element.name}")
        precise = Signal(signed(14), name=f"precise_{element.name}")
        first = Const(_QUOTIENT - 2)  # shift that puts the first bit at bit 2
        m.d.comb += least.eq(first + element.lsb - top - small)
        if element.is_integer:
            m.d.comb += shift.eq(Mux(least < 0, 0, least))
            return
        m.d.comb += precise.eq(first - element.mantissa_bits - small)
        m.d.comb += [shift.eq(Mux(least > precise, least, precise)), steps.eq(Mux(least > precise, 0, precise - least))]


def _code(element: Element, sign: Value, kept: Value, steps: Value) -> Value:
    if element.is_integer:
        magnitude = Mux(kept > element.max_code, element.max_code, kept)
        negative = -magnitude if element.signed else 0
        return Mux(sign, negative, magnitude)[: element.bits]
    magnitude = (steps << element.mantissa_bits) + kept
    return Cat(Mux(magnitude > element.max_code, element.max_code, magnitude)[: element.bits - 1], sign)
