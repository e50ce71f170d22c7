"""A layer in golden arithmetic: its products, the functions between them, and the three invariances."""

import hashlib
import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from golden import model_functions, reference
from golden.formats import FORMATS
from golden.model import PRODUCTS, GoldenModel, layer_work, run_steps
from golden.model_functions import HostFunctions, exponential, rope_table, tree_sum
from golden.smollm2 import SmolLM2
from golden.tokenizer import Tokenizer

PROMPT = "What is the capital of France?"


@pytest.fixture(scope="module")
def model():
    return SmolLM2.load()


@pytest.fixture(scope="module")
def golden(model):
    return GoldenModel(model)


@pytest.fixture(scope="module")
def tokens(model):
    return Tokenizer(model).encode(Tokenizer.chat(PROMPT))


def bits(values):
    return np.ascontiguousarray(values).view(np.uint32)


def test_exponential_over_all_bf16():
    patterns = (np.arange(1 << 16, dtype=np.uint32) << 16).view(np.float32)
    x = patterns[np.isfinite(patterns)]
    with np.errstate(over="ignore"):
        found, wanted = exponential(x), np.exp(x.astype(np.float64)).astype(np.float32)
    assert np.array_equal(found, wanted), "correctly rounded on every BF16 input"
    assert exponential(np.float32([-np.inf, np.inf])).tolist() == [0, math.inf]
    assert np.isnan(exponential(np.float32([np.nan]))).all()


def test_exponential_error_bound():
    random = np.random.default_rng(0)
    x = random.uniform(-104, 89, 400_000).astype(np.float32)
    wanted = np.exp(x.astype(np.float64))
    with np.errstate(over="ignore"):
        spacing = np.spacing(wanted.astype(np.float32)).astype(np.float64)
    finite = np.isfinite(spacing)
    error = np.abs(exponential(x).astype(np.float64) - wanted)[finite] / spacing[finite]
    assert error.max() < 0.5001


def test_rope_table_is_correctly_rounded():
    cos, sin = rope_table(100_000, 32, 512)
    angles = np.arange(512)[:, None] * 100_000.0 ** (-np.arange(32) / 32)
    assert np.array_equal(cos, np.cos(angles).astype(np.float32))
    assert np.array_equal(sin, np.sin(angles).astype(np.float32))
    longer = rope_table(100_000, 32, 768)
    assert np.array_equal(longer[0][:512], cos)
    assert np.array_equal(longer[1][:512], sin)


def test_rope_refuses_other_tables():
    with pytest.raises(ValueError, match="power of two, not 24"):
        rope_table(10_000, 24, 8)
    with pytest.raises(ValueError, match=r"whole number, not 0\.5"):
        HostFunctions().rope(np.zeros((1, 1, 64), np.float32), np.zeros(1, np.int64), 0.5)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.floats(width=32, allow_nan=False, allow_infinity=False, max_value=2**100, min_value=-(2**100)),
        min_size=1,
        max_size=70,
    ),
    st.integers(0, 70),
)
def test_tree_sum_does_not_see_appended_zeros(values, zeros):
    short = np.float32(values)
    long = np.concatenate([short, np.zeros(zeros, np.float32)])
    assert bits(tree_sum(short)).item() == bits(tree_sum(long)).item()
    assert tree_sum(short) == pytest.approx(math.fsum(short.tolist()), rel=1e-5, abs=1e-5 * float(np.abs(short).sum()))


def test_functions_are_near_the_reference():
    random, functions = np.random.default_rng(3), HostFunctions()
    x, gain = (random.normal(size=(5, 576)).astype(np.float32) for _ in range(2))
    assert np.allclose(functions.rms_norm(x, gain[0], 1e-5), reference.rms_norm(x, gain[0], 1e-5), rtol=1e-6)
    q, positions = random.normal(size=(5, 9, 64)).astype(np.float32), np.arange(300, 305)
    assert np.allclose(functions.rope(q, positions, 1e5), reference.rope(q, positions, 1e5), atol=2e-6)
    gate, up = (random.normal(0, 30, (5, 64)).astype(np.float32) for _ in range(2))
    wide = gate.astype(np.float64)
    assert np.allclose(functions.swiglu(gate, up), wide / (1 + np.exp(-wide)) * up, rtol=1e-6)


