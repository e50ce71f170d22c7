"""`exp2`, reciprocal and reciprocal square root: one table-and-polynomial unit."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed, unsigned
from amaranth.lib import data, enum, memory

from golden.tables import (
    C0_BITS,
    C1_BITS,
    C2_BITS,
    FRACTION,
    PLACE_BITS,
    Table,
    exp2_table,
    reciprocal_table,
    rsqrt_table,
)
from hw.numerics.pipeline import normalise
from hw.vector.float32 import BIAS, NAN, infinity, round_pack, shift_right, unpack
from hw.vector.pipeline import FixedLatency

__all__ = ["Function", "FunctionOperands", "FunctionUnit"]


class Function(enum.Enum, shape=2):
    """What the unit computes. The number is also the upper part of the table's address."""

    RECIPROCAL = 0
    RSQRT = 1
    EXP2 = 2
    NONE = 3


class FunctionOperands(data.Struct):
    """A function and its FP32 argument."""

    function: Function
    x: unsigned(32)


class _Coefficients(data.Struct):
    c0: unsigned(C0_BITS)
    c1: signed(C1_BITS)
    c2: signed(C2_BITS)


class _Reduced(data.Struct):
    """Argument reduction's result: where in the table, and how the result is scaled."""

    address: unsigned(10)
    place: unsigned(PLACE_BITS)
    exponent: signed(11)
    sign: unsigned(1)
    special: unsigned(1)
    bits: unsigned(32)


def _rows(table: Table) -> list[dict[str, int]]:
    return [{"c0": int(a), "c1": int(b), "c2": int(c)} for a, b, c in zip(table.c0, table.c1, table.c2, strict=True)]


class FunctionUnit(FixedLatency):
    """2**x, 1/x, 1/sqrt(x), or x itself. Latency 5.

    ============ =========== ============ ============ =========== ==============
    x            NaN         +infinity    -infinity    +0, -0      below 0
    ============ =========== ============ ============ =========== ==============
    EXP2         NaN         +infinity    +0           1           2**x
    RECIPROCAL   NaN         +0           -0           +inf, -inf  1/x
    RSQRT        NaN         +0           NaN          +inf, -inf  NaN
    NONE         x, every bit as it is
    ============ =========== ============ ============ =========== ==============

    Subnormal arguments and results are treated like all others. Golden functions: `golden.exp2`,
    `golden.reciprocal`, `golden.rsqrt`; the table is `golden.tables`.
    """

    latency = 5

    def __init__(self) -> None:
        super().__init__(FunctionOperands, 32)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        reduced, looked_up, inner_stage, outer_stage = (
            Signal(_Reduced, name=name) for name in ("reduced", "looked_up", "inner_stage", "outer_stage")
        )
        rows = _rows(reciprocal_table()) + _rows(rsqrt_table()) + _rows(exp2_table())
        m.submodules.table = table = memory.Memory(shape=_Coefficients, depth=len(rows), init=rows)
        port = table.read_port()
        m.d.comb += [port.addr.eq(reduced.address), port.en.eq(self.enable)]

        inner = Signal(signed(C1_BITS + 1))
        c0 = Signal(C0_BITS)
        y = Signal(C0_BITS)
        below_one = ~y[FRACTION]
        significand = Signal(C0_BITS)
        exponent = Signal(signed(12))
        m.d.comb += [
            significand.eq(Mux(below_one, Cat(Const(0, 1), y), y)),
            exponent.eq(outer_stage.exponent - below_one),
        ]
        rounded = round_pack(m, outer_stage.sign, exponent, significand)
        coefficients = port.data
        with m.If(self.enable):
            m.d.sync += [
                reduced.eq(self._reduce(m)),
                looked_up.eq(reduced),
                inner.eq(coefficients.c1 + ((coefficients.c2 * looked_up.place) >> PLACE_BITS)),
                c0.eq(coefficients.c0),
                inner_stage.eq(looked_up),
                y.eq(c0 + ((inner * inner_stage.place) >> PLACE_BITS)),
                outer_stage.eq(inner_stage),
                self.result.eq(Mux(outer_stage.special, outer_stage.bits, rounded)),
            ]
        return m

    def _reduce(self, m: Module) -> data.View:
        """First stage, combinational: table address, place and exponent, or the special result."""
        x = unpack(m, self.operands.x, "x")
        whole, fraction, far = self._fixed_point(m, x)
        normal, zeros = normalise(m, x.significand, "significand")
        exponent = Signal(signed(10))
        reduced = Signal(_Reduced, name="reduction")
        m.d.comb += [
            exponent.eq(x.exponent - zeros),
            reduced.bits.eq(self.operands.x),
        ]
        with m.Switch(self.operands.function):
            with m.Case(Function.EXP2):
                m.d.comb += [
                    reduced.address.eq(Cat(fraction[23:], Const(0, 1), Function.EXP2)),
                    reduced.place.eq(Cat(Const(0, 1), fraction[:23])),
                    reduced.exponent.eq(whole + BIAS),
                    reduced.special.eq(x.nan | far),
                    reduced.bits.eq(Mux(x.nan, NAN, Mux(x.sign, 0, infinity(0)))),
                ]
            with m.Case(Function.RECIPROCAL):
                m.d.comb += [
                    reduced.address.eq(Cat(normal[15:23], Function.RECIPROCAL)),
                    reduced.place.eq(Cat(Const(0, 9), normal[:15])),
                    reduced.exponent.eq(2 * BIAS - exponent),
                    reduced.sign.eq(x.sign),
                    reduced.special.eq(x.nan | x.infinite | x.zero),
                    reduced.bits.eq(Mux(x.nan, NAN, Mux(x.zero, infinity(x.sign), Cat(Const(0, 31), x.sign)))),
                ]
            with m.Case(Function.RSQRT):
                # value = m * 4**half with m in [1, 4): an even biased exponent puts it into [2, 4).
                half = (exponent - BIAS) >> 1
                invalid = x.nan | (x.sign & ~x.zero)
                m.d.comb += [
                    reduced.address.eq(Cat(normal[16:23], ~exponent[0], Function.RSQRT)),
                    reduced.place.eq(Cat(Const(0, 8), normal[:16])),
                    reduced.exponent.eq(BIAS - half),
                    reduced.special.eq(invalid | x.infinite | x.zero),
                    reduced.bits.eq(Mux(invalid, NAN, Mux(x.zero, infinity(x.sign), 0))),
                ]
            with m.Case(Function.NONE):
                m.d.comb += reduced.special.eq(1)
        return reduced

    def _fixed_point(self, m: Module, x: data.View) -> tuple[Signal, Signal, Signal]:
        """(floor(x), fraction of `FRACTION` bits, |x| is 256 or more); x is first cut off to `FRACTION` bits."""
        magnitude, fixed = Signal(8 + FRACTION), Signal(signed(9 + FRACTION))
        whole, fraction, far = Signal(signed(9)), Signal(FRACTION), Signal()
        largest = BIAS + 7  # biased exponent of 128 to 256
        distance = Signal(8)
        m.d.comb += [
            far.eq(x.exponent > largest),
            distance.eq(largest - x.exponent),
            magnitude.eq(shift_right(m, Cat(Const(0, 8 + FRACTION - 24), x.significand), distance)),
            fixed.eq(Mux(x.sign, -magnitude, magnitude)),
            whole.eq(fixed[FRACTION:].as_signed()),
            fraction.eq(fixed[:FRACTION]),
        ]
        return whole, fraction, far
