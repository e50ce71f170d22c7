"""The golden quantise and matmul again, a hundred times faster: for whole models, where `golden.dot` takes minutes.

Same arguments, same bits; `tests/test_model_fast.py` compares them. They are not a second specification: where their
argument for exactness does not hold they call `golden.quantise` and `golden.dot`.

Why `matmul` is exact: where the elements are small integers times a power of two, every partial sum of a block dot is
a multiple of one power of two and below 2**24 of it, so float32 holds it whatever the order of the sum, and adding it
to the float32 accumulator rounds once. Formats with wider block sums (E4M3, E5M2) or other scales than E8M0, and
scales near the ends of the exponent range, go to `golden.dot`.
Why `quantise` is exact: float64 holds every float32 times a power of two and every multiple of the element's spacing,
so rounding to that spacing is the only rounding.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from golden import dot
from golden import quantise as exact
from golden.formats import BLOCK, E8M0_BIAS, E8M0_NAN, Element, Format, Kind, ScaleType

Bytes = NDArray[np.uint8]
Bits = NDArray[np.uint32]

_EXACT_BITS = 24
_LEAST_EXPONENT, _GREATEST_EXPONENT = -126, 127 - _EXACT_BITS
_TILE = (64, 96)  # rows and columns of a product at a time
_ROWS = 1 << 16  # elements quantised at a time


@lru_cache(maxsize=64)
def _integers(element: Element) -> tuple[NDArray[np.float32], int]:
    """All codes in units of 2**lsb as float32 [256], and the largest magnitude; NaN and infinity are NaN."""
    codes = np.arange(256)
    values = element.integers(codes).astype(np.float64)
    largest = int(np.abs(values).max())
    values[element.decode(codes)[3] != Kind.FINITE] = np.nan
    return values.astype(np.float32), largest


def _plain(format: Format) -> bool:
    """Whether blocks of 32 share a power of two and nothing else."""
    return format.scale == ScaleType.E8M0 and format.group == BLOCK


def _scaled(codes: Bytes, scales: Bytes, format: Format) -> tuple[NDArray[np.float32], int, int] | None:
    """Values [rows, K/32, 32] in float32 and the least and greatest exponent in use; None where NaN is about."""
    table, _ = _integers(format.element)
    values = table[codes].reshape(len(codes), -1, format.group)
    used = np.abs(values).max(axis=-1) != 0  # NaN counts as used
    exponents = np.where(used, scales.astype(np.int32) - E8M0_BIAS, 0) + format.element.lsb
    if np.isnan(values).any() or (used & (scales == E8M0_NAN)).any():
        return None
    with np.errstate(over="ignore"):  # `matmul` looks at the exponents before it uses the values
        scaled = values * np.ldexp(np.float32(1), exponents)[..., None]
    return scaled, int(exponents.min()), int(exponents.max())


def matmul(
    a_codes: Bytes, a_scales: Bytes, b_codes: Bytes, b_scales: Bytes, format_a: Format, format_b: Format
) -> Bits:
    """`golden.dot.matmul` without an accumulator to start from: uint8 [M, K] and [N, K] to FP32 bits uint32 [M, N]."""
    whole = (a_codes, a_scales, b_codes, b_scales, format_a, format_b)
    if not (_plain(format_a) and _plain(format_b)) or not a_codes.size or not b_codes.size:
        return dot.matmul(*whole)
    if BLOCK * _integers(format_a.element)[1] * _integers(format_b.element)[1] >> _EXACT_BITS:
        return dot.matmul(*whole)
    if (a_scales == E8M0_NAN).any() or (b_scales == E8M0_NAN).any():
        return dot.matmul(*whole)
    a, b = _scaled(a_codes, a_scales, format_a), _scaled(b_codes, b_scales, format_b)
    if a is None or b is None or a[1] + b[1] < _LEAST_EXPONENT or a[2] + b[2] > _GREATEST_EXPONENT:
        return dot.matmul(*whole)
    for (_, least, greatest), format in ((a, format_a), (b, format_b)):
        if least < _LEAST_EXPONENT or greatest > 127 - format.bits:
            return dot.matmul(*whole)
    # Tiles of a size that BLAS does not spread over threads: these cost more here than they bring.
    left = np.ascontiguousarray(a[0].swapaxes(0, 1))  # [K/32, M, 32]
    right = np.ascontiguousarray(b[0].transpose(1, 2, 0))  # [K/32, 32, N]
    result = np.zeros((len(a_codes), len(b_codes)), np.float32)
    for row in range(0, len(result), _TILE[0]):
        for column in range(0, result.shape[1], _TILE[1]):
            rows, columns = slice(row, row + _TILE[0]), slice(column, column + _TILE[1])
            total = result[rows, columns].copy()
            for block in range(len(left)):
                total += left[block, rows] @ right[block, :, columns]
            result[rows, columns] = total
    return result.view(np.uint32)


def _quantise_rows(blocks: NDArray[np.float32], format: Format) -> tuple[Bytes, Bytes]:
    """Blocks [rows, 32] of finite float32 to codes [rows, 32] and scales [rows]."""
    element = format.element
    amax = np.abs(blocks).max(axis=-1).astype(np.float64)
    top = np.where(amax > 0, np.frexp(amax)[1] - 1, -1000)
    shared = np.clip(top - element.max_exponent, -E8M0_BIAS, E8M0_BIAS)
    scales = (shared + E8M0_BIAS).astype(np.uint8)
    if element.is_integer:
        scaled = blocks * np.ldexp(1.0, -shared - element.lsb)[:, None]
        np.rint(scaled, out=scaled)
        np.clip(scaled, -element.max_code, element.max_code, out=scaled)
        return scaled.astype(np.int8).view(np.uint8) & np.uint8((1 << element.bits) - 1), scales
    scaled = blocks * np.ldexp(1.0, -shared)[:, None]
    spacing = np.maximum(np.frexp(scaled)[1] - 1 - element.mantissa_bits, element.lsb)
    magnitude = np.abs(np.ldexp(np.rint(np.ldexp(scaled, -spacing)), spacing))
    finite = np.arange(element.max_code + 1)
    values = np.ldexp(element.integers(finite).astype(np.float64), element.lsb)
    codes = np.searchsorted(values, np.minimum(magnitude, values[-1]))
    return (codes | (np.signbit(scaled).astype(np.int64) << (element.bits - 1))).astype(np.uint8), scales


def quantise(values: Bits, format: Format) -> tuple[Bytes, Bytes]:
    """`golden.quantise.quantise`: FP32 bits uint32 [..., K] to codes uint8 [..., K] and scales uint8 [..., K/32]."""
    values = np.ascontiguousarray(values)
    if (
        values.dtype != np.uint32
        or format.scale != ScaleType.E8M0
        or values.ndim == 0
        or values.shape[-1] % format.group
    ):
        return exact.quantise(values, format)
    floats = values.view(np.float32)
    if not np.isfinite(floats).all():
        return exact.quantise(values, format)
    blocks = floats.reshape(-1, format.group)
    step = _ROWS // format.group
    parts = [_quantise_rows(blocks[i : i + step], format) for i in range(0, len(blocks), step)]
    codes = np.concatenate([p[0] for p in parts]) if parts else np.zeros((0, format.group), np.uint8)
    scales = np.concatenate([p[1] for p in parts]) if parts else np.zeros(0, np.uint8)
    shape = values.shape
    return codes.reshape(shape), scales.reshape(*shape[:-1], shape[-1] // format.group)
