"""Blocks for the dot product: every pair of codes, and random blocks from distributions that hurt.

A record is what `bench.RECORD` holds; the expected results come from `golden.dot`.
"""

from __future__ import annotations

import numpy as np

from golden.dot import accumulate_blocks
from golden.formats import BLOCK, FORMATS, Format, Kind, ScaleType, pair_problem
from golden.formats_scale import scale_bits
from hw.numerics.formats import ElementFormat

RECORD = np.dtype(
    [
        ("a_codes", "u1", BLOCK),
        ("b_codes", "u1", BLOCK),
        ("a_scale", "<u4"),
        ("b_scale", "<u4"),
        ("a_format", "u1"),
        ("b_format", "u1"),
        ("padding", "<u2"),
        ("accumulator", "<u4"),
        ("expected", "<u4"),
    ]
)
SPECIAL_ACCUMULATORS = np.array(
    [
        0,
        0x80000000,
        1,
        0x80000001,
        0x007FFFFF,
        0x00800000,
        0x7F7FFFFF,
        0xFF7FFFFF,
        0x7F800000,
        0xFF800000,
        0x7FC00000,
        0xFFC00001,
        0x7F800001,
    ],
    dtype=np.uint32,
)


def pairs(names: list[str]) -> list[tuple[Format, Format]]:
    """The ordered pairs of formats that the hardware multiplies."""
    formats = [FORMATS[name] for name in names]
    return [(a, b) for a in formats for b in formats if pair_problem(a, b) is None]


def records(
    a: Format,
    b: Format,
    a_codes: np.ndarray,
    b_codes: np.ndarray,
    a_scale: np.ndarray,
    b_scale: np.ndarray,
    accumulator: np.ndarray,
) -> np.ndarray:
    """Records with their expected results, [T] of `RECORD`."""
    result = np.zeros(len(a_codes), dtype=RECORD)
    result["a_codes"], result["b_codes"] = a_codes, b_codes
    result["a_scale"], result["b_scale"] = a_scale, b_scale
    result["a_format"], result["b_format"] = ElementFormat[a.name].value, ElementFormat[b.name].value
    result["accumulator"] = accumulator
    result["expected"] = accumulate_blocks(
        result["accumulator"],
        result["a_codes"],
        result["a_scale"].copy(),
        result["b_codes"],
        result["b_scale"].copy(),
        a,
        b,
    )
    return result


def neutral_scale(format: Format) -> int:
    """The scale word of a scale of one (an offset and a zero point of zero)."""
    return {
        ScaleType.E8M0: 127,
        ScaleType.E4M3_PAIR: 0x3838,
        ScaleType.BF16: 0x3F80,
        ScaleType.FP32: 0x3F800000,
        ScaleType.FP16_OFFSET: 0x3C00,
        ScaleType.FP16_ZERO: 0x3C00,
    }[format.scale]


def every_code_pair(a: Format, b: Format, all_lanes: bool = False) -> np.ndarray:
    """Every pair of codes: one at a time in a lane that moves on, or in every lane a different pair (`all_lanes`)."""
    count = 1 << (a.bits + b.bits)
    index = np.arange(count)
    a_codes, b_codes = (np.zeros((count, BLOCK), dtype=np.uint8) for _ in range(2))
    if all_lanes:
        pair = (index[:, None] + np.arange(BLOCK) * 7919) % count  # each lane passes through all of them
        a_codes[:], b_codes[:] = pair >> b.bits, pair & ((1 << b.bits) - 1)
        # NaN and infinity would hide the other lanes: they are in the run with one lane.
        for codes, format in ((a_codes, a), (b_codes, b)):
            codes[format.element.decode(codes)[3] != Kind.FINITE] = 1
    else:
        lane = index % BLOCK
        a_codes[index, lane], b_codes[index, lane] = index >> b.bits, index & ((1 << b.bits) - 1)
    scales = [np.full(count, neutral_scale(format), dtype=np.uint32) for format in (a, b)]
    return records(a, b, a_codes, b_codes, *scales, np.zeros(count, dtype=np.uint32))


