"""One lane of the vector engine: three multipliers, an adder with comparators, a function unit."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data

from hw.emit import once
from hw.vector.float32 import NEGATIVE_INFINITY, maximum, minimum
from hw.vector.fp32_add import Fp32Add
from hw.vector.fp32_multiply import Fp32Multiply
from hw.vector.function import FunctionUnit
from hw.vector.isa import Combine, Function
from hw.vector.pipeline import FixedLatency, delay

__all__ = ["Lane", "LaneOperands", "LaneResult"]


class LaneOperands(data.Struct):
    """Operands and control of one element; `hidden` makes s minus infinity and r +0."""

    x: unsigned(32)
    y: unsigned(32)
    z: unsigned(32)
    w: unsigned(32)
    v: unsigned(32)
    combine: Combine
    function: Function
    hidden: unsigned(1)


class LaneResult(data.Struct):
    """f, `Lane.middle_latency` cycles after the operands, and r, `Lane.latency` after them."""

    middle: unsigned(32)
    result: unsigned(32)


class Lane(FixedLatency):
    """f = function(combine(x * y, z * w)), r = f * v, each operation rounded once. Golden: `golden.vector.vector_pass`.

    A result every enabled cycle: f after `middle_latency` cycles, r after `latency`.
    """

    product_latency = Fp32Multiply.latency
    combine_latency = product_latency + Fp32Add.latency
    middle_latency = combine_latency + FunctionUnit.latency
    latency = middle_latency + Fp32Multiply.latency

    def __init__(self) -> None:
        super().__init__(LaneOperands, LaneResult)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.multiply_xy = multiply_xy = once(Fp32Multiply(), "fp32_multiply")
        m.submodules.multiply_zw = multiply_zw = once(Fp32Multiply(), "fp32_multiply")
        m.submodules.add = add = once(Fp32Add(), "fp32_add")
        m.submodules.function = function = once(FunctionUnit(), "vector_function")
        m.submodules.multiply_v = multiply_v = once(Fp32Multiply(), "fp32_multiply")
        for unit in (multiply_xy, multiply_zw, add, function, multiply_v):
            m.d.comb += unit.enable.eq(self.enable)

        given, enable = self.operands, self.enable
        combine = delay(m, enable, given.combine, self.product_latency, "combine")
        hidden = delay(m, enable, given.hidden, self.product_latency, "hidden")
        select = delay(m, enable, given.function, self.combine_latency, "select")
        factor = delay(m, enable, given.v, self.middle_latency, "factor")
        hidden_at_end = delay(m, enable, hidden, self.latency - self.product_latency, "hidden_at_end")
        override = self._override(m, multiply_xy.result, multiply_zw.result, combine, hidden)
        override = delay(m, enable, override, Fp32Add.latency, "override")
        m.d.comb += [
            multiply_xy.operands.a.eq(given.x),
            multiply_xy.operands.b.eq(given.y),
            multiply_zw.operands.a.eq(given.z),
            multiply_zw.operands.b.eq(given.w),
            add.operands.a.eq(multiply_xy.result),
            add.operands.b.eq(multiply_zw.result),
            function.operands.function.eq(select),
            function.operands.x.eq(Mux(override[32], override[:32], add.result)),
            multiply_v.operands.a.eq(function.result),
            multiply_v.operands.b.eq(factor),
            self.result.middle.eq(function.result),
            self.result.result.eq(Mux(hidden_at_end, 0, multiply_v.result)),
        ]
        return m

    def _override(self, m: Module, p0: Value, p1: Value, combine: Value, hidden: Value) -> Value:
        """33 bits: what stands in for the sum, and in the top bit whether it does."""
        value, use = Signal(32), Signal()
        with m.Switch(combine):
            with m.Case(Combine.MAXIMUM):
                m.d.comb += [value.eq(maximum(m, p0, p1)), use.eq(1)]
            with m.Case(Combine.MINIMUM):
                m.d.comb += [value.eq(minimum(m, p0, p1)), use.eq(1)]
            with m.Case(Combine.CLAMP):
                minus_p1 = Cat(p1[:31], ~p1[31])
                m.d.comb += [value.eq(maximum(m, minimum(m, p0, p1, "lower"), minus_p1, "clamped")), use.eq(1)]
            with m.Case(Combine.DIFFERENCE):
                m.d.comb += [value.eq(NEGATIVE_INFINITY), use.eq(p0 == NEGATIVE_INFINITY)]
        return Cat(Mux(hidden, Const(NEGATIVE_INFINITY, 32), value), use | hidden)
