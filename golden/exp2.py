"""2**x in FP32: the golden function of `hw.vector.function.FunctionUnit` with `Function.EXP2`."""

from __future__ import annotations

import numpy as np

from golden import fp32
from golden.formats import Kind
from golden.fp32_ops import INFINITY, NAN, Bits, pack
from golden.tables import FRACTION, PLACE_BITS, exp2_table

_SEGMENT_BITS = 7


def exp2(x: Bits) -> Bits:
    """2**x, uint32 FP32 patterns of any shape. At most 0.54 ulp from the exact value.

    x is cut off (towards zero) to `FRACTION` fraction bits and split into floor and fraction; the table gives
    2**fraction, which is scaled and rounded once. Subnormal results are kept. NaN gives NaN, +infinity itself,
    -infinity +0; 2**0 and all whole powers are exact.
    """
    x = np.asarray(x, dtype=np.uint32)
    sign, significand, exponent, kind = fp32.decode(x)
    up = exponent + FRACTION
    magnitude = np.where(up >= 0, significand << np.clip(up, 0, 20), significand >> np.clip(-up, 0, 63))
    fixed = np.where(sign, -magnitude, magnitude)
    whole, fraction = fixed >> FRACTION, fixed & ((1 << FRACTION) - 1)
    rest = FRACTION - _SEGMENT_BITS
    y = exp2_table().evaluate(fraction >> rest, (fraction & ((1 << rest) - 1)) << (PLACE_BITS - rest))
    result = pack(y, whole - FRACTION)
    far = (exponent + 24 > 8) & (significand > 0) | (kind == Kind.INFINITY)  # |x| is 256 or more
    result = np.where(far, np.where(sign, np.uint32(0), INFINITY), result)
    return np.where(kind == Kind.NAN, NAN, result).astype(np.uint32)
