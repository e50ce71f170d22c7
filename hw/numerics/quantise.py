"""FP32 to MX blocks: rule "OCP floor", round to nearest even, saturate."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from golden.formats import E8M0_NAN, Element, ScaleType
from hw.emit import once
from hw.fifo import StreamFifo
from hw.numerics.formats import BLOCK, ElementFormat, FormatSet
from hw.numerics.pipeline import Pipeline, normalise, shift_right_sticky

__all__ = ["Quantise", "QuantiseLane", "largest_of"]

_FRACTION = 23
_SPECIAL = 0xFF


def _check(formats: FormatSet) -> None:
    other = [format.name for format in formats.formats if format.scale != ScaleType.E8M0]
    if other:
        raise ValueError(f"Quantisers make E8M0 scales; these formats have another: {', '.join(other)}")


class QuantiseLane(wiring.Component):
    """One FP32 value to a code, under a given shared scale.

    Latency: `QuantiseLane.latency` cycles of `enable`, one value a cycle.

    Interface attributes
    --------------------
    value: FP32, finite; subnormals count with their value.
    scale: E8M0 scale, at least the exponent of `value` less the largest exponent of the element.
    format: the format.
    enable: registers hold while it is low.
    code: the code, in the low bits.
    """

    latency = 4

    def __init__(self, formats: FormatSet):
        _check(formats)
        self.formats = formats
        super().__init__(
            {
                "value": In(32),
                "scale": In(8),
                "format": In(ElementFormat),
                "enable": In(1, init=1),
                "code": Out(8),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        pipeline = Pipeline(m, self.enable)
        fraction, field = self.value[:_FRACTION], self.value[_FRACTION:-1]
        significand, zeros = normalise(m, Cat(fraction, field.any()), "significand")
        # Exponent of the leading one against the scale; a subnormal has the exponent of field 1.
        relative = pipeline.register(Cat(field[0] | ~field.any(), field[1:]) - self.scale, "relative")
        zeros = pipeline.register(zeros, "zeros")
        significand = pipeline.register(significand, "significand")
        format = pipeline.register(self.format, "format")
        sign = pipeline.register(self.value[-1], "sign")

        shift, steps = Signal(9), Signal(6)
        with m.Switch(format):
            for entry in self.formats.formats:
                with m.Case(ElementFormat[entry.name]):
                    self._shift(m, entry.element, relative - zeros, shift, steps)
        # A bit below the result's last (the half), and one that says whether anything is below that.
        shifted = shift_right_sticky(
            m, Cat(Const(0, 2), pipeline.register(significand, "held")), pipeline.register(shift, "shift"), "aligned"
        )
        halves = pipeline.register(shifted, "halves")
        kept = halves[2:11] + (halves[1] & (halves[0] | halves[2]))

        code = Signal(8)
        steps = pipeline.register(steps, "steps", 2)
        sign = pipeline.register(sign, "late_sign", 2)
        with m.Switch(pipeline.register(format, "late_format", 2)):
            for entry in self.formats.formats:
                with m.Case(ElementFormat[entry.name]):
                    m.d.comb += code.eq(self._code(entry.element, sign, kept, steps))
        m.d.comb += self.code.eq(pipeline.register(code, "code"))
        return m

    def _shift(self, m: Module, element: Element, relative: Value, shift: Signal, steps: Signal) -> None:
        """How far to shift right, and how many binades the result's last bit is above the element's least."""
        least = Signal(signed(12), name=f"least_{element.name}")
        m.d.comb += least.eq(_FRACTION + element.lsb - relative)
        if element.is_integer:
            m.d.comb += shift.eq(least)
            return
        normal = _FRACTION - element.mantissa_bits
        m.d.comb += shift.eq(Mux(least < normal, normal, least))
        m.d.comb += steps.eq(Mux(least < normal, normal - least, 0))

    def _code(self, element: Element, sign: Value, kept: Value, steps: Value) -> Value:
        if element.is_integer:
            magnitude = Mux(kept > element.max_code, element.max_code, kept)
            return Mux(sign, -magnitude, magnitude)[: element.bits]
        magnitude = (steps << element.mantissa_bits) + kept
        return Cat(Mux(magnitude > element.max_code, element.max_code, magnitude)[: element.bits - 1], sign)


class Quantise(wiring.Component):
    """Blocks of 32 FP32 values to codes and scales, at `lanes` values a cycle.

    Latency: from a block's last beat to its first codes, with nothing waiting, `QuantiseLane.latency` + 1 cycles.
    Throughput: a beat a cycle, blocks of different formats included.

    Parameters
    ----------
    formats: formats with E8M0 scales.
    lanes: values in a beat: 1, 2, 4, 8, 16 or 32.

    Interface attributes
    --------------------
    i: beats of a block, in order: `values` (FP32) and `format` (that of the first beat of a block counts).
    o: as many beats: `codes`, one a byte, and the block's `scale` with each. A block with a NaN or an infinity has
        scale 0xFF and codes 0.
    """

    def __init__(self, formats: FormatSet, lanes: int = 8):
        _check(formats)
        if not isinstance(lanes, int) or lanes < 1 or lanes > BLOCK or BLOCK % lanes:
            raise ValueError(f"Lanes must be a divisor of {BLOCK}, not {lanes!r}")
        self.formats = formats
        self.lanes = lanes
        self._beats = BLOCK // lanes
        self._values = data.ArrayLayout(32, lanes)
        super().__init__(
            {
                "i": In(stream.Signature(data.StructLayout({"values": self._values, "format": ElementFormat}))),
                "o": Out(stream.Signature(data.StructLayout({"codes": data.ArrayLayout(8, lanes), "scale": 8}))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.waiting = waiting = StreamFifo(self._values, max(2, 2 * self._beats))
        block = data.StructLayout({"scale": 8, "format": ElementFormat})
        m.submodules.blocks = blocks = StreamFifo(block, 2)
        self._collect(m, waiting, blocks)

        # Codes leave when the block's scale is known; the lanes stop as a whole while the output waits.
        step = Signal()
        issue = Signal()
        beat = Signal(range(max(self._beats, 2)))
        last = beat == self._beats - 1
        m.d.comb += [
            step.eq(~self.o.valid | self.o.ready),
            issue.eq(step & blocks.o.valid & waiting.o.valid),
            waiting.o.ready.eq(issue),
            blocks.o.ready.eq(issue & last),
        ]
        with m.If(issue):
            m.d.sync += beat.eq(Mux(last, 0, beat + 1))
        valid = Signal(QuantiseLane.latency)
        with m.If(step):
            m.d.sync += valid.eq(Cat(issue, valid)[: len(valid)])
        scale = Pipeline(m, step).register(blocks.o.p.scale, "late_scale", QuantiseLane.latency)
        m.d.comb += [self.o.valid.eq(valid[-1]), self.o.p.scale.eq(scale)]
        name = "_".join(["quantise_lane", *self.formats.names]).lower()
        for index in range(self.lanes):
            m.submodules[f"lane_{index}"] = lane = once(QuantiseLane(self.formats), name)
            m.d.comb += [
                lane.value.eq(waiting.o.payload[index]),
                lane.scale.eq(blocks.o.p.scale),
                lane.format.eq(blocks.o.p.format),
                lane.enable.eq(step),
                self.o.p.codes[index].eq(Mux(scale == E8M0_NAN, 0, lane.code)),
            ]
        return m

    def _collect(self, m: Module, waiting: StreamFifo, blocks: StreamFifo) -> None:
        """Take beats in; with a block's last one, its scale and format go to `blocks`."""
        beat = Signal(range(max(self._beats, 2)))
        first, last = beat == 0, beat == self._beats - 1
        format, kept = Signal(ElementFormat), Signal(ElementFormat)
        top, so_far = Signal(8), Signal(8)  # largest exponent field: of the block up to this beat, up to the last
        take = Signal()
        m.d.comb += [
            take.eq(self.i.valid & self.i.ready),
            self.i.ready.eq(waiting.i.ready & blocks.i.ready),
            waiting.i.valid.eq(take),
            waiting.i.payload.eq(self.i.p.values),
            format.eq(Mux(first, self.i.p.format, kept)),
            top.eq(largest_of([Mux(first, 0, so_far), *(value[_FRACTION:-1] for value in self.i.p.values)])),
            blocks.i.valid.eq(take & last),
            blocks.i.p.format.eq(format),
        ]
        with m.If(take):
            m.d.sync += [beat.eq(Mux(last, 0, beat + 1)), kept.eq(format), so_far.eq(top)]
        with m.Switch(format):
            for entry in self.formats.formats:
                with m.Case(ElementFormat[entry.name]):
                    largest = entry.element.max_exponent
                    m.d.comb += blocks.i.p.scale.eq(Mux(top < largest, 0, top - largest))
            with m.Default():
                m.d.comb += blocks.i.p.scale.eq(E8M0_NAN)
        with m.If(top == _SPECIAL):
            m.d.comb += blocks.i.p.scale.eq(E8M0_NAN)


def largest_of(values: list[Value]) -> Value:
    """Maximum of unsigned values."""
    while len(values) > 1:
        odd = values[len(values) // 2 * 2 :]
        values = [Mux(left > right, left, right) for left, right in zip(values[::2], values[1::2], strict=False)] + odd
    return values[0]
