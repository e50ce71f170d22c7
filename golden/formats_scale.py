"""What a block's scale word means: from E8M0 bytes to groups with an offset or a zero point.

A scale word is one unsigned integer for each block of 32 elements (docs/numerics.md, "Scale words"). Decoded, it is
two integer factors, one for each half of a block (NVFP4) or one for the codes and one for the offset (Q4_1), over a
common exponent.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from golden import rounding
from golden.formats import BF16, E4M3_ELEMENT, E8M0_BIAS, E8M0_NAN, FP16, FP32, Element, Format, Kind, ScaleType
from golden.rounding import I64, U64

FACTOR_BITS = 24
"""The product of two scales is rounded once to this many significant bits."""


class Scales(NamedTuple):
    """Decoded scale words of one shape; factor i is (-1)**sign[i] * significand[i] * 2**(exponent + shift[i])."""

    sign: tuple[np.ndarray, np.ndarray]
    significand: tuple[np.ndarray, np.ndarray]
    shift: tuple[np.ndarray, np.ndarray]
    exponent: np.ndarray
    nan: np.ndarray
    zero: np.ndarray


class Factors(NamedTuple):
    """The product of two decoded scales: factor i is (-1)**sign[i] * significand[i] * 2**(exponent + shift[i])."""

    sign: list[np.ndarray]
    significand: list[np.ndarray]
    shift: list[np.ndarray]
    exponent: np.ndarray


def scale_bits(format: Format) -> int:
    """Bits of a scale word."""
    return {
        ScaleType.E8M0: 8,
        ScaleType.E4M3_PAIR: 16,
        ScaleType.BF16: 16,
        ScaleType.FP32: 32,
        ScaleType.FP16_OFFSET: 32,
        ScaleType.FP16_ZERO: 21,
    }[format.scale]


def _floating(element: Element, words: np.ndarray, fixed: bool) -> tuple[np.ndarray, ...]:
    """(sign, significand, shift, exponent, nan): the exponent field as a shift (`fixed`) or in the exponent."""
    sign, significand, shift, kind = element.decode(words)
    lsb = np.full(sign.shape, element.lsb, dtype=I64)
    nan = kind != Kind.FINITE
    shift = np.where(nan, 0, shift)
    return (sign, significand, shift, lsb, nan) if fixed else (sign, significand, 0 * shift, lsb + shift, nan)


def decode_scales(words: np.ndarray, format: Format) -> Scales:
    """Scale words (unsigned, any shape) of `format`. NaN: an infinity or NaN, an E4M3 scale with its
    sign set, a zero point above 16."""
    words = np.asarray(words).astype(I64)
    none = np.zeros_like(words)
    if format.scale == ScaleType.E8M0:
        one, plus = none + 1, none != 0
        return Scales((plus, plus), (one, one), (none, none), words - E8M0_BIAS, words == E8M0_NAN, none)
    if format.scale in (ScaleType.E4M3_PAIR, ScaleType.FP16_OFFSET):
        element = E4M3_ELEMENT if format.scale == ScaleType.E4M3_PAIR else FP16
        first, second = (_floating(element, part, fixed=True) for part in (words, words >> element.bits))
        nan = first[4] | second[4]
        if format.scale == ScaleType.E4M3_PAIR:
            nan = nan | first[0] | second[0]
        return Scales((first[0], second[0]), (first[1], second[1]), (first[2], second[2]), first[3], nan, none)
    element = {ScaleType.BF16: BF16, ScaleType.FP32: FP32, ScaleType.FP16_ZERO: FP16}[format.scale]
    sign, significand, shift, exponent, nan = _floating(element, words, fixed=False)
    zero = (words >> FP16.bits) & 0x1F if format.scale == ScaleType.FP16_ZERO else none
    nan = nan | (zero > 16)
    return Scales((sign, sign), (significand, significand), (shift, shift), exponent, nan, np.minimum(zero, 16))


def multiply_scales(a: Scales, b: Scales) -> Factors:
    """Factor by factor, significands rounded once to 24 bits (nearest even); the exponent has no limits."""
    signs, significands, shifts = [], [], []
    for index in range(2):
        product = rounding.wide(a.significand[index].astype(U64) * b.significand[index].astype(U64))
        excess = np.maximum(rounding.bit_length(product.low) - FACTOR_BITS, 0)
        significand = product.low
        if excess.any():
            significand, _ = rounding.round_magnitude(product, np.zeros_like(excess), FACTOR_BITS, excess)
        signs.append(a.sign[index] ^ b.sign[index])
        significands.append(significand)
        shifts.append(a.shift[index] + b.shift[index] + excess)
    return Factors(signs, significands, shifts, a.exponent + b.exponent)
