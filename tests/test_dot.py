"""The golden dot product against exact rationals, for every pair of formats; BF16 planes; refusals."""

from fractions import Fraction

import numpy as np
import pytest

from golden import dot, fp32
from golden.formats import BF16, E4M3_ELEMENT, FORMATS, FP16, FP32, Element, Format, pair_problem
from golden.quantise import quantise, split_bf16
from tb.dot import vectors

PAIRS = vectors.pairs(list(FORMATS))
# Every pair of elements once: the other formats differ in their scales alone.
ELEMENT_PAIRS = vectors.pairs(["MXINT8", "E4M3", "E5M2", "E2M3", "E3M2", "E2M1", "INT4", "Q4_1"])


def nearest_even(value: Fraction, precision: int, least: int) -> Fraction:
    if value == 0:
        return value
    top = abs(value.numerator).bit_length() - value.denominator.bit_length()
    top -= abs(value) < Fraction(2) ** top
    unit = Fraction(2) ** max(top - precision + 1, least)
    return round(value / unit) * unit


def rational(element: Element, code: int) -> Fraction | None:
    """Value of a code; None for infinity and NaN."""
    sign, significand, shift, kind = (column.item() for column in element.decode(np.array([code], dtype=np.uint32)))
    if kind:
        return None
    return Fraction(significand) * Fraction(2) ** (element.lsb + shift) * (-1 if sign else 1)


def scale_factors(format: Format, word: int) -> list[Fraction | None]:
    """The two factors of a scale word, straight from docs/numerics.md."""
    match format.scale:
        case "E8M0":
            return [None if word == 255 else Fraction(2) ** (word - 127)] * 2
        case "E4M3_PAIR":
            codes = word & 0xFF, word >> 8 & 0xFF
            return [None if code >= 0x7F else rational(E4M3_ELEMENT, code) for code in codes]
        case "BF16":
            return [rational(BF16, word)] * 2
        case "FP32":
            return [rational(FP32, word)] * 2
        case "FP16_OFFSET":
            return [rational(FP16, word & 0xFFFF), rational(FP16, word >> 16)]
    return [None if word >> 16 > 16 else rational(FP16, word & 0xFFFF)] * 2


def expected_step(a: Format, b: Format, record: np.void) -> int | None:
    """Result of one block in rationals; None where a special value takes part (those have tests of their own)."""
    scale_a, scale_b = scale_factors(a, int(record["a_scale"])), scale_factors(b, int(record["b_scale"]))
    value_a = [rational(a.element, int(code)) for code in record["a_codes"]]
    value_b = [rational(b.element, int(code)) for code in record["b_codes"]]
    accumulator = rational(FP32, int(record["accumulator"]))
    if None in (*scale_a, *scale_b, *value_a, *value_b, accumulator):
        return None
    if a.scale == "FP16_ZERO":
        value_a = [value - (int(record["a_scale"]) >> 16) for value in value_a]
    if b.scale == "FP16_ZERO":
        value_b = [value - (int(record["b_scale"]) >> 16) for value in value_b]
    factors = [nearest_even(left * right, 24, -10_000) for left, right in zip(scale_a, scale_b, strict=True)]
    products = [left * right for left, right in zip(value_a, value_b, strict=True)]
    if b.has_offset:
        total = factors[0] * sum(products) + factors[1] * sum(value_a)
    elif "E4M3_PAIR" in (a.scale, b.scale):
        total = factors[0] * sum(products[:16]) + factors[1] * sum(products[16:])
    else:
        total = factors[0] * sum(products)
    total += accumulator
    result = nearest_even(total, 24, -149)
    if abs(result) >= Fraction(2) ** 128:
        return 0xFF800000 if result < 0 else 0x7F800000
    bits = 0
    if result:
        magnitude = abs(result)
        exponent = max(magnitude.numerator.bit_length() - magnitude.denominator.bit_length(), -126)
        exponent -= exponent > -126 and magnitude < Fraction(2) ** exponent
        significand = int(magnitude / Fraction(2) ** (exponent - 23))
        bits = ((exponent + 126) << 23) + significand
    return bits | (0x80000000 if total < 0 else 0)


@pytest.mark.parametrize(("a", "b"), PAIRS, ids=lambda format: format.name)
def test_blocks_against_rationals(a: Format, b: Format, rng: np.random.Generator) -> None:
    compared = 0
    for record in vectors.adversarial(a, b, 16, rng):
        expected = expected_step(a, b, record)
        if expected is not None:
            assert hex(record["expected"]) == hex(expected), record
            compared += 1
    assert compared >= 4


@pytest.mark.parametrize(("a", "b"), ELEMENT_PAIRS, ids=lambda format: format.name)
def test_every_code_pair_against_floats(a: Format, b: Format) -> None:
    """One product at a time, with scales of one: at most 16 significant bits, so float64 holds it exactly."""
    records = vectors.every_code_pair(a, b)
    lane = np.arange(len(records)) % 32
    tables = []
    for format, side in ((a, "a"), (b, "b")):
        sign, significand, shift, kind = format.element.decode(records[f"{side}_codes"][np.arange(len(records)), lane])
        value = np.ldexp(significand.astype(np.float64), format.element.lsb + shift)
        value = np.where(kind == 1, np.inf, np.where(kind == 2, np.nan, value))
        tables.append(np.where(sign, -value, value))
    with np.errstate(invalid="ignore"):
        expected = tables[0] * tables[1] + 0.0
    if b.has_offset:  # an infinity meets the offset too
        expected = np.where(np.isinf(expected), np.nan, expected)
    np.testing.assert_array_equal(records["expected"].view(np.float32).astype(np.float64), expected)


