"""The one dot product: exact inside a block of 32, one rounding a block into FP32, ascending K.

Golden function of `hw.numerics.dot` and `hw.numerics.accumulate`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from golden import fp32, rounding
from golden.formats import BLOCK, E8M0_BIAS, E8M0_NAN, Element, Format, Kind
from golden.rounding import I64, Wide

_LIMB = 16


class BlockSums(NamedTuple):
    """Exact block sums [M, N] in units of the product of the two elements' least significant bits."""

    sign: np.ndarray
    magnitude: Wide
    kind: np.ndarray


def _check(codes: np.ndarray, scales: np.ndarray, format: Format, side: str) -> None:
    if format.scale != "E8M0":
        raise ValueError(f"{side}: {format.name} has scale {format.scale}, matmul() takes E8M0")
    if codes.ndim != 2 or codes.shape[1] % BLOCK:
        raise ValueError(f"{side}: codes must be [rows, K] with K a multiple of {BLOCK}, not {codes.shape}")
    if scales.shape != (codes.shape[0], codes.shape[1] // BLOCK):
        raise ValueError(f"{side}: scales must be {(codes.shape[0], codes.shape[1] // BLOCK)}, not {scales.shape}")
    if codes.dtype != np.uint8 or scales.dtype != np.uint8:
        raise ValueError(f"{side}: codes and scales must be uint8, not {codes.dtype} and {scales.dtype}")


def _product(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Exact int64 matrix product [M, B] x [N, B]; callers keep every partial sum below 2**53."""
    return (left.astype(np.float64) @ right.astype(np.float64).T).astype(I64)


def _infinities(a_codes: np.ndarray, b_codes: np.ndarray, a: Element, b: Element) -> tuple[np.ndarray, ...]:
    """(any +inf product, any -inf product, any inf * 0) as bool [M, N]."""
    parts = []
    for codes, element in ((a_codes, a), (b_codes, b)):
        sign, significand, _, kind = element.decode(codes)
        infinite = kind == Kind.INFINITY
        nonzero = infinite | (significand > 0)
        parts.append((infinite, nonzero & ~sign, nonzero & sign, ~nonzero))
    (a_inf, a_pos, a_neg, a_zero), (b_inf, b_pos, b_neg, b_zero) = parts

    def any_of(*pairs: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        return sum(_product(left, right) for left, right in pairs) > 0

    plus = any_of((a_inf & a_pos, b_pos), (a_inf & a_neg, b_neg), (a_pos, b_inf & b_pos), (a_neg, b_inf & b_neg))
    minus = any_of((a_inf & a_pos, b_neg), (a_inf & a_neg, b_pos), (a_pos, b_inf & b_neg), (a_neg, b_inf & b_pos))
    return plus, minus, any_of((a_inf, b_zero), (a_zero, b_inf))


def block_sums(a_codes: np.ndarray, b_codes: np.ndarray, a: Element, b: Element) -> BlockSums:
    """Exact sums over the last axis of all pairs of rows: [M, B] and [N, B] codes, B at most 32."""
    left, right = a.integers(a_codes), b.integers(b_codes)
    if a.magnitude_bits + b.magnitude_bits + 5 <= 53:
        sign, magnitude = rounding.from_signed(_product(left, right))
    else:
        upper = rounding.from_signed(_product(left, right >> _LIMB))
        upper = upper[0], rounding.shift_left(upper[1], np.full(upper[0].shape, _LIMB))
        lower = rounding.from_signed(_product(left, right & ((1 << _LIMB) - 1)))
        sign, magnitude = rounding.add_signed(upper, lower)
    kind = np.zeros(sign.shape, dtype=np.uint8)
    kinds_a, kinds_b = a.decode(a_codes)[3], b.decode(b_codes)[3]
    if (kinds_a == Kind.INFINITY).any() or (kinds_b == Kind.INFINITY).any():
        plus, minus, invalid = _infinities(a_codes, b_codes, a, b)
        kind = np.where(plus | minus, Kind.INFINITY, kind)
        sign = np.where(plus | minus, minus, sign)
        kind = np.where((plus & minus) | invalid, Kind.NAN, kind)
    nan = (kinds_a == Kind.NAN).any(axis=-1)[:, None] | (kinds_b == Kind.NAN).any(axis=-1)[None, :]
    return BlockSums(sign, magnitude, np.where(nan, Kind.NAN, kind).astype(np.uint8))


def matmul(a_codes: np.ndarray, a_scales: np.ndarray, b_codes: np.ndarray, b_scales: np.ndarray,
           format_a: Format, format_b: Format, accumulator: np.ndarray | None = None) -> np.ndarray:
    """A [M, K] times B [N, K] transposed: uint32 FP32 patterns [M, N].

    a_codes, b_codes: uint8 [M, K] and [N, K], one code a byte, K a multiple of 32 (pad with code 0 and
    scale 0); a_scales, b_scales: uint8 E8M0 [M, K/32] and [N, K/32]. `accumulator`: what to start from
    (uint32 [M, N]; +0 if absent). Each block's exact sum is added with one round to nearest even, in
    ascending K. `ValueError` for shapes, types or formats that the hardware refuses.
    """
    a_codes, a_scales, b_codes, b_scales = map(np.asarray, (a_codes, a_scales, b_codes, b_scales))
    _check(a_codes, a_scales, format_a, "a")
    _check(b_codes, b_scales, format_b, "b")
    if a_codes.shape[1] != b_codes.shape[1]:
        raise ValueError(f"K differs: {a_codes.shape[1]} and {b_codes.shape[1]}")
    shape = a_codes.shape[0], b_codes.shape[0]
    result = np.zeros(shape, dtype=np.uint32) if accumulator is None else np.array(accumulator, dtype=np.uint32)
    if result.shape != shape:
        raise ValueError(f"accumulator must be {shape}, not {result.shape}")
    unit = format_a.element.lsb + format_b.element.lsb - 2 * E8M0_BIAS
    for block in range(a_codes.shape[1] // BLOCK):
        part = slice(block * BLOCK, (block + 1) * BLOCK)
        sums = block_sums(a_codes[:, part], b_codes[:, part], format_a.element, format_b.element)
        scale_a, scale_b = a_scales[:, block].astype(I64)[:, None], b_scales[:, block].astype(I64)[None, :]
        kind = np.where((scale_a == E8M0_NAN) | (scale_b == E8M0_NAN), Kind.NAN, sums.kind)
        result = fp32.accumulate(result, sums.sign, sums.magnitude, scale_a + scale_b + unit, kind)
    return result
