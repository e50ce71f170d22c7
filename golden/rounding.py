"""The one integer rounding core: every golden model rounds here.

A magnitude is a `Wide`: 128 bits in two uint64 arrays (high, low). A value is
``(-1)**sign * magnitude * 2**exponent``. Nothing here, nor in what is built on it, uses a float as an
intermediate result: a "wide enough" float rounds twice.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

U64 = np.uint64
I64 = np.int64
_ZERO, _ONE, _WORD = U64(0), U64(1), U64(64)


class Wide(NamedTuple):
    """128-bit unsigned integers: two uint64 arrays of one shape."""

    high: np.ndarray
    low: np.ndarray


def wide(low: np.ndarray) -> Wide:
    """A uint64 (or non-negative int64) array as `Wide`."""
    low = np.asarray(low).astype(U64)
    return Wide(np.zeros_like(low), low)


def bit_length(value: np.ndarray) -> np.ndarray:
    """int64: the number of bits of each uint64; 0 for 0."""
    value = np.asarray(value, dtype=U64)
    upper = (value >> U64(32)).astype(np.float64)  # 32 bits are exact in a float64, so frexp is exact
    lower = (value & U64(0xFFFFFFFF)).astype(np.float64)
    return np.where(upper > 0, np.frexp(upper)[1] + 32, np.frexp(lower)[1]).astype(I64)


def bit_length_wide(value: Wide) -> np.ndarray:
    """int64: the number of bits of each 128-bit magnitude."""
    return np.where(value.high != 0, bit_length(value.high) + 64, bit_length(value.low))


def _left64(value: np.ndarray, count: np.ndarray) -> np.ndarray:
    return np.where(count < _WORD, value << np.minimum(count, U64(63)), _ZERO)


def _right64(value: np.ndarray, count: np.ndarray) -> np.ndarray:
    return np.where(count < _WORD, value >> np.minimum(count, U64(63)), _ZERO)


def shift_left(value: Wide, count: np.ndarray) -> Wide:
    """Shift left by 0..127 bits; bits shifted out at the top are lost (callers keep them zero)."""
    count = np.asarray(count).astype(U64)
    over = np.where(count >= _WORD, count - np.minimum(count, _WORD), _ZERO)
    back = _WORD - np.minimum(count, _WORD)
    spill = np.where(count == 0, _ZERO, _right64(value.low, back))
    high = np.where(count >= _WORD, _left64(value.low, over), _left64(value.high, count) | spill)
    return Wide(high, _left64(value.low, count))


def shift_right(value: Wide, count: np.ndarray) -> tuple[Wide, np.ndarray]:
    """Shift right by any non-negative count. Returns the quotient and whether a one was lost (bool)."""
    count = np.minimum(np.asarray(count), 128).astype(U64)
    over = np.where(count >= _WORD, count - np.minimum(count, _WORD), _ZERO)
    inside = np.minimum(count, _WORD)
    spill = np.where(count == 0, _ZERO, _left64(value.high, _WORD - inside))
    low = np.where(count >= _WORD, _right64(value.high, over), _right64(value.low, count) | spill)
    high = _right64(value.high, count)
    back = shift_left(Wide(high, low), np.minimum(count, U64(127)))
    same = (back.high == value.high) & (back.low == value.low)
    lost = np.where(count >= U64(128), (value.high | value.low) != 0, ~same)
    return Wide(high, low), lost


def shift_right_jam(value: Wide, count: np.ndarray) -> Wide:
    """Shift right; a lost one is kept as a one in bit 0 (sticky)."""
    quotient, lost = shift_right(value, count)
    return Wide(quotient.high, quotient.low | lost.astype(U64))


def add(left: Wide, right: Wide) -> Wide:
    """Sum modulo 2**128."""
    low = left.low + right.low
    return Wide(left.high + right.high + (low < left.low).astype(U64), low)


def subtract(left: Wide, right: Wide) -> Wide:
    """Difference modulo 2**128."""
    return Wide(left.high - right.high - (left.low < right.low).astype(U64), left.low - right.low)


def less(left: Wide, right: Wide) -> np.ndarray:
    """bool: left < right, unsigned."""
    return (left.high < right.high) | ((left.high == right.high) & (left.low < right.low))


def select(condition: np.ndarray, yes: Wide, no: Wide) -> Wide:
    """Element by element, `yes` where the condition holds."""
    return Wide(np.where(condition, yes.high, no.high), np.where(condition, yes.low, no.low))


def from_signed(value: np.ndarray) -> tuple[np.ndarray, Wide]:
    """int64 (not -2**63) to (sign as bool, magnitude)."""
    value = np.asarray(value, dtype=I64)
    return value < 0, wide(np.abs(value))


def add_signed(left: tuple[np.ndarray, Wide], right: tuple[np.ndarray, Wide]) -> tuple[np.ndarray, Wide]:
    """Exact sum of two (sign, magnitude) pairs below 2**127; an exact zero is positive."""
    (sign_l, mag_l), (sign_r, mag_r) = left, right
    swap = less(mag_l, mag_r)
    big, small = select(swap, mag_r, mag_l), select(swap, mag_l, mag_r)
    total = select(sign_l == sign_r, add(big, small), subtract(big, small))
    return np.where(swap, sign_r, sign_l) & ((total.high | total.low) != 0), total


def multiply(value: Wide, factor: np.ndarray) -> Wide:
    """A magnitude times a factor below 2**32, exact when the product is below 2**128."""
    factor = np.asarray(factor).astype(U64)
    mask, half = U64(0xFFFFFFFF), U64(32)
    total = wide(np.zeros_like(value.low))
    for index, limb in enumerate((value.low & mask, value.low >> half, value.high & mask, value.high >> half)):
        product = wide(limb * factor)
        total = add(total, shift_left(product, np.full(product.low.shape, 32 * index)))
    return total


def round_magnitude(
    value: Wide,
    exponent: np.ndarray,
    precision: int,
    min_exponent: int | np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Round to nearest, ties to even: the only rounding of the golden models.

    value * 2**exponent becomes significand * 2**result_exponent with at most `precision` bits (at most
    62), where result_exponent is never below `min_exponent` (gradual underflow); it is that for a zero.
    Returns (uint64 significand, int64 result_exponent). The significand may be exactly 2**precision after a carry: the
    value is right all the same.
    """
    exponent = np.asarray(exponent, dtype=I64)
    length = bit_length_wide(value)
    # Zero has no leading bit: it takes the smallest exponent, whatever its own.
    target = np.where(length > 0, np.maximum(exponent + length - precision, min_exponent), min_exponent)
    down = np.maximum(target - exponent, 0)
    up = np.maximum(exponent - target, 0)
    # One bit more than the result, so that the half is visible; below it only "was there anything".
    halves, lost = shift_right(value, np.maximum(down - 1, 0))
    half = np.where(down > 0, halves.low & _ONE, _ZERO)
    kept = np.where(down > 0, shift_right(halves, np.ones_like(down))[0].low, value.low)
    round_up = half & (lost.astype(U64) | (kept & _ONE))
    return np.where(up > 0, _left64(value.low, up.astype(U64)), kept + round_up), target
