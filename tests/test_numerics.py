"""The rounding core and FP32 arithmetic against Berkeley SoftFloat and against exact rationals."""

from fractions import Fraction

import numpy as np
import pytest
import softfloatpy
from hypothesis import given, settings
from hypothesis import strategies as st

from golden import fp32, rounding
from golden.formats import BF16, FP16, FP32
from golden.rounding import Wide

NAN = 0x7FC00000
EDGE_EXPONENTS = [0, 1, 2, 23, 24, 103, 104, 126, 127, 128, 150, 151, 152, 253, 254, 255]
EDGE_FRACTIONS = [0, 1, 2, 0x3FFFFF, 0x400000, 0x400001, 0x7FFFFE, 0x7FFFFF]


def softfloat(operation: str, *operands: np.ndarray) -> np.ndarray:
    """uint32 patterns through SoftFloat, one by one; every NaN as the canonical one."""
    function = getattr(softfloatpy, operation)
    columns = [[softfloatpy.Float32.from_bytes(int(bits).to_bytes(4, "big")) for bits in column] for column in operands]
    results = [int.from_bytes(function(*row).to_bytes(), "big") for row in zip(*columns, strict=True)]
    results = np.array(results, dtype=np.uint32)
    return np.where((results & 0x7FFFFFFF) > 0x7F800000, np.uint32(NAN), results)


def edge_pairs() -> tuple[np.ndarray, np.ndarray]:
    """Pairs of FP32 patterns from the corners of exponent and fraction, as TestFloat's level 1 mixes them."""
    edges = np.array(
        [exponent << 23 | fraction for exponent in EDGE_EXPONENTS for fraction in EDGE_FRACTIONS], dtype=np.uint32
    )
    left, right = (side.ravel() for side in np.meshgrid(edges, edges))
    return left, right ^ np.where(np.arange(len(right)) % 2, np.uint32(0x80000000), np.uint32(0))


