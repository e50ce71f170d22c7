"""1/sqrt(x) in FP32: the golden function of `hw.vector.function.FunctionUnit` with `Function.RSQRT`."""

from __future__ import annotations

import numpy as np

from golden import fp32
from golden.formats import Kind
from golden.fp32_ops import INFINITY, NAN, NEGATIVE_ZERO, Bits, pack
from golden.reciprocal import normalise
from golden.tables import FRACTION, PLACE_BITS, rsqrt_table

_SEGMENT_BITS = 7  # in each of the two octaves


def rsqrt(x: Bits) -> Bits:
    """1/sqrt(x), uint32 FP32 patterns of any shape. At most 0.62 ulp from the exact value.

    x = m * 4**k with m in [1, 4); the table gives 1/sqrt(m), which is scaled and rounded once. Subnormal arguments are
    kept. NaN and everything below zero give NaN, +infinity +0, a zero an infinity of the same sign; powers of four are
    exact.
    """
    x = np.asarray(x, dtype=np.uint32)
    sign, significand, exponent, kind = fp32.decode(x)
    normal, lowest = normalise(significand, exponent)
    power = lowest + 23
    odd = power & 1
    fraction = normal & ((1 << 23) - 1)
    rest = 23 - _SEGMENT_BITS
    segment = (odd << _SEGMENT_BITS) | (fraction >> rest)
    y = rsqrt_table().evaluate(segment, (fraction & ((1 << rest) - 1)) << (PLACE_BITS - rest))
    result = pack(y, -(power >> 1) - FRACTION)
    result = np.where(kind == Kind.INFINITY, np.uint32(0), result)
    zero = (significand == 0) & (kind == Kind.FINITE)
    result = np.where(zero, INFINITY | np.where(sign, NEGATIVE_ZERO, np.uint32(0)), result)
    return np.where((kind == Kind.NAN) | (sign & ~zero), NAN, result).astype(np.uint32)
