"""The vector functions against float64 references, and the routers."""

import numpy as np
import pytest

from golden import fp32_ops, vector
from golden.fp32_ops import INFINITY, NAN, NEGATIVE_ZERO, ZERO, from_float, to_float
from golden.rope_tables import Yarn, rope_table
from golden.topk import route_sigmoid, route_softmax, top_k

EPSILON = from_float(1e-5)[()]


def wide(bits: np.ndarray) -> np.ndarray:
    return to_float(bits).astype(np.float64)


def relative(found: np.ndarray, exact: np.ndarray) -> float:
    """Largest relative error in units of 2**-24."""
    return float(np.abs(wide(found) / exact - 1).max() * 2**24)


@pytest.mark.parametrize("length", [1, 2, 3, 31, 576, 1536, 7168])
def test_rms_norm(rng, length):
    x, gain = from_float(rng.normal(size=(3, length)) * 4), from_float(rng.normal(size=length))
    exact = wide(x) / np.sqrt((wide(x) ** 2).mean(axis=-1, keepdims=True) + wide(EPSILON)) * wide(gain)
    assert relative(vector.rms_norm(x, gain, EPSILON), exact) < 8


def test_rms_norm_of_zeros_and_of_too_large_values():
    gain = from_float(np.ones(8))
    np.testing.assert_array_equal(vector.rms_norm(np.zeros((1, 8), np.uint32), gain, EPSILON), 0)
    # The sum of squares overflows: 1/sqrt(inf) is 0.
    np.testing.assert_array_equal(vector.rms_norm(from_float(np.full((1, 8), 1e30)), gain, EPSILON), 0)


def test_swiglu(rng):
    gate, up = from_float(rng.normal(size=20_000) * 5), from_float(rng.normal(size=20_000))
    exact = wide(gate) / (1 + np.exp(-wide(gate))) * wide(up)
    # The exponent's rounding grows with the gate: up to |gate| log2(e) / 2 units of 2**-24 and a few for the rest.
    error = np.abs(wide(vector.swiglu(gate, up)) / exact - 1) * 2**24
    assert (error < 6 + 1.5 * np.abs(wide(gate))).all()


def test_swiglu_at_the_ends():
    gate = from_float([-np.inf, -1e30, -200.0, 0.0, 200.0, 1e30])
    found = wide(vector.swiglu(gate, from_float(np.ones(6))))
    # exp overflows below: gate * 1/inf, which is NaN for minus infinity itself and a zero for the rest.
    assert np.isnan(found[0])
    np.testing.assert_array_equal(found[1:], [0, 0, 0, 200, wide(gate)[5]])


def test_swiglu_clamped(rng):
    gate, up = from_float(rng.normal(size=20_000) * 6), from_float(rng.normal(size=20_000) * 6)
    g, u = np.minimum(wide(gate), 7), np.clip(wide(up), -7, 7)
    exact = g / (1 + np.exp(-1.702 * g)) * (u + 1)
    found = wide(vector.swiglu_clamped(gate, up))
    assert (np.abs(found - exact) <= 2.0**-24 * (np.abs(exact) * (8 + 3.5 * np.abs(g)) + np.abs(g) * 2)).all()


def test_softmax_rows_sum_to_one(rng):
    """Within 2**-20 for up to 8192 elements: the sum's depth, the reciprocal and the products, half an ulp each."""
    for length in (1, 2, 4, 127, 128, 1000, 8192):
        rows = wide(vector.softmax(from_float(rng.normal(size=(4, length)) * 6)))
        assert np.abs(rows.sum(axis=-1) - 1).max() <= 2.0**-20


def test_softmax_is_exact_on_equal_logits():
    np.testing.assert_array_equal(wide(vector.softmax(from_float(np.full((1, 8), -3e5)))), 1 / 8)


def test_rope_table_against_float64():
    cosine, sine = rope_table(100_000, 64, 300)
    angles = np.arange(300)[:, None] * 100_000.0 ** (-np.arange(32) / 32)
    np.testing.assert_allclose(wide(cosine)[:, :32], np.cos(angles), rtol=0, atol=2**-25 + 1e-13)
    np.testing.assert_allclose(wide(sine)[:, 32:], np.sin(angles), rtol=0, atol=2**-25 + 1e-13)
    np.testing.assert_array_equal(sine[:, :32] ^ NEGATIVE_ZERO, sine[:, 32:])
    np.testing.assert_array_equal(cosine[:, :32], cosine[:, 32:])


def yarn_reference(base: float, half: int, factor: float, original: int, whole: bool) -> np.ndarray:
    """Frequencies in float64, after gpt-oss `RotaryEmbedding` and DeepSeek-V3 `precompute_freqs_cis`."""
    frequency = base ** (-np.arange(half) / half)
    low, high = (half * np.log(original / (beta * 2 * np.pi)) / np.log(base) for beta in (32, 1))
    if whole:
        low, high = max(np.floor(low), 0), min(np.ceil(high), 2 * half - 1)
    keep = 1 - np.clip((np.arange(half) - low) / (high - low), 0, 1)
    return frequency / factor * (1 - keep) + frequency * keep


