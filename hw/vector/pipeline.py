"""Fixed-latency units, and how they become streams."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, ShapeLike, Signal, Value, ValueLike
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["FixedLatency", "Streamed", "delay"]


def delay(m: Module, enable: Value, value: ValueLike, cycles: int, name: str) -> Value:
    """`value` as it was `cycles` enabled cycles ago."""
    value = Value.cast(value)
    width = len(value)
    line = Signal(width * cycles, name=name)
    with m.If(enable):
        m.d.sync += line.eq(Cat(value, line))
    return line[-width:]


class FixedLatency(wiring.Component):
    """Base of the arithmetic units: a result every cycle, `latency` cycles after its operands.

    All registers of a unit move only while `enable` is high, so that a chain of units stalls as one.

    Parameters
    ----------
    operands: shape of `operands`.
    result: shape of `result`.

    Interface attributes
    --------------------
    enable: In, moves the pipeline.
    operands: In, taken in every enabled cycle.
    result: Out, of the operands that were taken `latency` enabled cycles before.
    """

    latency: int

    def __init__(self, operands: ShapeLike, result: ShapeLike):
        self.operand_shape = operands
        self.result_shape = result
        super().__init__({"enable": In(1), "operands": In(operands), "result": Out(result)})


class Streamed(wiring.Component):
    """A fixed-latency unit between two streams.

    The whole pipeline stops while a result waits, so nothing is lost or overtaken under back-pressure. An empty place
    at the end does not stop it. `i.ready` follows `o.ready` in the same cycle; `o.valid` comes from a register.

    Interface attributes
    --------------------
    i: In, stream of the unit's operands.
    o: Out, stream of its results, in order.
    """

    def __init__(self, unit: FixedLatency):
        self.unit = unit
        super().__init__({"i": In(stream.Signature(unit.operand_shape)), "o": Out(stream.Signature(unit.result_shape))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.unit = unit = self.unit
        occupied = Signal(unit.latency)
        m.d.comb += [
            unit.enable.eq(~self.o.valid | self.o.ready),
            unit.operands.eq(self.i.payload),
            self.i.ready.eq(unit.enable),
            self.o.valid.eq(occupied[-1]),
            self.o.payload.eq(unit.result),
        ]
        with m.If(unit.enable):
            m.d.sync += occupied.eq(Cat(self.i.valid, occupied))
        return m