def near(patterns: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Patterns of opposite sign, within two binades and a few units."""
    steps = rng.integers(-2, 3, len(patterns)).astype(np.int64) << 23
    return ((patterns.astype(np.int64) ^ 0x80000000) + steps + rng.integers(-4, 5, len(patterns))).astype(np.uint32)


@pytest.mark.parametrize(("ours", "oracle"), [(fp32.add, "f32_add"), (fp32.multiply, "f32_mul")])
def test_fp32_against_softfloat(ours, oracle: str, rng: np.random.Generator) -> None:
    left, right = edge_pairs()
    random = rng.integers(0, 1 << 32, (2, 8000), dtype=np.uint32)
    left = np.concatenate([left, random[0], random[0]])
    right = np.concatenate([right, random[1], near(random[0], rng)])
    np.testing.assert_array_equal(ours(left, right), softfloat(oracle, left, right))


def test_accumulate_against_softfloat_fma(rng: np.random.Generator) -> None:
    """acc + x*y with one rounding: the product of two significands is an integer of 48 bits."""
    count = 12000
    x = rng.integers(0, 1 << 32, count, dtype=np.uint32)
    y = (rng.integers(60, 200, count) << 23 | rng.integers(0, 1 << 23, count)).astype(np.uint32)
    product = fp32.multiply(x, y)
    acc = np.where(rng.random(count) < 0.6, near(product, rng), rng.integers(0, 1 << 32, count)).astype(np.uint32)
    (sign_x, sig_x, exp_x, kind_x), (sign_y, sig_y, exp_y, _) = fp32.decode(x), fp32.decode(y)
    finite = (kind_x == 0) & (sig_x > 0)  # an integer zero has no sign, a product of zeros has
    found = fp32.accumulate(acc, sign_x ^ sign_y, rounding.wide(sig_x * sig_y), exp_x + exp_y)
    expected = softfloat("f32_mul_add", x, y, acc)
    np.testing.assert_array_equal(found[finite], expected[finite])


def exact(bits: int) -> Fraction:
    sign, significand, exponent, _ = (column.item() for column in fp32.decode(np.uint32(bits)))
    return Fraction(significand) * Fraction(2) ** exponent * (-1 if sign else 1)


def nearest_even(value: Fraction, precision: int, least: int) -> Fraction:
    """Round to `precision` bits and to multiples of 2**least, ties to even, on rationals."""
    if value == 0:
        return value
    top = abs(value.numerator).bit_length() - value.denominator.bit_length()
    top -= abs(value) < Fraction(2) ** top
    unit = Fraction(2) ** max(top - precision + 1, least)
    return round(value / unit) * unit


@settings(max_examples=400, deadline=None)
@given(
    acc=st.integers(0, (1 << 32) - 1),
    magnitude=st.integers(0, (1 << 100) - 1),
    cut=st.integers(0, 99),
    offset=st.integers(-140, 60),
    sign=st.booleans(),
)
def test_accumulate_against_rationals(acc: int, magnitude: int, cut: int, offset: int, sign: bool) -> None:
    """Integers of up to 100 bits around the accumulator."""
    acc &= 0x7F7FFFFF | acc & 0x80000000
    magnitude >>= cut
    exponent = max(-149, (acc >> 23 & 0xFF) - 150) + offset
    wide = Wide(np.array([magnitude >> 64], dtype=np.uint64), np.array([magnitude & (1 << 64) - 1], dtype=np.uint64))
    found = int(fp32.accumulate(np.array([acc], dtype=np.uint32), np.array([sign]), wide, np.array([exponent]))[0])
    total = exact(acc) + Fraction(magnitude) * Fraction(2) ** exponent * (-1 if sign else 1)
    expected = nearest_even(total, 24, -149)
    if abs(expected) >= Fraction(2) ** 128:
        assert found == (0xFF800000 if expected < 0 else 0x7F800000)
    else:
        assert exact(found) == expected
        assert found >> 31 == (total < 0)


def test_accumulate_special_values() -> None:
    plus, minus, nan = 0x7F800000, 0xFF800000, NAN
    one = rounding.wide(np.array([1]))
    cases = [
        (plus, False, 1, plus),
        (plus, True, 1, nan),
        (minus, True, 1, minus),
        (0, True, 1, minus),
        (0x7F800001, False, 0, nan),
        (0, False, 2, nan),
        (plus, False, 0, plus),
    ]
    for acc, sign, kind, expected in cases:
        found = fp32.accumulate(np.array([acc], dtype=np.uint32), np.array([sign]), one, np.array([0]), kind)
        assert int(found[0]) == expected, (hex(acc), sign, kind)
    nothing = rounding.wide(np.array([0]))
    for acc, expected in ((0x80000000, 0), (0, 0), (0x80000001, 0x80000001)):
        found = fp32.accumulate(np.array([acc], dtype=np.uint32), np.array([True]), nothing, np.array([0]))
        assert int(found[0]) == expected
    tiny = fp32.accumulate(np.array([0], dtype=np.uint32), np.array([True]), one, np.array([-200]))
    assert int(tiny[0]) == 0x80000000  # a negative value that rounds to zero keeps its sign


@settings(max_examples=300, deadline=None)
@given(
    value=st.integers(0, (1 << 128) - 1),
    cut=st.integers(0, 127),
    exponent=st.integers(-300, 300),
    precision=st.integers(1, 62),
    least=st.integers(-200, 200),
)
def test_rounding_core(value: int, cut: int, exponent: int, precision: int, least: int) -> None:
    value >>= cut
    wide = Wide(np.array([value >> 64], dtype=np.uint64), np.array([value & (1 << 64) - 1], dtype=np.uint64))
    significand, result = rounding.round_magnitude(wide, np.array([exponent]), precision, least)
    expected = nearest_even(Fraction(value) * Fraction(2) ** exponent, precision, least)
    assert Fraction(int(significand[0])) * Fraction(2) ** int(result[0]) == expected


def test_wide_float_traps() -> None:
    """Results that a wider float as intermediate gets wrong: FP16 240*273 - 2^-24, BF16 1.0625^2 + 2^-100."""
    one = np.array([False])
    wide = rounding.subtract(rounding.wide(np.array([240 * 273 << 24])), rounding.wide(np.array([1])))
    assert int(FP16.encode(one, wide, np.array([-24]), saturate=False)[0]) == 0x7BFF  # 65504
    square = rounding.add(
        rounding.shift_left(rounding.wide(np.array([17 * 17])), np.array([92])), rounding.wide(np.array([1]))
    )
    assert int(BF16.encode(one, square, np.array([-100]), saturate=False)[0]) == 0x3F91  # 1.1328125
    assert FP32.max_exponent == 127
