"""FP32 to the formats whose scales are not powers of two: NVFP4, INT4_BF16, E4M3_FP32, Q4_1, UINT4_ZERO.

Every division is exact and rounded once. docs/numerics.md, "Quantising groups", states the rules.
"""

from __future__ import annotations

import numpy as np

from golden import fp32, rounding
from golden.formats import BF16, BLOCK, E4M3_ELEMENT, FP16, FP32, Element, Format, Kind, ScaleType
from golden.rounding import I64, U64, Wide

_ONE = np.uint32(0x3F800000)
NAN_WORDS = {
    ScaleType.E4M3_PAIR: 0x7F7F,
    ScaleType.BF16: 0x7FC0,
    ScaleType.FP32: 0x7FC00000,
    ScaleType.FP16_OFFSET: 0x7E007E00,
    ScaleType.FP16_ZERO: 0x7E00,
}
Number = tuple[np.ndarray, np.ndarray, np.ndarray]  # sign, significand below 2**24 (int64), exponent of its bit 0


def _number(element: Element, codes: np.ndarray) -> Number:
    """Finite codes as numbers; others as zero."""
    sign, significand, shift, kind = element.decode(codes)
    finite = kind == Kind.FINITE
    return sign, np.where(finite, significand, 0), element.lsb + np.where(finite, shift, 0)


def _divide(value: Number, divisor: Number) -> tuple[np.ndarray, Wide, np.ndarray]:
    """Exact quotient with a sticky last bit, at least 32 significant bits; a zero divisor gives zero."""
    sign, significand, exponent = value
    sign_d, significand_d, exponent_d = divisor
    sign, significand, exponent, sign_d, significand_d, exponent_d = np.broadcast_arrays(
        sign, significand, exponent, sign_d, significand_d, exponent_d
    )
    up = 61 - rounding.bit_length(significand.astype(U64))  # the dividend has 61 bits, whatever it was
    dividend = significand.astype(I64) << np.where(significand > 0, up, 0)
    safe = np.where(significand_d > 0, significand_d, 1)
    quotient = dividend // safe
    quotient |= (dividend - quotient * safe) != 0
    quotient = np.where(significand_d > 0, quotient, 0)
    return sign ^ sign_d, rounding.wide(quotient), exponent - exponent_d - up


def _quotient(element: Element, value: Number, divisor: Number) -> np.ndarray:
    """value / divisor as a code of `element`, rounded once, saturated."""
    return element.encode(*_divide(value, divisor), saturate=True)


def _integer(value: int) -> Number:
    return np.array(False), np.array(value), np.array(0)


def _largest(groups: np.ndarray) -> np.ndarray:
    """|value| of the largest element along the last axis, as FP32 patterns."""
    return (groups & np.uint32(0x7FFFFFFF)).max(axis=-1)


def _symmetric(
    groups: np.ndarray,
    format: Format,
    scale_element: Element,
    tensor_scale: np.uint32,
) -> tuple[np.ndarray, np.ndarray]:
    """scale = RNE(amax / largest code / tensor scale); code = RNE(value / (scale * tensor scale))."""
    element = format.element
    _, most, shift, _ = element.decode(np.array(element.max_code))
    tensor = _number(FP32, tensor_scale)
    most = int(most) << int(shift)
    trailing = (most & -most).bit_length() - 1  # 448 is 7 * 2**6: the divisor stays small
    divisor = tensor[0], tensor[1] * (most >> trailing), tensor[2] + element.lsb + trailing
    scales = _quotient(scale_element, _number(FP32, _largest(groups)), divisor)
    scale = _number(scale_element, scales)
    whole = scale[0] ^ tensor[0], scale[1] * tensor[1], scale[2] + tensor[2]
    codes = _quotient(element, _number(FP32, groups), tuple(part[..., None] for part in whole))
    return codes, scales


