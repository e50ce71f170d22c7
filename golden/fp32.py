"""FP32 on integers: add, multiply, and the fused accumulate of the block dot.

All arguments and results are uint32 bit patterns. Round to nearest even, subnormals kept, an exact zero
sum of opposite signs is +0, every NaN result is 0x7FC00000.
"""

from __future__ import annotations

import numpy as np

from golden import rounding
from golden.formats import FP32, Kind
from golden.rounding import I64, U64, Wide

NAN = np.uint32(0x7FC00000)
INFINITY = np.uint32(0x7F800000)
SIGN = np.uint32(0x80000000)


def decode(bits: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(sign, significand int64 of 24 bits, exponent of its bit 0, kind) of FP32 patterns."""
    sign, significand, shift, kind = FP32.decode(bits)
    return sign, significand, shift + FP32.lsb, kind


def encode(sign: np.ndarray, magnitude: Wide, exponent: np.ndarray) -> np.ndarray:
    """Exact values to FP32, rounded once; too large gives infinity."""
    return FP32.encode(sign, magnitude, exponent, saturate=False).astype(np.uint32)


def _add_exact(left: tuple, right: tuple) -> tuple[np.ndarray, Wide, np.ndarray]:
    """Sum of two (sign, Wide, exponent), exact or with a sticky last bit far below any rounding.

    The operand with the higher leading bit is put at bit 125. The other loses bits only if it lies wholly
    or partly below bit 0, and then at most one leading bit can cancel: widths up to 100 bits are safe.
    """
    tops, placed = [], []
    for _, magnitude, exponent in (left, right):
        length = rounding.bit_length_wide(magnitude)
        tops.append(np.where(length > 0, exponent + length, np.iinfo(np.int64).min // 4))
    base = np.maximum(tops[0], tops[1]) - 125
    for sign, magnitude, exponent in (left, right):
        up = np.clip(exponent - base, 0, 127)
        down = np.clip(base - exponent, 0, 128)
        shifted = rounding.shift_right_jam(rounding.shift_left(magnitude, up), down)
        placed.append((sign, shifted))
    sign, total = rounding.add_signed(*placed)
    return sign, total, base


def accumulate(
    accumulator: np.ndarray,
    sign: np.ndarray,
    magnitude: Wide,
    exponent: np.ndarray,
    kind: np.ndarray | int = Kind.FINITE,
) -> np.ndarray:
    """accumulator + (-1)**sign * magnitude * 2**exponent, rounded once to nearest even.

    accumulator: uint32 FP32; magnitude: up to 100 bits; exponent: int64; kind: FINITE, INFINITY (of
    `sign`) or NAN. A zero magnitude is +0. All of one shape, or broadcastable. Returns uint32.
    """
    acc_sign, acc_significand, acc_exponent, acc_kind = decode(accumulator)
    zero = (magnitude.high | magnitude.low) == 0
    sign = np.asarray(sign) & ~(zero & (np.asarray(kind) == Kind.FINITE))
    total_sign, total, base = _add_exact(
        (acc_sign, rounding.wide(acc_significand), acc_exponent), (sign, magnitude, np.asarray(exponent, dtype=I64))
    )
    total_zero = (total.high | total.low) == 0
    both_negative_zero = total_zero & acc_sign & sign & (acc_significand == 0)
    result = encode(total_sign | both_negative_zero, total, base)
    kind = np.asarray(kind)
    infinite = (acc_kind == Kind.INFINITY) | (kind == Kind.INFINITY)
    infinite_sign = np.where(acc_kind == Kind.INFINITY, acc_sign, sign)
    result = np.where(infinite, INFINITY | np.where(infinite_sign, SIGN, np.uint32(0)), result)
    clash = (acc_kind == Kind.INFINITY) & (kind == Kind.INFINITY) & (acc_sign != sign)
    return np.where((acc_kind == Kind.NAN) | (kind == Kind.NAN) | clash, NAN, result).astype(np.uint32)


def add(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """left + right, IEEE 754 round to nearest even."""
    sign, significand, exponent, kind = decode(right)
    result = accumulate(left, sign, rounding.wide(significand), exponent, kind)
    # accumulate() has no negative zero on its right: -0 + -0 is -0.
    negative = (np.asarray(left, dtype=np.uint32) == SIGN) & (np.asarray(right, dtype=np.uint32) == SIGN)
    return np.where(negative, SIGN, result).astype(np.uint32)


def multiply(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """left * right, IEEE 754 round to nearest even."""
    sign_l, significand_l, exponent_l, kind_l = decode(left)
    sign_r, significand_r, exponent_r, kind_r = decode(right)
    sign = sign_l ^ sign_r
    product = rounding.wide(significand_l.astype(U64) * significand_r.astype(U64))
    result = encode(sign, product, exponent_l + exponent_r)
    infinite = (kind_l == Kind.INFINITY) | (kind_r == Kind.INFINITY)
    zero = ((significand_l == 0) & (kind_l == Kind.FINITE)) | ((significand_r == 0) & (kind_r == Kind.FINITE))
    result = np.where(infinite, INFINITY | np.where(sign, SIGN, np.uint32(0)), result)
    nan = (kind_l == Kind.NAN) | (kind_r == Kind.NAN) | (infinite & zero)
    return np.where(nan, NAN, result).astype(np.uint32)