def _codes(format: Format, shape: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    """Random codes: uniform, sparse, extreme values only, one large among small; one block in ten with specials."""
    element = format.element
    every = np.arange(1 << element.bits, dtype=np.uint8)
    finite = every[element.decode(every)[3] == Kind.FINITE]
    value = np.abs(element.integers(finite))
    extremes = finite[(value == value.max()) | (value == value[value > 0].min()) | (value == 0)]
    small = finite[value <= np.median(value)]
    uniform = rng.choice(finite, shape)
    style = rng.integers(0, 6, (shape[0], 1))
    codes = np.where(style == 0, rng.choice(extremes, shape), uniform)
    codes = np.where((style == 1) & (rng.random(shape) < 0.9), finite[0], codes)
    lone = np.arange(shape[1]) == rng.integers(0, shape[1], (shape[0], 1))
    codes = np.where(style == 2, np.where(lone, rng.choice(extremes, shape), rng.choice(small, shape)), codes)
    special = (rng.random((shape[0], 1)) < 0.1) & (rng.random(shape) < 0.05)
    return np.where(special, rng.choice(every, shape), codes).astype(np.uint8)


def random_scales(format: Format, count: int, rng: np.random.Generator) -> np.ndarray:
    """Random scale words: near one, at the ends of the range, any bits."""
    style = rng.random(count)
    anything = rng.integers(0, 1 << scale_bits(format), count)
    if format.scale == ScaleType.E8M0:
        near = rng.integers(107, 148, count)
        ends = rng.choice([0, 1, 2, 30, 60, 190, 253, 254, 255], count)
        return np.where(style < 0.6, near, np.where(style < 0.9, ends, anything)).astype(np.uint32)
    tame = {
        ScaleType.E4M3_PAIR: rng.integers(0, 0x7F, count) | rng.integers(0, 0x7F, count) << 8,
        ScaleType.BF16: rng.integers(0x3580, 0x4A00, count) | rng.integers(0, 2, count) << 15,
        ScaleType.FP32: rng.integers(0x35800000, 0x4A000000, count) | rng.integers(0, 2, count) << 31,
        ScaleType.FP16_OFFSET: rng.integers(0, 0x7C00, count)
        | rng.integers(0, 0x7C00, count) << 16
        | rng.integers(0, 2, count) << 15
        | rng.integers(0, 2, count) << 31,
        ScaleType.FP16_ZERO: rng.integers(0, 0x7C00, count) | rng.integers(0, 17, count) << 16,
    }[format.scale]
    return np.where(style < 0.8, tame, anything).astype(np.uint32)


def _cancel(a: Format, b: Format, a_codes: np.ndarray, b_codes: np.ndarray, rng: np.random.Generator) -> None:
    """In a fifth of the blocks, the upper half repeats the lower with the sign of A turned, but for one lane."""
    half = BLOCK // 2
    rows = np.flatnonzero(rng.random(len(a_codes)) < 0.2)
    lower = a_codes[rows, :half]
    if a.element.is_integer:
        turned = -lower.astype(np.int64)
    else:
        turned = lower ^ (1 << (a.bits - 1))
    a_codes[rows, half:] = turned & ((1 << a.bits) - 1)
    b_codes[rows, half:] = b_codes[rows, :half]
    b_codes[rows, half] ^= (rng.random(len(rows)) < 0.5).astype(np.uint8)


def adversarial(a: Format, b: Format, count: int, rng: np.random.Generator) -> np.ndarray:
    """Random blocks with cancellation, extreme alignments and scales, subnormals and specials, all signs."""
    a_codes, b_codes = _codes(a, (count, BLOCK), rng), _codes(b, (count, BLOCK), rng)
    _cancel(a, b, a_codes, b_codes, rng)
    a_scale, b_scale = random_scales(a, count, rng), random_scales(b, count, rng)
    alone = records(a, b, a_codes, b_codes, a_scale, b_scale, np.zeros(count, dtype=np.uint32))["expected"]
    # The accumulator: anything; the sum's own value turned around, a few units off; near it in exponent; special.
    style = rng.random(count)
    sign = rng.integers(0, 2, count, dtype=np.uint32) << 31
    accumulator = rng.integers(0, 1 << 32, count, dtype=np.uint32)
    turned = (alone ^ np.uint32(0x80000000)) + rng.integers(-3, 4, count).astype(np.uint32)
    near = (alone ^ sign) + (rng.integers(-32, 33, count) << 23).astype(np.uint32)
    near = (near & ~np.uint32(0xFFF)) | rng.choice(np.array([0, 1, 0x800, 0xFFF], dtype=np.uint32), count)
    accumulator = np.where(style < 0.35, turned, np.where(style < 0.8, near, accumulator))
    accumulator = np.where(style > 0.92, rng.choice(SPECIAL_ACCUMULATORS, count), accumulator).astype(np.uint32)
    return records(a, b, a_codes, b_codes, a_scale, b_scale, accumulator)