def _ranged(groups: np.ndarray, format: Format) -> tuple[np.ndarray, np.ndarray]:
    """Unsigned codes between the least and the greatest value of a group."""
    element = format.element
    keys = np.where(groups >> 31, -(groups & np.uint32(0x7FFFFFFF)).astype(I64), groups.astype(I64))
    order = np.argsort(keys, axis=-1)
    least, greatest = (np.take_along_axis(groups, order[..., [end]], -1)[..., 0] for end in (0, -1))
    least, greatest = (np.where(end << 1, end, np.uint32(0)) for end in (least, greatest))  # one zero, not two
    if format.scale == ScaleType.FP16_ZERO:  # zero has to be a code: the range includes it
        least = np.where(least >> 31, least, np.uint32(0))
        greatest = np.where(greatest >> 31, np.uint32(0), greatest)
    span = _number(FP32, np.minimum(fp32.add(greatest, least ^ np.uint32(0x80000000)), np.uint32(0x7F7FFFFF)))
    scales = _quotient(FP16, span, _integer(element.max_code))
    scale = tuple(part[..., None] for part in _number(FP16, scales))
    if format.scale == ScaleType.FP16_ZERO:
        zero = _quotient(element, _number(FP32, least ^ np.uint32(0x80000000)), _number(FP16, scales)).astype(I64)
        sign, magnitude, exponent = _divide(_number(FP32, groups), scale)
        steps, _ = rounding.round_magnitude(magnitude, exponent, 62, 0)
        steps = np.minimum(steps, U64(64)).astype(I64)
        codes = np.clip(np.where(sign, -steps, steps) + zero[..., None], 0, element.max_code)
        return codes, scales | zero.astype(U64) << U64(16)
    offsets = FP16.encode(*_as_exact(_number(FP32, least)), saturate=True)
    sign, significand, exponent = _number(FP16, offsets)
    minus_offset = fp32.encode(~sign, rounding.wide(significand), exponent)
    shifted = fp32.add(groups, np.broadcast_to(minus_offset[..., None], groups.shape))
    return _quotient(element, _number(FP32, shifted), scale), scales | offsets << U64(16)


def _as_exact(number: Number) -> tuple[np.ndarray, Wide, np.ndarray]:
    return number[0], rounding.wide(number[1]), number[2]


def quantise_groups(
    values: np.ndarray,
    format: Format,
    tensor_scale: np.uint32 = _ONE,
) -> tuple[np.ndarray, np.ndarray]:
    """FP32 patterns (uint32 [..., K]) to a format with a scale that is not a power of two.

    Returns (codes uint8 [..., K], scale words uint32 [..., K/32]): one word for each 32 elements, two scales in it for
    groups of 16, the same word repeated for groups of 128. A group that holds a NaN or an infinity gets NaN scales and
    codes 0. `tensor_scale`: FP32 pattern, positive, NVFP4 only. `ValueError` for other formats, types or lengths.
    """
    values = np.asarray(values)
    if values.dtype != np.uint32:
        raise ValueError(f"values must be uint32 FP32 bit patterns, not {values.dtype}")
    if format.scale == ScaleType.E8M0:
        raise ValueError(f"{format.name} has E8M0 scales: use golden.quantise.quantise()")
    unit = max(format.group, BLOCK)
    if values.ndim == 0 or values.shape[-1] % unit:
        raise ValueError(f"K must be a multiple of {unit} for {format.name}, not {values.shape[-1:]}")
    if tensor_scale != _ONE and format.scale != ScaleType.E4M3_PAIR:
        raise ValueError(f"{format.name} has no tensor scale")
    groups = values.reshape(*values.shape[:-1], -1, format.group)
    bad = ((groups & np.uint32(0x7F800000)) == 0x7F800000).any(axis=-1)
    groups = np.where(bad[..., None], np.uint32(0), groups)
    element = {ScaleType.E4M3_PAIR: E4M3_ELEMENT, ScaleType.BF16: BF16, ScaleType.FP32: FP32}.get(format.scale)
    codes, words = _ranged(groups, format) if element is None else _symmetric(groups, format, element, tensor_scale)
    codes = np.where(bad[..., None], 0, codes).astype(np.uint8).reshape(values.shape)
    if format.scale == ScaleType.E4M3_PAIR:
        words = np.where(bad, 0x7F, words).astype(np.uint32)
        return codes, words[..., 0::2] | words[..., 1::2] << 8
    words = np.where(bad, NAN_WORDS[format.scale], words).astype(np.uint32)
    return codes, np.repeat(words, format.group // BLOCK, axis=-1)