def attention_in_float64(q, keys, values, positions):
    result = np.zeros(q.shape)
    group = q.shape[1] // keys.shape[1]
    for m, head in np.ndindex(q.shape[:2]):
        seen = positions[m] + 1
        scores = keys[:seen, head // group].astype(np.float64) @ q[m, head].astype(np.float64) / 8
        weight = np.exp(scores - scores.max())
        result[m, head] = weight @ values[:seen, head // group] / weight.sum()
    return result


@pytest.mark.parametrize("scale", [1.0, 1000.0])
def test_attention_is_near_float64(scale):
    random = np.random.default_rng(4)
    q = (random.normal(size=(40, 9, 64)) * scale).astype(np.float32)
    keys, values = (random.normal(size=(200, 3, 64)).astype(np.float32) for _ in range(2))
    positions = np.arange(160, 200)
    found = HostFunctions().attention(q, keys, values, positions)
    assert np.allclose(found, attention_in_float64(q, keys, values, positions), atol=2e-6 * max(1, scale / 10))


def test_attention_over_one_position_is_its_value():
    q, keys = np.full((1, 2, 64), -3e4, np.float32), np.full((1, 1, 64), 1.0, np.float32)
    values = np.arange(64, dtype=np.float32).reshape(1, 1, 64)
    found = HostFunctions().attention(q, keys, values, np.zeros(1, np.int64))
    assert np.array_equal(found, np.broadcast_to(values, (1, 2, 64)))


def test_products_of_a_layer(golden, tokens):
    """Names, shapes and order; and the fast result of each real product is the specification's."""
    golden.reset()
    steps, seen = golden.steps(0, golden.embed(tokens[:17])), []
    product = next(steps)
    while True:
        seen.append((product.name, product.m, product.k, product.n))
        result = product.fast()
        rows = slice(0, None, 8)
        exact = type(product)(product.name, 0, row_of(product.activations, rows), product.weights).golden()
        assert np.array_equal(exact, result[rows])
        try:
            product = steps.send(result)
        except StopIteration as end:
            stream = end.value
            break
    assert stream.shape == (17, 576)
    sizes = {"k": (576, 192), "v": (576, 192), "gate": (576, 1536), "up": (576, 1536), "down": (1536, 576)}
    assert seen == [(name, 17, *sizes.get(name, (576, 576))) for name in PRODUCTS]


def row_of(matrix, rows):
    return type(matrix)(matrix.codes[rows], matrix.scales[rows], matrix.format)


def test_wrong_result_is_refused(golden, tokens):
    golden.reset()
    steps = golden.steps(0, golden.embed(tokens[:2]))
    product = next(steps)
    with pytest.raises(ValueError, match=r"product q of layer 0 wants uint32 \(2, 576\)"):
        steps.send(product.golden().view(np.float32))


def test_layer_work_gives_the_bits_of_one_chunk(golden, tokens):
    """Prefill of all but the last token and a decode step, against all tokens in one chunk: the chunk invariance."""
    work = layer_work(golden, 2, tokens)
    parts = np.concatenate([run_steps(work.prefill), run_steps(work.decode)])
    golden.reset()
    whole = run_steps(golden.steps(2, golden.layer_input(2, tokens)))
    assert np.array_equal(bits(parts), bits(whole))


@settings(max_examples=3, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=5))
def test_chunks_give_the_bits_of_one_token_at_a_time(golden, tokens, chunks):
    golden.reset()
    single = np.concatenate([golden.layer_input(1, [token]) for token in tokens[: sum(chunks)]])
    golden.reset()
    ends = np.cumsum([0, *chunks]).tolist()
    chunked = np.concatenate([golden.layer_input(1, tokens[a:b]) for a, b in itertools.pairwise(ends) if tokens[a:b]])
    assert np.array_equal(bits(single), bits(chunked))


def test_outputs_do_not_depend_on_the_shard(golden, tokens):
    """A product split over tiles by outputs, and its rows computed apart, are the whole's bits."""
    golden.reset()
    product = next(golden.steps(0, golden.embed(tokens)))
    whole = product.fast()
    for start in range(0, 576, 144):
        part = type(product)("q", 0, product.activations, row_of(product.weights, slice(start, start + 144)))
        assert np.array_equal(part.fast(), whole[:, start : start + 144])


def test_bits_are_the_recorded_ones(golden, tokens):
    """The same on every machine: a digest of the residual stream after two layers, recorded once."""
    golden.reset()
    digest = hashlib.sha256(golden.layer_input(2, tokens).tobytes()).hexdigest()
    assert digest == "6da6e190411c0222893d9811d68636788c6284d5cf22714ca4554499f8f181da"


def test_the_digest_sees_one_changed_bit(golden, tokens, monkeypatch):
    golden.reset()
    before = golden.layer_input(1, tokens)
    monkeypatch.setattr(model_functions, "_LN2_HIGH", model_functions._LN2_HIGH * (1 + 2.0**-20))
    golden.reset()
    assert not np.array_equal(bits(before), bits(golden.layer_input(1, tokens)))


def test_bad_requests_are_refused(golden):
    with pytest.raises(ValueError, match="0 to 29, not 30"):
        golden.layer_input(30, [1])
    with pytest.raises(ValueError, match="0 to 49151"):
        golden.embed([49152])
    with pytest.raises(ValueError, match="at least 2 tokens"):
        layer_work(golden, 0, [1])


@pytest.mark.parametrize("name", ["E2M3", "E2M1"])
def test_other_formats_run(model, tokens, name):
    other = GoldenModel(model, FORMATS[name], FORMATS["MXINT8"])
    assert np.isfinite(other.layer_input(1, tokens)).all()


def test_reference_continues_sensibly(model):
    tokenizer, plain = Tokenizer(model), reference.Reference(model)
    ids = plain.generate(tokenizer.encode(Tokenizer.chat(PROMPT)), 12, tokenizer.end)
    assert tokenizer.decode(ids) == "The capital of France is Paris."


def test_agreement_and_perplexity():
    logits = np.log(np.float32([[0.5, 0.25, 0.25], [0.1, 0.8, 0.1], [1 / 3] * 3]))
    assert reference.perplexity(logits, [2, 0, 1]) == pytest.approx(math.sqrt(2 * 1.25))
    same = reference.agreement(logits, logits, [2, 0, 1])
    assert (same.mean_kl, same.top1) == (0, 1)
    with pytest.raises(ValueError, match="as many rows"):
        reference.perplexity(logits, [0])
