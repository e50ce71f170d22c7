"""FP32 to formats whose scales are not powers of two, one value after the other.

Weights in these formats are made once, off line, and activations seldom: one serial divider does it all.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data, enum, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from golden.formats import BF16, E4M3_ELEMENT, FP16, FP32, UINT4_ELEMENT, Element, Format, ScaleType
from golden.quantise_groups import NAN_WORDS
from hw.numerics.accumulate import FusedAccumulate
from hw.numerics.divide import Divide, number
from hw.numerics.formats import ElementFormat, FormatSet
from hw.numerics.pipeline import normalise

__all__ = ["QuantiseGroups"]

_STEPS = Element("STEPS", 8, 0, 7, lsb=0, max_code=64)
"""Codes before the zero point is added; the limit is far above any code."""
_SCALE_ELEMENTS = {
    ScaleType.E4M3_PAIR: E4M3_ELEMENT,
    ScaleType.BF16: BF16,
    ScaleType.FP32: FP32,
    ScaleType.FP16_OFFSET: FP16,
    ScaleType.FP16_ZERO: FP16,
}


class Phase(enum.Enum, shape=3):
    """What the divider or the adder is used for."""

    IDLE = 0
    SCALE = 1
    OFFSET = 2
    ZERO = 3
    SHIFT = 4
    ELEMENT = 5


_GROUP = data.StructLayout(
    {
        "offset": 1,
        "zero": 1,
        "tensor": 1,
        "nan_word": 32,
        "scale_target": 4,
        "target": 4,
        "most": 4,
        "most_exponent": signed(11),
    }
)
"""What the format of a group asks for."""
_STATE = data.StructLayout(
    {
        "format": ElementFormat,
        "bad": 1,
        "largest": 31,
        "least": signed(33),
        "greatest": signed(33),
        "result": 32,
        "scale": 32,
        "code": 8,
    }
)
"""What is known of the group in work."""


class _Adder(NamedTuple):
    """Stands for a `FormatSet` at the accumulate, which then adds FP32 numbers."""

    sum_bits: int = 24

    @property
    def block_sum(self) -> data.StructLayout:
        return data.StructLayout(
            {
                "magnitude": unsigned(24),
                "exponent": signed(11),
                "sign": unsigned(1),
                "infinite": unsigned(1),
                "nan": unsigned(1),
            }
        )


class QuantiseGroups(wiring.Component):
    """Groups of FP32 values to codes and scales, by the rules of docs/numerics.md ("Quantising groups").

    A value takes about `Divide.cycles` + 3 cycles (5 more for Q4_1), and a group as much again for its scale.

    Parameters
    ----------
    formats: formats with scales that are not powers of two.

    Interface attributes
    --------------------
    i: values of a group, in order: `value` (FP32) and `format`, that of a group's first value counts. A group is
        `Format.group` values.
    tensor_scale: FP32 scale of the tensor, positive and finite, constant; for NVFP4, 1.0 for the others.
    o: as many codes, in the low bits of `code`, each with the scale word of the group (for NVFP4: the group's own
        E4M3 scale). A group with a NaN or an infinity has a NaN scale word and codes 0.
    """

    def __init__(self, formats: FormatSet):
        other = [format.name for format in formats.formats if format.scale == ScaleType.E8M0]
        if other:
            raise ValueError(f"Group quantisers do not make E8M0 scales; take Quantise for {', '.join(other)}")
        self.formats = formats
        self._targets = tuple(
            dict.fromkeys(
                [self._element(format) for format in formats.formats]
                + [_SCALE_ELEMENTS[format.scale] for format in formats.formats]
                + [format.element for format in formats.formats if format.scale == ScaleType.FP16_ZERO]
            )
        )
        self._depth = max(format.group for format in formats.formats)
        super().__init__(
            {
                "i": In(stream.Signature(data.StructLayout({"value": 32, "format": ElementFormat}))),
                "tensor_scale": In(32, init=0x3F800000),
                "o": Out(stream.Signature(data.StructLayout({"code": 8, "scale": 32}))),
            }
        )

    @staticmethod
    def _element(format: Format) -> Element:
        return _STEPS if format.scale == ScaleType.FP16_ZERO else format.element

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.values = values = memory.Memory(shape=32, depth=self._depth, init=[])
        m.submodules.divide = divide = Divide(self._targets)
        m.submodules.adder = adder = FusedAccumulate(_Adder())
        write, read = values.write_port(), values.read_port()
        group, state = Signal(_GROUP), Signal(_STATE)
        index = Signal(range(self._depth))
        wait = Signal(range(FusedAccumulate.latency + 1))
        last = self._describe(m, group, state.format, index)
        phase = Signal(Phase)
        m.d.comb += [
            write.addr.eq(index),
            write.data.eq(self.i.p.value),
            read.addr.eq(index),
            read.en.eq(1),
            divide.start.eq((phase != Phase.IDLE) & (phase != Phase.SHIFT)),
        ]
        self._operands(m, divide, adder, phase, group, state, read.data)

        def add_up(following: str) -> None:
            m.d.sync += wait.eq(wait + 1)
            with m.If(wait == FusedAccumulate.latency):
                m.d.sync += [wait.eq(0), state.result.eq(adder.result)]
                m.next = following

        with m.FSM():
            with m.State("collect"):
                m.d.comb += [self.i.ready.eq(1), write.en.eq(self.i.valid)]
                with m.If(self.i.valid):
                    self._collect(m, index == 0, state)
                    m.next = "collected"
            with m.State("collected"):
                m.d.sync += index.eq(Mux(last, 0, index + 1))
                m.next = "collect"
                with m.If(last):
                    m.next = "span"
            with m.State("span"):
                add_up("scale")
            with m.State("scale"):
                m.d.comb += phase.eq(Phase.SCALE)
                with m.If(divide.done):
                    m.d.sync += state.scale.eq(divide.code)
                    m.next = "second"
            with m.State("second"):  # the offset or the zero point
                m.d.comb += phase.eq(Mux(group.offset, Phase.OFFSET, Mux(group.zero, Phase.ZERO, Phase.IDLE)))
                with m.If(divide.done):
                    m.d.sync += state.scale[16:].eq(Mux(group.zero, divide.code[:5], divide.code[:16]))
                with m.If(divide.done | ~(group.offset | group.zero)):
                    m.next = "fetch"
            with m.State("fetch"):
                m.next = "shift"
            with m.State("shift"):
                m.d.comb += phase.eq(Phase.SHIFT)
                with m.If(group.offset):
                    add_up("element")
                with m.Else():
                    m.next = "element"
            with m.State("element"):
                m.d.comb += phase.eq(Phase.ELEMENT)
                with m.If(divide.done):
                    shifted = divide.code[:8].as_signed() + state.scale[16:21]
                    m.d.sync += state.code.eq(Mux(group.zero, _clip(shifted), divide.code))
                    m.next = "send"
            with m.State("send"):
                m.d.comb += self.o.valid.eq(1)
                with m.If(self.o.ready):
                    m.d.sync += index.eq(Mux(last, 0, index + 1))
                    m.next = "fetch"
                    with m.If(last):
                        m.next = "collect"
        m.d.comb += [
            self.o.p.code.eq(Mux(state.bad, 0, state.code)),
            self.o.p.scale.eq(Mux(state.bad, group.nan_word, state.scale)),
        ]
        return m

    def _describe(self, m: Module, group: data.View, format: Value, index: Signal) -> Value:
        """Drive `group` from the format; returns whether `index` is the last of a group."""
        last = Signal()
        with m.Switch(format):
            for entry in self.formats.formats:
                with m.Case(ElementFormat[entry.name]):
                    word = NAN_WORDS[entry.scale]
                    scale = _SCALE_ELEMENTS[entry.scale]
                    m.d.comb += [
                        last.eq(index == entry.group - 1),
                        group.offset.eq(entry.scale == ScaleType.FP16_OFFSET),
                        group.zero.eq(entry.scale == ScaleType.FP16_ZERO),
                        group.tensor.eq(entry.scale == ScaleType.E4M3_PAIR),
                        group.nan_word.eq(word & 0xFF if entry.scale == ScaleType.E4M3_PAIR else word),
                        group.scale_target.eq(self._targets.index(scale)),
                        group.target.eq(self._targets.index(self._element(entry))),
                    ]
                    if entry.scale not in (ScaleType.FP16_OFFSET, ScaleType.FP16_ZERO):
                        most, exponent = _largest(entry.element)
                        m.d.comb += [group.most.eq(most), group.most_exponent.eq(exponent)]
            with m.Default():  # a format that is not in the build: one NaN and out again
                m.d.comb += [last.eq(1), group.nan_word.eq(0xFFFFFFFF)]
        return last

    def _collect(self, m: Module, first: Value, state: data.View) -> None:
        """Take a value: the largest magnitude, and least and greatest by their signed keys."""
        value = self.i.p.value
        magnitude = value[:-1]
        key = Signal(signed(33))
        m.d.comb += key.eq(Mux(value[-1], -magnitude, magnitude))
        known = Signal()
        format = Mux(first, self.i.p.format, state.format)
        with_zero = Signal()
        with m.Switch(format):
            for entry in self.formats.formats:
                with m.Case(ElementFormat[entry.name]):
                    m.d.comb += [known.eq(1), with_zero.eq(entry.scale == ScaleType.FP16_ZERO)]
        least = Mux(first, Mux(with_zero, 0, key), state.least)
        greatest = Mux(first, Mux(with_zero, 0, key), state.greatest)
        largest = Mux(first, 0, state.largest)
        m.d.sync += [
            state.format.eq(format),
            state.bad.eq(Mux(first, 0, state.bad) | value[23:31].all() | ~known),
            state.largest.eq(Mux(magnitude > largest, magnitude, largest)),
            state.least.eq(Mux(key < least, key, least)),
            state.greatest.eq(Mux(key > greatest, key, greatest)),
        ]

    def _operands(
        self,
        m: Module,
        divide: Divide,
        adder: FusedAccumulate,
        phase: Signal,
        group: data.View,
        state: data.View,
        value: Value,
    ) -> None:
        """What the divider and the adder work on in each phase."""
        least, greatest = (_pattern(key) for key in (state.least, state.greatest))
        shift = phase == Phase.SHIFT
        m.d.comb += adder.accumulator.eq(Mux(shift, value, greatest))
        _as_sum(
            m,
            adder.sum,
            [
                Mux(shift, one, other)
                for one, other in zip(number(FP16, state.scale[16:]), number(FP32, least), strict=True)
            ],
        )
        ranged = group.offset | group.zero

        dividend = Signal(32)
        m.d.comb += dividend.eq(Mux(group.offset, state.result, value))
        with m.If(phase == Phase.SCALE):
            m.d.comb += dividend.eq(Mux(ranged, state.result, state.largest))
        with m.If((phase == Phase.OFFSET) | (phase == Phase.ZERO)):
            m.d.comb += dividend.eq(Cat(least[:-1], least[-1] ^ (phase == Phase.ZERO)))
        _assign(m, divide.dividend, number(FP32, dividend))

        tensor = number(FP32, self.tensor_scale)
        scales = {element: number(element, state.scale[: element.bits]) for element in (E4M3_ELEMENT, BF16, FP32, FP16)}
        factor = Signal(4)
        m.d.comb += factor.eq(Mux(phase == Phase.SCALE, group.most, scales[E4M3_ELEMENT][0]))
        for entry in self.formats.formats:
            with m.If(state.format == ElementFormat[entry.name]):
                _assign(m, divide.divisor, scales[_SCALE_ELEMENTS[entry.scale]])
                m.d.comb += divide.target.eq(group.target)
        with m.If(group.tensor):
            exponent = Mux(phase == Phase.SCALE, group.most_exponent, scales[E4M3_ELEMENT][1])
            _assign(m, divide.divisor, (tensor[0] * factor, tensor[1] + exponent, tensor[2]))
        with m.Elif(phase == Phase.SCALE):
            _assign(m, divide.divisor, (Mux(ranged, 15, group.most), Mux(ranged, 0, group.most_exponent), 0))
        with m.If(phase == Phase.OFFSET):
            _assign(m, divide.divisor, (1, 0, 0))
        with m.If((phase == Phase.SCALE) | (phase == Phase.OFFSET)):
            m.d.comb += divide.target.eq(group.scale_target)
        if UINT4_ELEMENT in self._targets:
            with m.If(phase == Phase.ZERO):
                m.d.comb += divide.target.eq(self._targets.index(UINT4_ELEMENT))


def _largest(element: Element) -> tuple[int, int]:
    """The largest value as an odd integer and an exponent."""
    _, significand, shift, _ = element.decode(np.array(element.max_code))
    most, exponent = int(significand), element.lsb + int(shift)
    while most % 2 == 0:
        most, exponent = most // 2, exponent + 1
    return most, exponent


def _pattern(key: Value) -> Value:
    """FP32 pattern of a signed key; there is one zero."""
    return Cat(Mux(key < 0, -key, key)[:31], key < 0)


def _assign(m: Module, target: data.View, parts: tuple) -> None:
    significand, exponent, sign = parts
    m.d.comb += [target.significand.eq(significand), target.exponent.eq(exponent), target.sign.eq(sign)]


def _as_sum(m: Module, target: data.View, parts: list) -> None:
    """Minus a number, as a block sum for the accumulate."""
    significand, exponent, sign = parts
    wide = Signal(24)
    m.d.comb += wide.eq(significand)
    normal, count = normalise(m, wide, "addend")
    m.d.comb += [
        target.magnitude.eq(normal),
        target.sign.eq(~sign & normal[-1]),
        target.exponent.eq(Mux(normal[-1], exponent + (23 + 127) - count, -1024)),
    ]


def _clip(steps: Value) -> Value:
    return Mux(steps < 0, 0, Mux(steps > UINT4_ELEMENT.max_code, UINT4_ELEMENT.max_code, steps))
