"""Golden formats against ml_dtypes: every code, and the conversion of every BF16 value."""

import ml_dtypes
import numpy as np
import pytest

from golden import rounding
from golden.formats import BF16, FORMATS, FP16, FP32, Element, Format, Kind, format_named, pair_problem
from golden.formats_scale import decode_scales
from golden.quantise import quantise

ORACLES = {
    "E4M3": ml_dtypes.float8_e4m3fn,
    "E5M2": ml_dtypes.float8_e5m2,
    "E2M3": ml_dtypes.float6_e2m3fn,
    "E3M2": ml_dtypes.float6_e3m2fn,
    "E2M1": ml_dtypes.float4_e2m1fn,
}
EVERY_BF16 = np.arange(1 << 16, dtype=np.uint32) << 16
MX = [format for format in FORMATS.values() if format.scale == "E8M0"]


def values(element: Element, codes: np.ndarray) -> np.ndarray:
    """float64 values of codes: every format here fits."""
    sign, significand, shift, kind = element.decode(codes)
    value = np.ldexp(significand.astype(np.float64), element.lsb + shift)
    value = np.where(kind == Kind.INFINITY, np.inf, np.where(kind == Kind.NAN, np.nan, value))
    return np.where(sign, -value, value)


def convert(element: Element, patterns: np.ndarray) -> np.ndarray:
    """FP32 patterns to codes, by the golden rounding, not saturating."""
    sign, significand, shift, _ = FP32.decode(patterns)
    return element.encode(sign, rounding.wide(significand), shift + FP32.lsb, saturate=False)


@pytest.mark.parametrize("name", ORACLES)
def test_every_code(name: str) -> None:
    element = FORMATS[name].element
    codes = np.arange(1 << element.bits, dtype=np.uint8)
    expected = codes.view(ORACLES[name]).astype(np.float64)
    found = values(element, codes)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))


@pytest.mark.parametrize(("element", "dtype"), [(BF16, ml_dtypes.bfloat16), (FP16, np.float16)])
def test_every_16_bit_code(element: Element, dtype: type) -> None:
    codes = np.arange(1 << 16, dtype=np.uint16)
    with np.errstate(invalid="ignore"):  # signalling NaNs
        expected = codes.view(dtype).astype(np.float64)
    np.testing.assert_array_equal(values(element, codes), expected)


def test_integer_codes() -> None:
    codes = np.arange(256, dtype=np.uint8)
    np.testing.assert_array_equal(values(FORMATS["MXINT8"].element, codes), codes.view(np.int8) / 64)
    nibbles = codes[:16]
    np.testing.assert_array_equal(values(FORMATS["INT4"].element, nibbles), nibbles.view(ml_dtypes.int4).astype(float))
    np.testing.assert_array_equal(values(FORMATS["Q4_1"].element, nibbles), nibbles)


def test_every_e8m0_scale() -> None:
    codes = np.arange(256, dtype=np.uint8)
    scales = decode_scales(codes, FORMATS["MXINT8"])
    expected = codes.view(ml_dtypes.float8_e8m0fnu).astype(np.float64)
    np.testing.assert_array_equal(np.where(scales.nan, np.nan, np.ldexp(1.0, scales.exponent)), expected)


@pytest.mark.parametrize("name", ORACLES)
def test_conversion_of_every_bf16_value(name: str) -> None:
    element = FORMATS[name].element
    patterns = EVERY_BF16[(EVERY_BF16 >> 23 & 0xFF) != 0xFF]
    with np.errstate(over="ignore"):
        expected = patterns.view(np.float32).astype(ORACLES[name])
    found = values(element, convert(element, patterns))
    np.testing.assert_array_equal(found, expected.astype(np.float64))
    np.testing.assert_array_equal(np.signbit(found), np.signbit(expected.astype(np.float64)))


@pytest.mark.parametrize(("element", "dtype"), [(BF16, ml_dtypes.bfloat16), (FP16, np.float16)])
def test_conversion_of_fp32_values(element: Element, dtype: type, rng: np.random.Generator) -> None:
    patterns = rng.integers(0, 1 << 32, 200_000, dtype=np.uint32)
    patterns = patterns[(patterns >> 23 & 0xFF) != 0xFF]
    half = np.uint32(1 << (22 - element.mantissa_bits))  # ties, and one unit beside them
    ties = (patterns & ~np.uint32(2 * half - 1)) + half + rng.integers(-1, 2, len(patterns)).astype(np.uint32)
    for batch in (patterns, ties[(ties >> 23 & 0xFF) != 0xFF]):
        with np.errstate(over="ignore"):
            expected = batch.view(np.float32).astype(dtype).view(np.uint16)
        np.testing.assert_array_equal(convert(element, batch), expected)


@pytest.mark.parametrize("format", MX, ids=lambda format: format.name)
def test_quantise_every_bf16_value(format: Format, rng: np.random.Generator) -> None:
    """The OCP rule written with floats that are exact here: a BF16 value over a power of two."""
    patterns = EVERY_BF16[(EVERY_BF16 >> 23 & 0xFF) != 0xFF]
    patterns = np.append(patterns, np.zeros(-len(patterns) % 32, dtype=np.uint32))
    window = rng.integers(0, 2048, len(patterns))
    blocks = patterns[np.argsort((patterns >> 16 & 0x7FFF) + window)].reshape(-1, 32)
    codes, scales = quantise(blocks, format)
    exact = blocks.view(np.float32).astype(np.float64)
    largest = np.abs(exact).max(axis=1)
    shared = np.where(largest > 0, np.frexp(largest)[1] - 1 - format.element.max_exponent, -127)
    np.testing.assert_array_equal(scales[:, 0], np.clip(shared, -127, 127) + 127)
    scaled = np.ldexp(exact, -(scales.astype(int) - 127))
    element, found = format.element, values(format.element, codes)
    if element.is_integer:
        step, limit = 2.0**element.lsb, element.max_code
        expected = np.clip(np.rint(scaled / step), -limit, limit) * step
    else:
        limit = float(ml_dtypes.finfo(ORACLES[format.name]).max)
        expected = np.clip(scaled, -limit, limit).astype(np.float32).astype(ORACLES[format.name]).astype(float)
    np.testing.assert_array_equal(found, expected)


def test_quantise_special_blocks() -> None:
    blocks = np.zeros((4, 32), dtype=np.uint32)
    blocks[0, 3], blocks[1, 5], blocks[3, 0] = 0x7F800000, 0xFFC00000, 1
    codes, scales = quantise(blocks, FORMATS["E4M3"])
    assert scales[:, 0].tolist() == [255, 255, 0, 0]
    assert not codes.any()  # 2^-149 is far below half of the least step, 2^-9 * 2^-127


def test_quantise_refuses() -> None:
    with pytest.raises(ValueError, match="multiple of 32"):
        quantise(np.zeros((2, 33), dtype=np.uint32), FORMATS["MXINT8"])
    with pytest.raises(ValueError, match="uint32"):
        quantise(np.zeros((2, 32), dtype=np.float32), FORMATS["MXINT8"])


def test_unknown_format_lists_what_there_is() -> None:
    with pytest.raises(ValueError, match=r"unknown format 'FP7'.*MXINT8.*NVFP4"):
        format_named("FP7")


def test_pairs() -> None:
    allowed = [(a.name, b.name) for a in FORMATS.values() for b in FORMATS.values() if pair_problem(a, b) is None]
    assert len(allowed) == 12 * 12 - 12 - 1
    assert ("NVFP4", "Q4_1") not in allowed
    assert ("MXINT8", "Q4_1") in allowed
