"""FP32 to block formats: the golden function of `hw.numerics.quantise`.

Scale rule "OCP floor" (OCP Microscaling v1.0, 6.3): the shared exponent is floor(log2(amax)) - emax of the
element format; elements round to nearest even and saturate.
"""

from __future__ import annotations

import numpy as np

from golden import fp32, rounding
from golden.formats import BLOCK, E8M0_BIAS, E8M0_NAN, MXINT8, Format, Kind


def quantise(values: np.ndarray, format: Format) -> tuple[np.ndarray, np.ndarray]:
    """Quantise FP32 bit patterns (uint32 [..., K], K a multiple of 32) to an MX format.

    Returns (codes uint8 [..., K], one code a byte; scales uint8 [..., K/32], E8M0). A block that holds a NaN
    or an infinity gets scale 0xFF and codes 0. A block of zeros gets scale 0. -0 keeps its sign where
    the element has one. `ValueError` if K is not a multiple of the block or the scale is not E8M0.
    """
    values = np.asarray(values)
    if values.dtype != np.uint32:
        raise ValueError(f"values must be uint32 FP32 bit patterns, not {values.dtype}")
    if format.scale != "E8M0":
        raise ValueError(f"quantise() makes E8M0 scales, {format.name} has {format.scale}")
    if values.ndim == 0 or values.shape[-1] % format.group:
        raise ValueError(f"K must be a multiple of {format.group}, not {values.shape[-1:]}")
    blocks = values.reshape(*values.shape[:-1], -1, format.group)
    sign, significand, exponent, kind = fp32.decode(blocks)
    bad = np.any(kind != Kind.FINITE, axis=-1)
    # floor(log2(amax)): the magnitude pattern orders like the value.
    top = exponent + rounding.bit_length(significand) - 1
    top = np.where(significand > 0, top, -1000).max(axis=-1, initial=-1000)
    shared = np.clip(top - format.element.max_exponent, -E8M0_BIAS, E8M0_BIAS)
    codes = format.element.encode(sign, rounding.wide(significand), exponent - shared[..., None], saturate=True)
    codes = np.where(bad[..., None], 0, codes).astype(np.uint8)
    scales = np.where(bad, E8M0_NAN, shared + E8M0_BIAS).astype(np.uint8)
    return codes.reshape(values.shape), scales


def split_bf16(values: np.ndarray, planes: int = 2) -> list[tuple[np.ndarray, np.ndarray]]:
    """FP32 (or BF16 << 16) patterns as a sum of MXINT8 planes, the most significant first: BF16 operands.

    values: uint32 [..., K]. Each block becomes integers n = RNE(value / 2**shared * 2**(7 * planes - 1)), shared being
    floor(log2(amax)), saturated at 7 * planes + 1 signed bits; plane p holds bits of weight 2**-6 * 128**-p: the first
    one signed, the others 0 to 127. Returns [(codes uint8 [..., K], scales uint8 [..., K/32])] for each plane: their
    sum is the value, exactly where a BF16 value is within 7 * planes - 8 binades of the block's largest, else to
    2**(shared - 7 * planes). 1 to 4 planes.
    """
    if planes not in (1, 2, 3, 4):
        raise ValueError(f"BF16 operands are split into 1 to 4 planes, not {planes}")
    _, scales = quantise(values, MXINT8)
    blocks = np.asarray(values).reshape(*values.shape[:-1], -1, BLOCK)
    sign, significand, exponent, kind = fp32.decode(blocks)
    shared = scales.astype(np.int64) - E8M0_BIAS
    number, _ = rounding.round_magnitude(rounding.wide(significand), exponent - shared[..., None], 62, 1 - 7 * planes)
    number = np.where(kind == Kind.FINITE, number.astype(np.int64), 0)
    limit = 1 << (7 * planes)
    number = np.clip(np.where(sign, -number, number), -limit, limit - 1)
    result = []
    for plane in range(planes):
        part = number >> (7 * (planes - 1 - plane))
        part = part if plane == 0 else part & 0x7F
        lower = np.maximum(scales.astype(np.int64) - 7 * plane, 0)
        # Scale byte 0 is the least there is: what would need a smaller one is a subnormal tail, shifted out here.
        part = part >> np.minimum(lower - (scales - 7 * plane), 62)[..., None]
        codes = np.where((scales == E8M0_NAN)[..., None], 0, part).astype(np.uint8)
        result.append((codes.reshape(values.shape), np.where(scales == E8M0_NAN, E8M0_NAN, lower).astype(np.uint8)))
    return result
