"""Groups of FP32 values for the group quantiser, with the codes and scale words of `golden.quantise_groups`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from golden.formats import BLOCK, Format, ScaleType
from golden.quantise_groups import quantise_groups


class Group(NamedTuple):
    """One group: FP32 patterns, and for each the code and the scale word that the hardware sends."""

    format: Format
    values: np.ndarray
    codes: np.ndarray
    scale: int


def _styles(count: int, rng: np.random.Generator) -> np.ndarray:
    """FP32 patterns [count]: one of ordinary, wide range, anything, subnormal, few distinct, mostly zero, special."""
    style = rng.integers(0, 8)
    normal = rng.normal(size=count)
    if style == 0:
        values = normal
    elif style == 1:
        values = normal * np.exp2(rng.integers(-20, 20, count))
    elif style == 2:
        values = np.round(normal * 4) / 4 * np.exp2(float(rng.integers(-100, 100)))  # quotients that are ties
    elif style == 3:
        values = np.where(rng.random(count) < 0.9, 0.0, normal)
    elif style == 4:
        values = np.full(count, normal[0])
    else:
        patterns = rng.integers(0, 1 << 32, count, dtype=np.uint32)
        if style == 5:
            patterns &= np.uint32(0x80FFFFFF)
        elif style == 6:
            patterns = np.where((patterns & 0x7F800000) == 0x7F800000, patterns & np.uint32(0x80000000), patterns)
        return patterns
    return values.astype(np.float32).view(np.uint32)


def groups(format: Format, units: int, tensor_scale: int, rng: np.random.Generator) -> list[Group]:
    """Random groups: `units` of 32 elements or of one group, whichever is more."""
    unit = max(BLOCK, format.group)
    result = []
    for _ in range(units):
        values = _styles(unit, rng)
        paired = format.scale == ScaleType.E4M3_PAIR
        codes, words = quantise_groups(values, format, np.uint32(tensor_scale if paired else 0x3F800000))
        for first in range(0, unit, format.group):
            part = slice(first, first + format.group)
            word = int(words[0]) >> (8 if paired and first else 0) & (0xFF if paired else 0xFFFFFFFF)
            result.append(Group(format, values[part], codes[part], word))
    return result
