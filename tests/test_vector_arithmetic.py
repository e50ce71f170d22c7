"""FP32 operations and table functions against Berkeley SoftFloat, exact rationals and float64."""

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
import softfloatpy

from golden import fp32, fp32_ops, rounding, tables
from golden import vector as golden_vector
from golden.exp2 import exp2
from golden.fp32_ops import INFINITY, NAN, NEGATIVE_INFINITY, NEGATIVE_ZERO, ONE, ZERO, from_float, to_float
from golden.reciprocal import reciprocal
from golden.rsqrt import rsqrt
from hw.vector import isa

SPECIALS = np.array([m | s for s in (0, 1 << 31) for m in (
    0, 1, 2, 0x7FFFFF, 0x800000, 0x800001, 0xFFFFFF, 0x33800000, 0x3F7FFFFF, 0x3F800000, 0x3F800001, 0x4B000000,
    0x7E800000, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000, 0x7FFFFFFF)], dtype=np.uint32)  # fmt: skip


def stratified(per_exponent: int, seed: int = 1, positive: bool = False) -> np.ndarray:
    """The same number of random values in every binade, subnormals, infinities and NaNs included, and all borders."""
    generator = np.random.default_rng(seed)
    exponents = np.repeat(np.arange(256, dtype=np.uint32) << 23, per_exponent)
    values = exponents | generator.integers(0, 1 << 23, len(exponents), dtype=np.uint32)
    borders = np.arange(256, dtype=np.uint32)[:, None] << 23 | np.array([0, 1, 0x7FFFFF], np.uint32)
    values = np.concatenate([values, borders.ravel(), SPECIALS])
    if positive:
        return values & np.uint32(0x7FFFFFFF)
    return values ^ (generator.integers(0, 2, len(values), dtype=np.uint32) << 31)


