"""FP32 arithmetic of the vector engine, fast: what `golden.fp32` defines on integers, at NumPy's speed.

`add` and `multiply` are IEEE 754 operations, and NumPy's float32 ufuncs are these operations, subnormals included;
nothing here is computed in a wider float and rounded again. `golden.fp32` stays the definition: the tests hold the two
together bit by bit, and on a machine whose float unit flushes subnormals (a library can switch that on for the whole
process) this module calls `golden.fp32` instead.

All arguments and results are uint32 bit patterns. Every NaN result is `NAN`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from golden import fp32, rounding

Bits = NDArray[np.uint32]

NAN = np.uint32(0x7FC00000)
INFINITY = np.uint32(0x7F800000)
NEGATIVE_INFINITY = np.uint32(0xFF800000)
ONE = np.uint32(0x3F800000)
MINUS_ONE = np.uint32(0xBF800000)
ZERO = np.uint32(0)
NEGATIVE_ZERO = np.uint32(0x80000000)


def from_float(values: object) -> Bits:
    """Bit patterns of float32 values (floats are rounded to nearest even)."""
    return np.asarray(values, dtype=np.float32).view(np.uint32)


def to_float(bits: Bits) -> NDArray[np.float32]:
    """float32 values of bit patterns."""
    return np.asarray(bits, dtype=np.uint32).view(np.float32)


def is_nan(bits: Bits) -> NDArray[np.bool_]:
    return (np.asarray(bits) & np.uint32(0x7FFFFFFF)) > INFINITY


def _native(operation: Callable, a: Bits, b: Bits) -> Bits:
    with np.errstate(all="ignore"):
        result = operation(to_float(a), to_float(b))
    return np.where(np.isnan(result), NAN, result.view(np.uint32))


def _subnormals_survive() -> bool:
    half_smallest_normal = _native(np.multiply, np.array([0x00800000], np.uint32), from_float([0.5]))
    doubled = _native(np.add, half_smallest_normal, half_smallest_normal)
    return int(half_smallest_normal[0]) == 0x00400000 and int(doubled[0]) == 0x00800000


_NATIVE = _subnormals_survive()


def add(a: Bits, b: Bits) -> Bits:
    """a + b; shapes broadcast."""
    return _native(np.add, a, b) if _NATIVE else fp32.add(*np.broadcast_arrays(a, b))


def multiply(a: Bits, b: Bits) -> Bits:
    """a * b; shapes broadcast."""
    return _native(np.multiply, a, b) if _NATIVE else fp32.multiply(*np.broadcast_arrays(a, b))


def negate(a: Bits) -> Bits:
    """The sign bit turned over, of a NaN too."""
    return np.asarray(a, dtype=np.uint32) ^ NEGATIVE_ZERO


def order(bits: Bits) -> Bits:
    """uint32 keys that order as the numbers do, -0 below +0."""
    bits = np.asarray(bits, dtype=np.uint32)
    return np.where(bits >> 31, ~bits, bits | NEGATIVE_ZERO)


def maximum(a: Bits, b: Bits) -> Bits:
    """The larger one; +0 is larger than -0; NaN where either is NaN."""
    return np.where(is_nan(a) | is_nan(b), NAN, np.where(order(a) >= order(b), a, b)).astype(np.uint32)


def minimum(a: Bits, b: Bits) -> Bits:
    """The smaller one; -0 is smaller than +0; NaN where either is NaN."""
    return np.where(is_nan(a) | is_nan(b), NAN, np.where(order(a) <= order(b), a, b)).astype(np.uint32)


def pack(magnitude: NDArray[np.int64], exponent: NDArray[np.integer]) -> Bits:
    """FP32 nearest to magnitude * 2**exponent, ties to even; magnitude in 0 .. 2**53, exponent within +-1000.

    The scaled magnitude is exact in float64, so the conversion to float32 is the one rounding.
    """
    if not _NATIVE:
        return fp32.encode(np.zeros(np.shape(magnitude), bool), rounding.wide(magnitude), exponent)
    with np.errstate(all="ignore"):
        return np.ldexp(magnitude.astype(np.float64), exponent).astype(np.float32).view(np.uint32)


def tree_sum(values: Bits, axis: int = -1) -> Bits:
    """Sum over `axis` by the fixed tree: neighbours (0,1), (2,3), ... are added, then neighbours of the results.

    A last one without a neighbour moves up unchanged, so the tree depends on the length alone. No values give -0,
    the identity of addition.
    """
    values = np.moveaxis(np.asarray(values, dtype=np.uint32), axis, 0)
    if not len(values):
        return np.full(values.shape[1:], NEGATIVE_ZERO)
    while len(values) > 1:
        pairs = add(values[0 : len(values) - 1 : 2], values[1::2])
        values = np.concatenate([pairs, values[-1:]]) if len(values) % 2 else pairs
    return values[0]


def max_over(values: Bits, axis: int = -1) -> Bits:
    """`maximum` over `axis`, in any order; no values give minus infinity."""
    values = np.moveaxis(np.asarray(values, dtype=np.uint32), axis, -1)
    keys = np.where(is_nan(values), np.uint32(0xFFFFFFFF), order(values))
    top = keys.max(axis=-1, initial=order(NEGATIVE_INFINITY))
    value = np.where(top >> 31, top ^ NEGATIVE_ZERO, ~top)
    return np.where(top == np.uint32(0xFFFFFFFF), NAN, value).astype(np.uint32)
