"""Quantising to groups against rational arithmetic: every division exact, every rounding once."""

from fractions import Fraction

import numpy as np
import pytest

from golden.formats import BF16, E4M3_ELEMENT, FORMATS, FP16, FP32, Element
from golden.quantise_groups import quantise_groups

FORMATS_WITH_GROUPS = [format for format in FORMATS.values() if format.scale != "E8M0"]


def value(element: Element, code: int) -> Fraction:
    sign, significand, shift, kind = (column.item() for column in element.decode(np.array([code], dtype=np.uint32)))
    assert kind == 0
    return Fraction(significand) * Fraction(2) ** (element.lsb + shift) * (-1 if sign else 1)


def nearest(element: Element, target: Fraction) -> Fraction:
    """The finite value of a format nearest to `target`, ties to the even code: by looking at all of them."""
    codes = np.arange(element.max_code + 1)
    _, significand, shift, _ = element.decode(codes.astype(np.uint32))
    unit = Fraction(2) ** element.lsb
    table = significand.astype(object) << shift.astype(object)
    scaled = abs(target) / unit
    index = int(np.searchsorted(table.astype(object), scaled))
    around = range(max(index - 1, 0), min(index + 1, element.max_code) + 1)
    best = min((abs(table[i] - scaled), i & 1, i) for i in around)
    return table[best[2]] * unit * (-1 if target < 0 else 1)


def fp32(value: Fraction) -> Fraction:
    """Round to FP32 (no overflow here)."""
    if value == 0:
        return value
    top = abs(value.numerator).bit_length() - value.denominator.bit_length()
    top -= abs(value) < Fraction(2) ** top
    unit = Fraction(2) ** max(top - 23, -149)
    return round(value / unit) * unit


def blocks(rng: np.random.Generator, rows: int = 3) -> np.ndarray:
    values = rng.normal(size=(rows, 128)) * np.exp2(rng.integers(-6, 7, (rows, 128)))
    patterns = values.astype(np.float32).view(np.uint32)
    patterns[0, :40] = 0
    patterns[1, :32] = 0x40E00000  # all alike: 7.0
    return patterns


@pytest.mark.parametrize("name", ["NVFP4", "INT4_BF16"])
def test_symmetric(name: str, rng: np.random.Generator) -> None:
    format, patterns = FORMATS[name], blocks(rng)
    tensor = np.uint32(0x3F9D70A4) if name == "NVFP4" else np.uint32(0x3F800000)
    codes, words = quantise_groups(patterns, format, tensor)
    scale_element, most = (E4M3_ELEMENT, 6) if name == "NVFP4" else (BF16, 7)
    for row in range(len(patterns)):
        for first in range(0, 128, format.group):
            group = [value(FP32, int(bits)) for bits in patterns[row, first : first + format.group]]
            expected = nearest(scale_element, max(map(abs, group)) / most / value(FP32, int(tensor)))
            word = int(words[row, first // 32]) >> (8 if name == "NVFP4" and first % 32 else 0)
            scale = value(scale_element, word & (0xFF if name == "NVFP4" else 0xFFFF))
            assert scale == expected
            for offset, element in enumerate(group):
                exact = element / (scale * value(FP32, int(tensor))) if scale else Fraction(0)
                assert value(format.element, int(codes[row, first + offset])) == nearest(format.element, exact)


def test_e4m3_with_fp32_scale(rng: np.random.Generator) -> None:
    format, patterns = FORMATS["E4M3_FP32"], blocks(rng)
    codes, words = quantise_groups(patterns, format)
    assert words.shape == (3, 4)
    assert (words == words[:, :1]).all()
    for row in range(len(patterns)):
        group = [value(FP32, int(bits)) for bits in patterns[row]]
        scale = value(FP32, int(words[row, 0]))
        assert scale == fp32(max(map(abs, group)) / 448)
        for code, element in zip(codes[row], group, strict=True):
            assert value(format.element, int(code)) == nearest(format.element, element / scale)


def test_offset_and_zero_point(rng: np.random.Generator) -> None:
    patterns = blocks(rng)
    codes, words = quantise_groups(patterns, FORMATS["Q4_1"])
    for row in range(len(patterns)):
        for block in range(4):
            group = [value(FP32, int(bits)) for bits in patterns[row, 32 * block : 32 * block + 32]]
            word = int(words[row, block])
            scale, offset = value(FP16, word & 0xFFFF), value(FP16, word >> 16)
            assert scale == nearest(FP16, fp32(max(group) - min(group)) / 15)
            assert offset == nearest(FP16, min(group))
            for code, element in zip(codes[row, 32 * block :], group, strict=False):
                exact = fp32(element - offset) / scale if scale else Fraction(0)
                assert int(code) == min(max(round(exact), 0), 15)
    codes, words = quantise_groups(patterns, FORMATS["UINT4_ZERO"])
    for row in range(len(patterns)):
        group = [value(FP32, int(bits)) for bits in patterns[row]]
        least, greatest = min(0, *group), max(0, *group)
        scale, zero = value(FP16, int(words[row, 0]) & 0xFFFF), int(words[row, 0]) >> 16
        assert scale == nearest(FP16, fp32(greatest - least) / 15)
        assert zero == min(round(-least / scale), 15)
        for code, element in zip(codes[row], group, strict=True):
            assert int(code) == min(max(round(element / scale) + zero, 0), 15)


@pytest.mark.parametrize("format", FORMATS_WITH_GROUPS, ids=lambda format: format.name)
def test_special_groups(format) -> None:
    patterns = np.zeros((1, 256), dtype=np.uint32)
    patterns[0, 200] = 0x7F800000
    codes, words = quantise_groups(patterns, format)
    assert not codes.any()
    assert not words[0, :4].any()
    assert words[0, 6] != 0


def test_refusals() -> None:
    patterns = np.zeros((1, 96), dtype=np.uint32)
    with pytest.raises(ValueError, match="multiple of 128 for E4M3_FP32"):
        quantise_groups(patterns, FORMATS["E4M3_FP32"])
    with pytest.raises(ValueError, match=r"use golden\.quantise"):
        quantise_groups(patterns, FORMATS["MXINT8"])
    with pytest.raises(ValueError, match="no tensor scale"):
        quantise_groups(patterns, FORMATS["INT4_BF16"], np.uint32(0x40000000))