@pytest.mark.parametrize(("base", "size", "yarn", "gain"), [
    (150_000, 64, Yarn(32, 4096), 0.1 * np.log(32) + 1), (10_000, 64, Yarn(40, 4096, whole=True, concentration="1"), 1),
])  # fmt: skip
def test_yarn_tables(base, size, yarn, gain):
    cosine, sine = rope_table(base, size, 200, yarn)
    angles = np.arange(200)[:, None] * yarn_reference(base, size // 2, yarn.factor, yarn.original, yarn.whole)
    np.testing.assert_allclose(wide(cosine)[:, : size // 2], np.cos(angles) * gain, rtol=0, atol=2**-24)
    np.testing.assert_allclose(wide(sine)[:, size // 2 :], np.sin(angles) * gain, rtol=0, atol=2**-24)


def test_rope(rng):
    cosine, sine = rope_table(100_000, 64, 20)
    x = from_float(rng.normal(size=(20, 64)))
    low, high, c, s = wide(x)[:, :32], wide(x)[:, 32:], wide(cosine)[:, :32], wide(sine)[:, 32:]
    exact = np.concatenate([low * c - high * s, high * c + low * s], axis=1)
    assert np.abs(wide(vector.rope(x, cosine, sine)) - exact).max() < 2.0**-22
    np.testing.assert_array_equal(vector.rope(x, cosine, sine)[0], x[0])


def test_rope_refuses_an_odd_head():
    with pytest.raises(ValueError, match="even"):
        rope_table(10_000, 7, 4)


def test_top_k_orders_ties_specials_and_what_is_allowed():
    values = np.concatenate([from_float([1.0, 3.0, 3.0, -np.inf, np.inf, -0.0, 0.0]), np.array([NAN], np.uint32)])
    assert top_k(values, 8).index.tolist() == [7, 4, 1, 2, 0, 6, 5, 3]
    allowed = np.array([True, False, True, True, False, True, True, False])
    assert top_k(values, 3, allowed).index.tolist() == [2, 0, 6]
    with pytest.raises(ValueError, match="Cannot choose 6 of 5"):
        top_k(values, 6, allowed)


def test_softmax_router(rng):
    """GPT-OSS: 4 of 128."""
    logits = from_float(rng.normal(size=(50, 128)) * 3)
    routing = route_softmax(logits, 4)
    order = np.argsort(-wide(logits), axis=-1, kind="stable")[:, :4]
    np.testing.assert_array_equal(routing.expert, order)
    chosen = np.exp(np.take_along_axis(wide(logits), order, -1))
    np.testing.assert_allclose(wide(routing.weight), chosen / chosen.sum(-1, keepdims=True), rtol=2e-6)


@pytest.mark.parametrize(("experts", "groups", "kept", "factor"), [(256, 8, 4, 2.5), (384, 1, 1, 2.827)])
def test_sigmoid_router(rng, experts, groups, kept, factor):
    """DeepSeek-R1 and Kimi-K2.5: 8 of the experts, in groups, with a correction bias."""
    logits, bias = from_float(rng.normal(size=(50, experts))), from_float(rng.normal(size=experts) * 0.1)
    routing = route_sigmoid(logits, bias, 8, groups, kept, from_float(factor)[()])
    scores = 1 / (1 + np.exp(-wide(logits)))
    biased = (scores + wide(bias)).reshape(50, groups, -1)
    best = np.sort(biased, axis=-1)[..., -2:].sum(-1)
    inside = best >= np.sort(best, axis=-1)[:, -kept, None]
    masked = np.where(inside[..., None], biased, -np.inf).reshape(50, -1)
    order = np.argsort(-masked, axis=-1, kind="stable")[:, :8]
    np.testing.assert_array_equal(routing.expert, order)
    weights = np.take_along_axis(scores, order, -1)
    np.testing.assert_allclose(wide(routing.weight), weights / weights.sum(-1, keepdims=True) * factor, rtol=2e-6)
    with pytest.raises(ValueError, match="impossible"):
        route_sigmoid(logits, bias, 8, 7)


def test_moe_combine(rng):
    outputs, weights = from_float(rng.normal(size=(2, 4, 64))), from_float(rng.random((2, 4)))
    exact = (wide(outputs) * wide(weights)[..., None]).sum(axis=1)
    assert np.abs(wide(vector.moe_combine(outputs, weights)) - exact).max() < 2.0**-21


def test_merge_with_a_side_that_saw_nothing_changes_no_bit(rng):
    top, total, output = rng.normal(size=4), 1 + rng.random(4), rng.normal(size=(4, 8))
    part = vector.Partial(from_float(top), from_float(total), from_float(output))
    nothing = vector.Partial(np.full(4, vector.NEGATIVE_INFINITY), np.zeros(4, np.uint32), np.zeros((4, 8), np.uint32))
    for merged in (vector.merge(part, nothing), vector.merge(nothing, part)):
        for found, expected in zip(merged, part, strict=True):
            np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(vector.finish(vector.merge(nothing, nothing)), ZERO)


def test_finish_has_no_negative_zero():
    part = vector.Partial(from_float([0.0]), from_float([1.0]), np.array([[NEGATIVE_ZERO, ZERO]]))
    np.testing.assert_array_equal(vector.finish(part), ZERO)


def test_clamp_and_difference():
    infinity = np.array([INFINITY, INFINITY ^ NEGATIVE_ZERO], np.uint32)
    clamped = vector.vector_pass(infinity, z=from_float(7.0)[()], combine=vector.Combine.CLAMP).result
    np.testing.assert_array_equal(to_float(clamped), [7, -7])
    difference = vector.vector_pass(infinity[1:], z=infinity[1:], w=vector.MINUS_ONE, combine=vector.Combine.DIFFERENCE)
    np.testing.assert_array_equal(difference.result, infinity[1:])
    assert fp32_ops.is_nan(vector.vector_pass(infinity[1:], z=infinity[1:], w=vector.MINUS_ONE).result).all()
