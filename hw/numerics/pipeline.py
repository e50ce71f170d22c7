"""Small helpers for pipelines: registers under an enable, and normalisation."""

from __future__ import annotations

from collections.abc import Sequence

from amaranth.hdl import Cat, Module, Mux, Signal, Value, ValueLike

__all__ = ["Pipeline", "balanced_sum", "normalise", "shift_right_sticky"]


class Pipeline:
    """Registers of a module that hold while `enable` is low. They carry data, so they have no reset."""

    def __init__(self, m: Module, enable: Value):
        self._m = m
        self._enable = enable

    def register(self, value: ValueLike, name: str, cycles: int = 1):
        """`value`, `cycles` cycles later; the shape (or layout) is kept."""
        shape = value.shape()
        for _ in range(cycles):
            stage = Signal(shape, name=name, reset_less=True)
            with self._m.If(self._enable):
                self._m.d.sync += Value.cast(stage).eq(Value.cast(value))
            value = stage
        return value


def normalise(m: Module, value: Value, name: str, steps: range | None = None) -> tuple[Value, Value]:
    """Shift left until the top bit is one: (shifted, count). For zero: (0, all steps taken).

    `steps`: only these powers of two, for half of the work; the halves are done from the larger steps down.
    """
    width = len(value)
    count = []
    for step in reversed(range((width - 1).bit_length()) if steps is None else steps):
        amount = 1 << step
        empty = Signal(name=f"{name}_empty_{amount}")
        shifted = Signal(width, name=f"{name}_by_{amount}")
        m.d.comb += empty.eq(value[width - amount :] == 0)
        m.d.comb += shifted.eq(Mux(empty, value << amount, value))
        value = shifted
        count.insert(0, empty)
    return value, Cat(count)


def shift_right_sticky(m: Module, value: Value, count: Value, name: str) -> Value:
    """Shift right by an unsigned count of any size; bit 0 of the result also holds whether a one was lost."""
    width = len(value)
    steps = width.bit_length()
    far = count[steps:].any()
    lost = far & value.any()
    for step in reversed(range(steps)):  # the widest test for lost ones first, while the value is fresh
        amount = min(1 << step, width)
        shifted = Signal(width, name=f"{name}_by_{amount}")
        m.d.comb += shifted.eq(Mux(count[step], value >> amount, value))
        lost |= count[step] & value[:amount].any()
        value = shifted
    return Mux(far, 0, value) | lost


def balanced_sum(terms: Sequence[Value]) -> Value:
    """Sum of a power of two of terms."""
    while len(terms) > 1:
        terms = [left + right for left, right in zip(terms[::2], terms[1::2], strict=True)]
    return terms[0]
