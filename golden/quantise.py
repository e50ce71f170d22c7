"""FP32 to block formats: the golden function of `hw.numerics.quantise`.

Scale rule "OCP floor" (OCP Microscaling v1.0, 6.3): the shared exponent is floor(log2(amax)) - emax of the
element format; elements round to nearest even and saturate.
"""

from __future__ import annotations

import numpy as np

from golden import fp32, rounding
from golden.formats import E8M0_BIAS, E8M0_NAN, Format, Kind


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
