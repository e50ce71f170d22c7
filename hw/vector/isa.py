"""Commands of the vector engine. `golden.vector` has the same enumerations; `docs/vector.md` describes both."""

from amaranth.hdl import signed, unsigned
from amaranth.lib import data, enum

from hw.vector.function import Function

__all__ = ["STREAMS", "Combine", "EngineCommand", "Function", "Operand", "Reduce", "Source", "StreamMode"]

STREAMS = ("a", "b", "c", "d")
"""Operand streams of the engine."""


class Source(enum.Enum, shape=4):
    """Where a lane's operand comes from: a stream, one of the command's two immediates, or a constant."""

    A = 0
    B = 1
    C = 2
    D = 3
    IMMEDIATE_0 = 4
    IMMEDIATE_1 = 5
    ONE = 6
    MINUS_ONE = 7
    ZERO = 8
    NEGATIVE_ZERO = 9


class StreamMode(enum.Enum, shape=2):
    """How a command takes an operand stream."""

    OFF = 0
    """Not at all."""
    BEAT = 1
    """A beat of `lanes` elements for every beat of every row."""
    ROW = 2
    """One element a row, the same for all elements of the row; a beat holds the elements of `lanes` rows."""


class Combine(enum.Enum, shape=3):
    """s from the products p0 = x * y and p1 = z * w."""

    ADD = 0
    """p0 + p1."""
    DIFFERENCE = 1
    """p0 + p1, but minus infinity where p0 is."""
    MAXIMUM = 2
    MINIMUM = 3
    CLAMP = 4
    """p0 limited to -p1 .. p1."""


class Reduce(enum.Enum, shape=2):
    """What is made of a row's f: nothing, its sum over the fixed tree, its maximum."""

    NONE = 0
    SUM = 1
    MAXIMUM = 2


class Operand(data.Struct):
    """Sources of a lane's five operands."""

    x: Source
    y: Source
    z: Source
    w: Source
    v: Source


class EngineCommand(data.Struct):
    """One pass over `rows` rows of `length` elements: f = function(combine(x * y, z * w)), r = f * v.

    With `write`, r leaves on `result`; with `reduce`, one value a row leaves on `reduced`. With `mask`, row i sees the
    elements mask_low + i // mask_group .. mask_high + i // mask_group - 1 (mask_group 0: all rows the same): elsewhere
    s is minus infinity and r is +0.
    """

    length: unsigned(16)
    rows: unsigned(16)
    operands: Operand
    modes: data.ArrayLayout(StreamMode, len(STREAMS))
    combine: Combine
    function: Function
    reduce: Reduce
    write: unsigned(1)
    immediates: data.ArrayLayout(unsigned(32), 2)
    mask: unsigned(1)
    mask_low: signed(18)
    mask_high: signed(18)
    mask_group: unsigned(8)
