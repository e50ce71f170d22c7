"""Blocks of FP32 values for the quantisers, with the codes and scales of `golden.quantise`."""

from __future__ import annotations

import numpy as np

from golden.formats import BLOCK, Format
from golden.quantise import quantise
from hw.numerics.formats import ElementFormat

RECORD = np.dtype(
    [("values", "<u4", BLOCK), ("codes", "u1", BLOCK), ("scale", "u1"), ("format", "u1"), ("padding", "<u2")]
)
SPECIALS = np.array([0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001, 0xFFFFFFFF], dtype=np.uint32)


def records(values: np.ndarray, format: Format) -> np.ndarray:
    """Records [T] from FP32 patterns [T, 32]."""
    result = np.zeros(len(values), dtype=RECORD)
    result["values"] = values
    result["codes"], scales = quantise(values, format)
    result["scale"] = scales[:, 0]
    result["format"] = ElementFormat[format.name].value
    return result


def every_bf16(rng: np.random.Generator) -> np.ndarray:
    """Every BF16 pattern once, [2048, 32], each block of neighbouring exponents (shuffled inside a window)."""
    patterns = np.arange(1 << 16, dtype=np.uint32)
    order = np.argsort((patterns & 0x7FFF) + rng.integers(0, 1024, len(patterns)))
    return (patterns[order] << 16).reshape(-1, BLOCK)


def adversarial(format: Format, count: int, rng: np.random.Generator) -> np.ndarray:
    """FP32 blocks [count, 32]: any bits, few binades, ties between codes and their neighbours, subnormals, specials."""
    shape = count, BLOCK
    anything = rng.integers(0, 1 << 32, shape, dtype=np.uint32)
    base = rng.integers(0, 254, (count, 1))
    spread = rng.choice([1, 4, 12, 40], (count, 1))
    field = np.clip(base - rng.integers(0, spread, shape), 0, 254)
    fraction = rng.choice(np.array([0, 1, 0x3FFFFF, 0x400000, 0x7FFFFF], dtype=np.uint32), shape)
    fraction = np.where(rng.random(shape) < 0.5, fraction, rng.integers(0, 1 << 23, shape))
    binades = (field << 23 | fraction).astype(np.uint32)
    # A tie has a one just below the last kept bit; its neighbours are one unit of FP32 away.
    keep = rng.integers(1, 9, shape)
    tie = (fraction >> (24 - keep) << (24 - keep)) | (1 << (23 - keep))
    ties = (field << 23 | tie).astype(np.uint32) + rng.integers(-1, 2, shape).astype(np.uint32)
    style = rng.random((count, 1))
    values = np.where(style < 0.4, binades, np.where(style < 0.8, ties, anything & 0x7FFFFFFF))
    values = np.where(style > 0.95, values & 0x00FFFFFF, values)
    values = np.where((rng.random((count, 1)) < 0.1) & (rng.random(shape) < 0.9), 0, values)
    values |= rng.integers(0, 2, shape, dtype=np.uint32) << 31
    special = (rng.random((count, 1)) < 0.05) & (rng.random(shape) < 0.1)
    return np.where(special, rng.choice(SPECIALS, shape), values).astype(np.uint32)
