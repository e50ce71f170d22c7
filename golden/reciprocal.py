"""1/x in FP32: the golden function of `hw.vector.function.FunctionUnit` with `Function.RECIPROCAL`."""

from __future__ import annotations

import numpy as np

from golden import fp32
from golden.formats import Kind
from golden.fp32_ops import INFINITY, NAN, NEGATIVE_ZERO, Bits, pack
from golden.rounding import bit_length
from golden.tables import FRACTION, PLACE_BITS, reciprocal_table

_SEGMENT_BITS = 8


def normalise(significand: np.ndarray, exponent: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(24-bit significand with its top bit set, exponent of its bit 0); zero becomes any such pair."""
    places = 24 - bit_length(significand)
    return np.where(significand > 0, significand << np.minimum(places, 24), 1 << 23), exponent - places


def reciprocal(x: Bits) -> Bits:
    """1/x, uint32 FP32 patterns of any shape. At most 0.57 ulp from the exact value.

    The table gives 1/m for the significand m in [1, 2), which is scaled and rounded once; subnormal arguments and
    results are kept, too large a result is infinity. NaN gives NaN, infinity a zero and zero an infinity of the same
    sign; powers of two are exact.
    """
    x = np.asarray(x, dtype=np.uint32)
    sign, significand, exponent, kind = fp32.decode(x)
    normal, lowest = normalise(significand, exponent)
    fraction = normal & ((1 << 23) - 1)
    rest = 23 - _SEGMENT_BITS
    y = reciprocal_table().evaluate(fraction >> rest, (fraction & ((1 << rest) - 1)) << (PLACE_BITS - rest))
    result = pack(y, -(lowest + 23) - FRACTION)
    result = np.where(kind == Kind.INFINITY, np.uint32(0), result)
    result = np.where((significand == 0) & (kind == Kind.FINITE), INFINITY, result)
    result |= np.where(sign, NEGATIVE_ZERO, np.uint32(0))
    return np.where(kind == Kind.NAN, NAN, result).astype(np.uint32)