def pairs(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """All pairs of specials, any bits, exponents near each other, near cancellation, products at the borders."""
    generator = np.random.default_rng(seed)
    bits = generator.integers(0, 1 << 32, (4, count), dtype=np.uint32)
    a = bits[0]
    exponent = (a >> 23 & 255).astype(np.int64)
    near = np.clip(exponent + generator.integers(-27, 28, count), 0, 255)
    low = np.clip(127 - exponent + generator.integers(-26, 4, count), 0, 255)
    high = np.clip(127 - exponent + generator.integers(251, 258, count), 0, 255)
    rest = bits[1] & np.uint32(0x807FFFFF)
    cancel = a ^ NEGATIVE_ZERO ^ (bits[2] >> generator.integers(8, 32, count, dtype=np.uint32))
    b = [bits[3], cancel, *(rest | (e.astype(np.uint32) << 23) for e in (near, low, high))]
    left = np.concatenate([np.repeat(SPECIALS, len(SPECIALS)), np.tile(a, len(b))])
    return left, np.concatenate([np.tile(SPECIALS, len(SPECIALS)), *b])


def softfloat(operation: object, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    results = [
        int.from_bytes(operation(softfloatpy.Float32.from_bytes(int(x).to_bytes(4, "big")),
                                 softfloatpy.Float32.from_bytes(int(y).to_bytes(4, "big"))).to_bytes(), "big")
        for x, y in zip(a, b, strict=True)
    ]  # fmt: skip
    results = np.array(results, dtype=np.uint32)
    return np.where(fp32_ops.is_nan(results), NAN, results)


@pytest.mark.parametrize(("ours", "theirs"), [(fp32.add, softfloatpy.f32_add), (fp32.multiply, softfloatpy.f32_mul)])
def test_add_and_multiply_against_softfloat(ours, theirs):
    a, b = pairs(2000, 1)
    np.testing.assert_array_equal(ours(a, b), softfloat(theirs, a, b))


@pytest.mark.parametrize(("integer", "fast"), [(fp32.add, fp32_ops.add), (fp32.multiply, fp32_ops.multiply)])
def test_fast_operations_equal_the_integer_ones(integer, fast):
    a, b = pairs(40_000, 2)
    np.testing.assert_array_equal(fast(a, b), integer(a, b))


def test_multiply_against_exact_rationals():
    a, b = pairs(300, 3)
    finite = (a & 0x7F800000 != 0x7F800000) & (b & 0x7F800000 != 0x7F800000)
    for x, y, found in zip(a[finite], b[finite], fp32_ops.multiply(a, b)[finite], strict=True):
        exact = Fraction(float(to_float(x))) * Fraction(float(to_float(y)))
        if found & 0x7FFFFFFF == INFINITY:
            assert abs(exact) >= Fraction(2**25 - 1, 2**24) * 2**127
            continue
        value = Fraction(float(to_float(found)))
        spacing = Fraction(2) ** (max(int(found >> 23 & 255), 1) - 150)
        error = abs(value - exact)
        assert error < spacing / 2 or (error == spacing / 2 and found & 1 == 0), (hex(x), hex(y))


def test_pack_equals_the_rounding_core():
    generator = np.random.default_rng(4)
    magnitude = generator.integers(0, 1 << 53, 20_000) >> generator.integers(0, 53, 20_000)
    exponent = generator.integers(-260, 140, 20_000)
    integer = fp32.encode(np.zeros(20_000, bool), rounding.wide(magnitude), exponent)
    np.testing.assert_array_equal(fp32_ops.pack(magnitude, exponent), integer)


def ulps(found: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Distance in units of the last place of the exact value's binade (the subnormals' spacing below)."""
    exponent = np.maximum(np.frexp(exact)[1] - 1, -126)
    return np.abs(to_float(found).astype(np.float64) - exact) / np.ldexp(1.0, exponent - 23)


def check(function, reference, x: np.ndarray, bound: float) -> None:
    """Finite results within the bound; where the exact result overflows, infinity; NaN where it is NaN."""
    with np.errstate(all="ignore"):
        exact = reference(to_float(x).astype(np.float64))
        expected = exact.astype(np.float32)
    found = function(x)
    assert (fp32_ops.is_nan(found) == np.isnan(exact)).all()
    assert (found[np.isnan(exact)] == NAN).all()
    extreme = np.isinf(expected) | (exact == 0)
    extreme &= ~np.isnan(exact)
    np.testing.assert_array_equal(found[extreme], expected.view(np.uint32)[extreme])
    rest = ~extreme & ~np.isnan(exact)
    errors = ulps(found[rest], exact[rest])
    assert errors.max() <= bound, f"{errors.max()} ulp at {x[rest][errors.argmax()]:#010x}"


def reference_rsqrt(x: np.ndarray) -> np.ndarray:
    return np.where(x == 0, np.copysign(np.inf, x), 1 / np.sqrt(x))


FUNCTIONS = [(exp2, np.exp2, 0.54), (reciprocal, lambda x: 1 / x, 0.57), (rsqrt, reference_rsqrt, 0.62)]
NAMES = ["exp2", "reciprocal", "rsqrt"]


@pytest.mark.parametrize(("function", "reference", "bound"), FUNCTIONS, ids=NAMES)
def test_every_bfloat16(function, reference, bound):
    x = np.arange(1 << 16, dtype=np.uint16).view(ml_dtypes.bfloat16).astype(np.float32).view(np.uint32)
    check(function, reference, x, bound)


@pytest.mark.parametrize(("function", "reference", "bound"), FUNCTIONS, ids=NAMES)
def test_stratified_fp32(function, reference, bound):
    check(function, reference, stratified(1000), bound)


def test_exp2_where_it_is_neither_zero_nor_infinite():
    x = np.random.default_rng(5).uniform(-150, 128, 500_000).astype(np.float32).view(np.uint32)
    check(exp2, np.exp2, x, 0.54)


@pytest.mark.long
def test_reciprocal_and_rsqrt_of_every_significand():
    significands = np.arange(1 << 23, dtype=np.uint32)
    check(reciprocal, lambda x: 1 / x, significands | np.uint32(0x3F800000), 0.57)
    check(rsqrt, reference_rsqrt, significands | np.uint32(0x3F800000), 0.62)
    check(rsqrt, reference_rsqrt, significands + np.uint32(0x40000000), 0.62)


@pytest.mark.long
@pytest.mark.parametrize("exponent", range(127 - 31, 127 + 8))
def test_exp2_of_every_significand(exponent):
    significands = np.arange(1 << 23, dtype=np.uint32) | np.uint32(exponent << 23)
    for sign in (ZERO, NEGATIVE_ZERO):
        check(exp2, np.exp2, significands | sign, 0.54)


def test_exact_results():
    powers = from_float(np.ldexp(1.0, np.arange(-126, 128)))
    np.testing.assert_array_equal(exp2(from_float(np.arange(-126, 128))), powers)
    np.testing.assert_array_equal(reciprocal(powers[:-1]), powers[:-1][::-1])
    even = np.arange(-126, 128, 2)
    np.testing.assert_array_equal(rsqrt(from_float(np.ldexp(1.0, even))), from_float(np.ldexp(1.0, -even // 2)))
    assert exp2(NEGATIVE_ZERO) == ONE
    assert exp2(NEGATIVE_INFINITY) == ZERO


def test_tables_stay_inside_their_ranges():
    """y never leaves [1, 2) for exp2 nor [1/2, 1] for the others, at any place of the segments at the ends."""
    one = 1 << tables.FRACTION
    for table, places, low, high in (
        (tables.exp2_table(), np.arange(1 << 23) << 1, one, 2 * one - 1),
        (tables.reciprocal_table(), np.arange(1 << 15) << 9, one // 2, one),
        (tables.rsqrt_table(), np.arange(1 << 16) << 8, one // 2, one),
    ):
        for segment in (0, len(table) - 1):
            y = table.evaluate(np.full(len(places), segment), places)
            assert low <= y.min()
            assert y.max() <= high


def test_table_refuses_a_coefficient_that_does_not_fit():
    column = np.zeros(2, np.int64)
    with pytest.raises(ValueError, match="outside"):
        tables.Table(column, column, column + (1 << tables.C2_BITS))


def test_maximum_minimum_and_order():
    a, b = np.repeat(SPECIALS, len(SPECIALS)), np.tile(SPECIALS, len(SPECIALS))
    nan = fp32_ops.is_nan(a) | fp32_ops.is_nan(b)
    x, y = to_float(a), to_float(b)
    for ours, theirs, at_zero in (
        (fp32_ops.maximum(a, b), np.maximum(x, y), a & b),
        (fp32_ops.minimum(a, b), np.minimum(x, y), a | b),
    ):
        zeros = ~nan & (x == 0) & (y == 0)
        np.testing.assert_array_equal(ours[nan], NAN)
        np.testing.assert_array_equal(ours[zeros], at_zero[zeros])
        rest = ~nan & ~zeros
        np.testing.assert_array_equal(to_float(ours)[rest], theirs[rest])


def test_tree_sum_depends_on_the_length_alone():
    values = from_float(np.random.default_rng(6).normal(size=(3, 13)))
    by_hand = [values[:, i] for i in range(13)]
    while len(by_hand) > 1:
        rest = by_hand[-1:] if len(by_hand) % 2 else []
        by_hand = [fp32.add(a, b) for a, b in zip(by_hand[::2], by_hand[1::2], strict=False)] + rest
    np.testing.assert_array_equal(fp32_ops.tree_sum(values), by_hand[0])
    padded = np.concatenate([values, np.full((3, 19), NEGATIVE_ZERO)], axis=1)
    np.testing.assert_array_equal(fp32_ops.tree_sum(padded), by_hand[0])
    assert fp32_ops.tree_sum(np.zeros((0,), np.uint32)) == NEGATIVE_ZERO


def test_hardware_and_golden_enumerations_agree():
    for ours, theirs in ((golden_vector.Combine, isa.Combine), (golden_vector.Function, isa.Function),
                         (golden_vector.Reduce, isa.Reduce)):  # fmt: skip
        assert {m.name: int(m) for m in ours} == {m.name: m.value for m in theirs}
