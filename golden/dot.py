"""The one dot product: exact inside a block of 32, one rounding a block into FP32, ascending K.

Golden function of `hw.numerics.dot` and `hw.numerics.accumulate`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from golden import fp32, rounding
from golden.formats import BLOCK, Element, Format, Kind, ScaleType, pair_problem
from golden.formats_scale import Factors, Scales, decode_scales, multiply_scales
from golden.rounding import I64, Wide

_LIMB = 16
Product = Callable[[np.ndarray, np.ndarray], np.ndarray]
Signed = tuple[np.ndarray, Wide]


class BlockSums(NamedTuple):
    """Exact block sums, (-1)**sign * magnitude * 2**exponent."""

    sign: np.ndarray
    magnitude: Wide
    exponent: np.ndarray
    kind: np.ndarray


def _every_pair(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Exact int64 [M, N] from [M, B] and [N, B]; callers keep every partial sum below 2**53."""
    return (left.astype(np.float64) @ right.astype(np.float64).T).astype(I64)


def _row_by_row(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Exact int64 [T] from [T, B] and [T, B]."""
    return np.einsum("tb,tb->t", left.astype(I64), right.astype(I64))


def _exact(product: Product, left: np.ndarray, right: np.ndarray, bits: int) -> Signed:
    """Sums of products of integers of `bits` bits together, as (sign, Wide)."""
    if bits + 5 <= 53:
        return rounding.from_signed(product(left, right))
    sign, magnitude = rounding.from_signed(product(left, right >> _LIMB))
    upper = sign, rounding.shift_left(magnitude, np.full(sign.shape, _LIMB))
    return rounding.add_signed(upper, rounding.from_signed(product(left, right & ((1 << _LIMB) - 1))))


def _scaled(term: Signed, factors: Factors, index: int, with_shift: bool) -> Signed:
    """A sum times a scale factor, exact."""
    sign, magnitude = term
    significand, shift = factors.significand[index], factors.shift[index]
    if np.any(significand != 1):
        magnitude = rounding.multiply(magnitude, np.broadcast_to(significand, sign.shape))
    if with_shift:
        magnitude = rounding.shift_left(magnitude, np.broadcast_to(shift, sign.shape))
    return sign ^ factors.sign[index], magnitude


def _infinities(product: Product, *operands: tuple[np.ndarray, np.ndarray, Element]) -> tuple[np.ndarray, ...]:
    """(any +inf product, any -inf product, any inf * 0) as bool, from (codes, finite values, element) of A and B."""
    parts = []
    for codes, values, element in operands:
        sign, _, _, kind = element.decode(codes)
        infinite = kind == Kind.INFINITY
        parts.append(
            (
                infinite,
                np.where(infinite, ~sign, values > 0),
                np.where(infinite, sign, values < 0),
                ~infinite & (values == 0),
            )
        )
    (a_inf, a_pos, a_neg, a_zero), (b_inf, b_pos, b_neg, b_zero) = parts

    def any_of(*pairs: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        return sum(product(left, right) for left, right in pairs) > 0

    plus = any_of((a_inf & a_pos, b_pos), (a_inf & a_neg, b_neg), (a_pos, b_inf & b_pos), (a_neg, b_inf & b_neg))
    minus = any_of((a_inf & a_pos, b_neg), (a_inf & a_neg, b_pos), (a_pos, b_inf & b_neg), (a_neg, b_inf & b_pos))
    return plus, minus, any_of((a_inf, b_zero), (a_zero, b_inf))


def _terms(
    product: Product,
    left: np.ndarray,
    right: np.ndarray,
    format_a: Format,
    format_b: Format,
) -> tuple[Signed, Signed | None]:
    """The two sums that the two scale factors multiply; None where one factor serves the whole block."""
    bits = format_a.element.magnitude_bits + format_b.element.magnitude_bits + 1
    if ScaleType.E4M3_PAIR in (format_a.scale, format_b.scale):
        half = BLOCK // 2
        lower = _exact(product, left[:, :half], right[:, :half], bits)
        return lower, _exact(product, left[:, half:], right[:, half:], bits)
    total = _exact(product, left, right, bits)
    return total, _exact(product, left, np.ones_like(right), bits) if format_b.has_offset else None


def block_sums(
    product: Product,
    a_codes: np.ndarray,
    b_codes: np.ndarray,
    a_scales: Scales,
    b_scales: Scales,
    format_a: Format,
    format_b: Format,
) -> BlockSums:
    """Exact scaled sums of blocks, codes [rows, 32] and decoded scales that broadcast to the product's shape."""
    a, b = format_a.element, format_b.element
    left, right = a.integers(a_codes), b.integers(b_codes)
    left = left - a_scales.zero.reshape(-1, 1)
    right = right - b_scales.zero.reshape(-1, 1)
    first, second = _terms(product, left, right, format_a, format_b)
    factors = multiply_scales(a_scales, b_scales)
    exponent = factors.exponent + a.lsb + b.lsb
    sign, magnitude = _scaled(first, factors, 0, with_shift=second is not None)
    if second is not None:
        sign, magnitude = rounding.add_signed((sign, magnitude), _scaled(second, factors, 1, with_shift=True))
    else:  # one factor for the whole block: its shift can go into the exponent, whatever its size
        exponent = exponent + factors.shift[0]

    kind = np.zeros(sign.shape, dtype=np.uint8)
    kinds_a, kinds_b = a.decode(a_codes)[3], b.decode(b_codes)[3]
    if (kinds_a == Kind.INFINITY).any() or (kinds_b == Kind.INFINITY).any():
        plus, minus, invalid = _infinities(product, (a_codes, left, a), (b_codes, right, b))
        # Scale factors: their sign turns an infinity, a zero one makes NaN of it, and so does an offset.
        zero_factor = (factors.significand[0] == 0) | (factors.significand[1] == 0)
        invalid |= (plus | minus) & (zero_factor | format_b.has_offset)
        kind = np.where(plus | minus, Kind.INFINITY, kind)
        sign = np.where(plus | minus, minus ^ factors.sign[0], sign)
        kind = np.where((plus & minus) | invalid, Kind.NAN, kind)
    nan = a_scales.nan | b_scales.nan
    if (kinds_a == Kind.NAN).any() or (kinds_b == Kind.NAN).any():
        nan = nan | (product(kinds_a == Kind.NAN, np.ones_like(b_codes)) > 0)
        nan = nan | (product(np.ones_like(a_codes), kinds_b == Kind.NAN) > 0)
    return BlockSums(sign, magnitude, exponent, np.where(nan, Kind.NAN, kind).astype(np.uint8))


def _check(codes: np.ndarray, scales: np.ndarray, format: Format, side: str) -> None:
    if codes.ndim != 2 or codes.shape[1] % BLOCK:
        raise ValueError(f"{side}: codes must be [rows, K] with K a multiple of {BLOCK}, not {codes.shape}")
    if scales.shape != (codes.shape[0], codes.shape[1] // BLOCK):
        raise ValueError(f"{side}: scales must be {(codes.shape[0], codes.shape[1] // BLOCK)}, not {scales.shape}")
    if codes.dtype != np.uint8 or scales.dtype not in (np.uint8, np.uint32):
        raise ValueError(f"{side}: codes must be uint8, scales uint8 or uint32, not {codes.dtype} and {scales.dtype}")


def _check_pair(format_a: Format, format_b: Format) -> None:
    problem = pair_problem(format_a, format_b)
    if problem:
        raise ValueError(problem)


def matmul(
    a_codes: np.ndarray,
    a_scales: np.ndarray,
    b_codes: np.ndarray,
    b_scales: np.ndarray,
    format_a: Format,
    format_b: Format,
    accumulator: np.ndarray | None = None,
) -> np.ndarray:
    """A [M, K] times B [N, K] transposed: uint32 FP32 patterns [M, N].

    a_codes, b_codes: uint8 [M, K] and [N, K], one code a byte, K a multiple of 32 (pad with code 0 and
    scale 0); a_scales, b_scales: scale words, uint8 (E8M0) or uint32, [M, K/32] and [N, K/32].
    `accumulator`: what to start from (uint32 [M, N]; +0 if absent). Each block's exact sum is added with one
    round to nearest even, in ascending K. `ValueError` for shapes, types or pairs that the hardware refuses.
    """
    a_codes, a_scales, b_codes, b_scales = map(np.asarray, (a_codes, a_scales, b_codes, b_scales))
    _check(a_codes, a_scales, format_a, "a")
    _check(b_codes, b_scales, format_b, "b")
    _check_pair(format_a, format_b)
    if a_codes.shape[1] != b_codes.shape[1]:
        raise ValueError(f"K differs: {a_codes.shape[1]} and {b_codes.shape[1]}")
    shape = a_codes.shape[0], b_codes.shape[0]
    result = np.zeros(shape, dtype=np.uint32) if accumulator is None else np.array(accumulator, dtype=np.uint32)
    if result.shape != shape:
        raise ValueError(f"accumulator must be {shape}, not {result.shape}")
    for block in range(a_codes.shape[1] // BLOCK):
        part = slice(block * BLOCK, (block + 1) * BLOCK)
        sums = block_sums(
            _every_pair,
            a_codes[:, part],
            b_codes[:, part],
            decode_scales(a_scales[:, block, None], format_a),
            decode_scales(b_scales[None, :, block], format_b),
            format_a,
            format_b,
        )
        result = fp32.accumulate(result, sums.sign, sums.magnitude, sums.exponent, sums.kind)
    return result


def accumulate_blocks(
    accumulator: np.ndarray,
    a_codes: np.ndarray,
    a_scales: np.ndarray,
    b_codes: np.ndarray,
    b_scales: np.ndarray,
    format_a: Format,
    format_b: Format,
) -> np.ndarray:
    """Independent single steps: uint32 accumulators [T], codes [T, 32], scale words [T] to uint32 results [T]."""
    _check(a_codes, a_scales[:, None], format_a, "a")
    _check(b_codes, b_scales[:, None], format_b, "b")
    _check_pair(format_a, format_b)
    sums = block_sums(
        _row_by_row,
        a_codes,
        b_codes,
        decode_scales(a_scales, format_a),
        decode_scales(b_scales, format_b),
        format_a,
        format_b,
    )
    return fp32.accumulate(accumulator, sums.sign, sums.magnitude, sums.exponent, sums.kind)
