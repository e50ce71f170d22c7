"""The fast quantise and matmul of the whole-model runs give the bits of the specification, wherever they are used."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from golden import dot, model_fast, quantise
from golden.formats import FORMATS, ScaleType

MX = [format for format in FORMATS.values() if format.scale == ScaleType.E8M0]
FORMAT = st.sampled_from(MX)


def bits_of(kind, shape, random):
    """FP32 patterns: any finite ones, ordinary ones, ties of a power of two, small integers, blocks of zeros."""
    if kind == "any":
        values = random.integers(0, 1 << 32, shape, np.uint32).view(np.float32)
        return np.where(np.isfinite(values), values, 0).astype(np.float32).view(np.uint32)
    values = random.normal(size=shape) * np.exp2(random.integers(-8, 8, (*shape[:-1], 1)))
    if kind == "ties":
        values = random.integers(-512, 513, shape) / np.exp2(random.integers(0, 9, shape))
    if kind == "zeros":
        values *= random.integers(0, 2, (*shape[:-1], 1))
    if kind == "tiny":
        values *= 2.0**-140
    return values.astype(np.float32).view(np.uint32)


@settings(max_examples=80, deadline=None)
@given(FORMAT, st.sampled_from(["any", "normal", "ties", "zeros", "tiny"]), st.integers(0, 2**32 - 1))
def test_quantise_is_the_specification(format, kind, seed):
    values = bits_of(kind, (9, 96), np.random.default_rng(seed))
    for fast, exact in zip(model_fast.quantise(values, format), quantise.quantise(values, format), strict=True):
        assert fast.dtype == exact.dtype
        assert np.array_equal(fast, exact)


@pytest.mark.parametrize("pattern", [0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001])
def test_quantise_of_what_is_not_finite(pattern):
    values = np.full((2, 64), 0x3F800000, np.uint32)
    values[1, 40] = pattern
    fast, exact = (module.quantise(values, FORMATS["MXINT8"]) for module in (model_fast, quantise))
    assert np.array_equal(fast[0], exact[0])
    assert fast[1].tolist() == exact[1].tolist() == [[127, 127], [127, 255]]


@settings(max_examples=30, deadline=None)
@given(FORMAT, FORMAT, st.sampled_from([0, 3, 40, 255]), st.integers(0, 2**32 - 1))
def test_matmul_is_the_specification(format_a, format_b, spread, seed):
    """Random codes; scales around 127 with a spread, so that the ends of the exponent range come up too."""
    random = np.random.default_rng(seed)
    arguments = []
    for rows, format in ((3, format_a), (7, format_b)):
        codes = random.integers(0, 1 << format.bits, (rows, 128), np.uint8)
        codes[random.integers(0, 2, (rows, 4)).repeat(32, axis=1) > 0] = 0
        scales = np.clip(127 + random.integers(-spread, spread + 1, (rows, 4)), 0, 255).astype(np.uint8)
        arguments += [codes, scales]
    fast, exact = (module.matmul(*arguments, format_a, format_b) for module in (model_fast, dot))
    assert np.array_equal(fast, exact)


@pytest.mark.parametrize("scale_a", [0, 30, 90, 127, 180, 254])
@pytest.mark.parametrize("scale_b", [0, 40, 66, 127, 190, 254])
def test_matmul_at_the_ends_of_the_exponent_range(scale_a, scale_b):
    """Subnormal results, results that vanish, and overflow: where float32 would round the products or lose them."""
    random = np.random.default_rng(scale_a * 256 + scale_b)
    operands = []
    for scale in (scale_a, scale_b):
        codes = random.integers(0, 256, (3, 96), np.uint8)
        operands += [codes, np.clip(scale + random.integers(-2, 3, (3, 3)), 0, 254).astype(np.uint8)]
    fast, exact = (module.matmul(*operands, FORMATS["MXINT8"], FORMATS["MXINT8"]) for module in (model_fast, dot))
    assert np.array_equal(fast, exact)


def test_matmul_whose_partial_sums_overflow():
    """The block sum is 0, though its first half is beyond float32."""
    codes = np.uint8([[127] * 16 + [129] * 16] * 8), np.uint8([[127] * 32] * 8)
    scales = np.uint8([[250]] * 8), np.uint8([[127]] * 8)
    format = FORMATS["MXINT8"]
    assert model_fast.matmul(codes[0], scales[0], codes[1], scales[1], format, format).tolist() == [[0] * 8] * 8


def test_fast_path_is_taken_for_the_default_format(monkeypatch):
    """Without this, the comparison above could compare the specification with itself."""

    def refuse(*arguments):
        raise AssertionError("golden.dot was called")

    monkeypatch.setattr(dot, "matmul", refuse)
    monkeypatch.setattr(quantise, "quantise", refuse)
    values = np.random.default_rng(1).normal(size=(4, 64)).astype(np.float32).view(np.uint32)
    for name in ("MXINT8", "E2M3", "E3M2", "E2M1"):
        codes, scales = model_fast.quantise(values, FORMATS[name])
        model_fast.matmul(codes, scales, codes, scales, FORMATS[name], FORMATS[name])


@pytest.mark.parametrize("name", [name for name, format in FORMATS.items() if format not in MX])
def test_other_scales_go_to_the_specification(monkeypatch, name):
    called = []
    monkeypatch.setattr(dot, "matmul", lambda *arguments: called.append(arguments))
    codes, scales = np.ones((2, 128), np.uint8), np.ones((2, 4), np.uint16)
    model_fast.matmul(codes, scales, codes, scales, FORMATS["MXINT8"], FORMATS[name])
    assert len(called) == 1


def test_a_wrong_order_of_blocks_is_seen():
    """The comparison can fail: summing the blocks in descending K gives other bits."""
    random = np.random.default_rng(2)
    codes = random.integers(0, 256, (20, 320), np.uint8)
    scales = random.integers(120, 135, (20, 10), np.uint8)
    format = FORMATS["MXINT8"]
    turned = codes.reshape(20, 10, 32)[:, ::-1].reshape(20, 320), scales[:, ::-1]
    assert not np.array_equal(
        model_fast.matmul(codes, scales, codes, scales, format, format),
        model_fast.matmul(*turned, *turned, format, format),
    )