def test_special_values() -> None:
    """E5M2 infinities and NaN, NaN scales: the table in docs/numerics.md."""
    inf, minus_inf, nan, one, minus_one, zero = 0x7C, 0xFC, 0x7E, 0x3C, 0xBC, 0x00
    plus, minus, invalid = 0x7F800000, 0xFF800000, 0x7FC00000
    cases = [
        ([inf], [one], 127, plus),
        ([inf], [minus_one], 127, minus),
        ([inf], [zero], 127, invalid),
        ([inf, inf], [one, minus_one], 127, invalid),
        ([inf, minus_inf], [one, minus_one], 127, plus),
        ([nan], [zero], 127, invalid),
        ([inf], [one], 255, invalid),
        ([one], [one], 255, invalid),
        ([inf], [minus_inf], 127, minus),
    ]
    format = FORMATS["E5M2"]
    for left, right, scale, expected in cases:
        a, b = np.full((1, 32), one, np.uint8), np.full((1, 32), one, np.uint8)
        a[0, : len(left)], b[0, : len(right)] = left, right
        scales = np.array([[scale]], np.uint8), np.array([[127]], np.uint8)
        assert int(dot.matmul(a, scales[0], b, scales[1], format, format)[0, 0]) == expected, (left, right, scale)


def test_matmul_is_blocks_in_order(rng: np.random.Generator) -> None:
    """matmul() equals single steps in ascending K, from a given accumulator."""
    a, b = FORMATS["E4M3"], FORMATS["NVFP4"]
    a_codes, b_codes = rng.integers(0, 0x7F, (3, 96), dtype=np.uint8), rng.integers(0, 16, (5, 96), dtype=np.uint8)
    a_scales = rng.integers(120, 130, (3, 3)).astype(np.uint32)
    b_scales = rng.integers(0, 0x7F, (5, 3)).astype(np.uint32) * 0x101
    start = rng.integers(0, 0x7F000000, (3, 5), dtype=np.uint32)
    found = dot.matmul(a_codes, a_scales, b_codes, b_scales, a, b, start)
    for row in range(3):
        for column in range(5):
            step = start[row, column : column + 1]
            for block in range(3):
                part = slice(32 * block, 32 * block + 32)
                left = a_codes[row : row + 1, part], a_scales[row : row + 1, block]
                right = b_codes[column : column + 1, part], b_scales[column : column + 1, block]
                step = dot.accumulate_blocks(step, *left, *right, a, b)
            assert step[0] == found[row, column]


@pytest.mark.parametrize("planes", [2, 3])
def test_bf16_planes(planes: int, rng: np.random.Generator) -> None:
    """The planes add up to the value: exactly near the block's largest, within the stated bound elsewhere."""
    values = rng.normal(size=(4, 128)) * np.exp2(rng.integers(-12, 3, (4, 128)))
    patterns = values.astype(np.float32).view(np.uint32) & 0xFFFF0000
    patterns[0, :32] = 0
    exact = patterns.view(np.float32).astype(np.float64).reshape(4, 4, 32)
    total = np.zeros_like(exact)
    for codes, scales in split_bf16(patterns, planes):
        total += codes.view(np.int8).reshape(4, 4, 32) / 64 * np.ldexp(1.0, scales.astype(int) - 127)[..., None]
    _, scales = quantise(patterns, FORMATS["MXINT8"])
    shared = np.ldexp(1.0, scales.astype(int) - 127)[..., None]
    assert (np.abs(total - exact) <= shared * 2.0 ** (-7 * planes)).all()
    close = np.abs(exact) >= shared * 2.0 ** (8 - 7 * planes)
    assert close.any()
    assert (total == exact)[close].all()


def test_bf16_product_in_passes(rng: np.random.Generator) -> None:
    """Weights in BF16, activations in MXINT8: one pass of the unit for each plane."""
    weights = rng.normal(size=(8, 64)).astype(np.float32).view(np.uint32) & 0xFFFF0000
    activations, scales = quantise(rng.normal(size=(2, 64)).astype(np.float32).view(np.uint32), FORMATS["MXINT8"])
    mx = FORMATS["MXINT8"]
    result = None
    for codes, plane_scales in split_bf16(weights):
        result = dot.matmul(activations, scales, codes, plane_scales, mx, mx, result)
    powers = np.ldexp(1.0, scales.astype(int) - 127)[..., None]
    left = (activations.view(np.int8).reshape(2, 2, 32) / 64 * powers).reshape(2, 64)
    exact = left @ weights.view(np.float32).T.astype(float)
    assert np.abs(result.view(np.float32) - exact).max() < 64 * 4 * 2.0**-14


def test_refusals() -> None:
    codes, scales = np.zeros((1, 32), np.uint8), np.zeros((1, 1), np.uint8)
    mx, q4, nv = FORMATS["MXINT8"], FORMATS["Q4_1"], FORMATS["NVFP4"]
    with pytest.raises(ValueError, match=r"Q4_1 has an offset and can be B only; A can be MXINT8"):
        dot.matmul(codes, scales, codes, scales, q4, mx)
    with pytest.raises(ValueError, match=r"NVFP4 times Q4_1 is not supported"):
        dot.matmul(codes, scales, codes, scales, nv, q4)
    with pytest.raises(ValueError, match="multiple of 32"):
        dot.matmul(codes[:, :31], scales, codes, scales, mx, mx)
    with pytest.raises(ValueError, match="uint8"):
        dot.matmul(codes.astype(np.int8), scales, codes, scales, mx, mx)
    assert pair_problem(mx, q4) is None
    assert int(fp32.NAN) == 0x7FC00000
