"""Attention's golden model: its edge cases, its three invariances, and its error against float64."""

import numpy as np
import pytest

from golden import attention as golden
from golden import vector
from golden.attention import LEAF, AttentionShape, PagedCache, attention, query_factor, sink_logits
from golden.formats import E4M3, MXINT8, Format
from golden.fp32_ops import from_float, to_float
from golden.model_functions import HostFunctions
from golden.vector_functions import ChipFunctions

GQA = AttentionShape(6, 2, 64, 64)
MHA = AttentionShape(2, 2, 32, 64)
MLA = AttentionShape(4, 1, 96, 64, latent=True)
SHAPES = {"gqa": GQA, "mha": MHA, "mla": MLA, "e4m3": AttentionShape(6, 2, 64, 64, E4M3),
          "window": AttentionShape(6, 2, 64, 64, window=100)}  # fmt: skip


class Sequence:
    """Random queries, keys and values of one sequence, and its cache."""

    def __init__(
        self, rng: np.random.Generator, shape: AttentionShape, length: int, page_size: int = LEAF, factor: float = 1.0
    ) -> None:
        self.shape, self.length = shape, length
        self.keys = from_float(rng.normal(size=(length, shape.kv_heads, shape.key_size)) * factor)
        self.values = from_float(rng.normal(size=(length, shape.kv_heads, shape.value_size)))
        self.query = vector.scale(
            from_float(rng.normal(size=(length, shape.heads, shape.key_size))), query_factor(shape.key_size)
        )
        pages = -(-length // page_size)
        self.cache, self.table = PagedCache(shape, pages, page_size), np.arange(pages)
        self.append(self.cache, self.table, np.arange(length))

    def append(self, cache: PagedCache, table: np.ndarray, positions: np.ndarray) -> None:
        cache.append(table, positions, self.keys[positions], self.values[positions])

    def attend(self, positions: np.ndarray, **options: object) -> np.ndarray:
        return attention(self.query[positions], positions, self.cache, self.table, **options)


def stored(sequence: Sequence) -> tuple[np.ndarray, np.ndarray]:
    """Keys and values as the cache holds them, in float64: what remains is the error of the arithmetic."""
    cache, shape = sequence.cache, sequence.shape
    element = shape.format.element

    def decode(codes: np.ndarray, scales: np.ndarray) -> np.ndarray:
        values = np.ldexp(element.integers(codes).astype(np.float64), element.lsb)
        group = codes.shape[-1] // scales.shape[-1]
        return values * np.repeat(np.ldexp(1.0, scales.astype(np.int64) - 127), group, axis=-1)

    keys = decode(cache.key_codes, cache.key_scales)[: sequence.length]
    if shape.latent:
        return keys, keys[..., : shape.value_size]
    return keys, decode(cache._value_codes, cache._value_scales[..., None])[: sequence.length]


def reference(sequence: Sequence, positions: np.ndarray, sinks: np.ndarray | None = None) -> np.ndarray:
    """Softmax attention in float64 on what the cache holds; queries not quantised."""
    shape = sequence.shape
    keys, values = (np.repeat(part, shape.group, axis=1) for part in stored(sequence))
    scores = np.einsum("mhd,thd->mht", to_float(sequence.query[positions]).astype(np.float64), keys)
    behind = np.asarray(positions)[:, None] - np.arange(sequence.length)
    visible = (behind >= 0) & ((behind < shape.window) if shape.window else True)
    scores = np.where(visible[:, None], scores, -np.inf)
    if sinks is not None:
        scores = np.concatenate([scores, np.broadcast_to(sinks, scores.shape[:2])[..., None]], axis=-1)
    weights = np.exp2(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return np.einsum("mht,thd->mhd", weights[..., : sequence.length], values)


@pytest.mark.parametrize("name", SHAPES)
def test_error_against_float64(rng, name):
    """RMS error relative to the result's RMS: the query's and the weights' quantisation, nothing else."""
    sequence = Sequence(rng, SHAPES[name], 200)
    positions = np.array([0, 1, 100, 127, 128, 129, 199])
    exact = reference(sequence, positions)
    error = to_float(sequence.attend(positions)) - exact
    assert np.sqrt((error**2).mean() / (exact**2).mean()) < (0.06 if name == "e4m3" else 0.02)


@pytest.mark.parametrize("name", SHAPES)
def test_chunks_and_decode_give_the_same_bits(rng, name):
    # The fast products have no E4M3, so that one gets less to do.
    first, chunkings = (90, [[39, 1, 10]]) if name == "e4m3" else (0, [[1, 127, 1, 141], [128, 128, 14], [100, 170]])
    sequence = Sequence(rng, SHAPES[name], first + sum(chunkings[0]))
    whole = sequence.attend(np.arange(first, sequence.length))
    for chunks in chunkings:
        cache, start, parts = PagedCache(sequence.shape, 3), first, []
        sequence.append(cache, sequence.table, np.arange(first))
        for size in chunks:
            positions = np.arange(start, start + size)
            sequence.append(cache, sequence.table, positions)
            parts.append(attention(sequence.query[positions], positions, cache, sequence.table))
            start += size
        np.testing.assert_array_equal(np.concatenate(parts), whole)
    for position in (0, 1, 126, 127, 128, 129, 255, 256, 269):
        if first <= position < sequence.length:
            found = sequence.attend(np.array([position]))[0]
            np.testing.assert_array_equal(found, whole[position - first])


@pytest.mark.parametrize("name", ["gqa", "mla", "e4m3"])
def test_fast_products_equal_the_specification(rng, name):
    sequence = Sequence(rng, SHAPES[name], 140)
    positions = np.array([3, 139])
    np.testing.assert_array_equal(sequence.attend(positions), sequence.attend(positions, specification=True))


@pytest.mark.parametrize("page_size", [32, 64, 256])
def test_pages_of_any_size_and_order_give_the_same_bits(rng, page_size):
    """Two sequences interleaved in one pool that was full of another's data, the codes of infinity and NaN included."""
    shape = GQA
    first, second = Sequence(rng, shape, 200), Sequence(rng, shape, 131)
    needed = [-(-s.length // page_size) for s in (first, second)]
    pool = PagedCache(shape, sum(needed) + 1, page_size)
    pool.key_codes[:] = rng.integers(0, 256, pool.key_codes.shape)
    pool._value_codes[:] = rng.integers(0, 256, pool._value_codes.shape)
    pool.key_scales[:], pool._value_scales[:] = 0xFF, 0xFF
    order = rng.permutation(sum(needed) + 1)
    tables = order[: needed[0]], order[needed[0] : sum(needed)]
    for start in range(0, 200, 50):
        for sequence, table in zip((first, second), tables, strict=True):
            sequence.append(pool, table, np.arange(start, min(start + 50, sequence.length)))
    for sequence, table in zip((first, second), tables, strict=True):
        positions = np.arange(sequence.length - 3, sequence.length)
        found = attention(sequence.query[positions], positions, pool, table)
        np.testing.assert_array_equal(found, sequence.attend(positions))


@pytest.mark.parametrize("tiles", [2, 3, 5])
def test_any_number_of_tiles_gives_the_same_bits(rng, tiles):
    """Leaves dealt out to tiles in turn; each makes the partials of its own, the tree is merged from all."""
    sequence = Sequence(rng, GQA, 700)
    positions = np.array([640, 699])
    whole = sequence.attend(positions)
    for head in range(GQA.kv_heads):
        heads = slice(head * GQA.group, (head + 1) * GQA.group)
        parts = {}
        for tile in range(tiles):
            leaves = range(tile, -(-700 // LEAF), tiles)
            query = sequence.query[positions][:, heads]
            parts |= golden.leaf_partials(query, positions, sequence.cache, sequence.table, head, leaves)
        result = vector.finish(golden.merge_tree(parts, vector.merge)).reshape(2, GQA.group, -1)
        np.testing.assert_array_equal(result, whole[:, heads])


@pytest.mark.parametrize("length", [1, 127, 128, 129, 8192])
def test_lengths(rng, length):
    sequence = Sequence(rng, AttentionShape(3, 1, 32, 32), length)
    position = np.array([length - 1])
    exact = reference(sequence, position)
    np.testing.assert_allclose(to_float(sequence.attend(position)), exact, atol=0.02 * np.abs(exact).max() + 0.01)


def test_single_key_gives_its_value(rng):
    sequence = Sequence(rng, GQA, 3)
    found = to_float(sequence.attend(np.array([0])))[0]
    np.testing.assert_array_equal(found, np.repeat(stored(sequence)[1][0], GQA.group, axis=0))


def test_nothing_to_attend_to_gives_zero(rng):
    sequence = Sequence(rng, GQA, 3)
    for sinks in (None, sink_logits(from_float(np.ones(GQA.heads)))):
        found = attention(sequence.query[:2], np.array([-1, 2]), sequence.cache, sequence.table, sinks)
        np.testing.assert_array_equal(found[0], 0)
        assert found[1].any()
        np.testing.assert_array_equal(found[1], sequence.attend(np.array([2]), sinks=sinks)[0] * 0 + found[1])


def test_keys_of_zeros_give_the_mean(rng):
    sequence = Sequence(rng, GQA, 64, factor=0.0)
    exact = np.repeat(stored(sequence)[1].mean(axis=0), GQA.group, axis=0)
    np.testing.assert_allclose(to_float(sequence.attend(np.array([63])))[0], exact, atol=0.01)


def constant_logits(logits: np.ndarray, values: np.ndarray, window: int = 0) -> tuple[PagedCache, np.ndarray]:
    """A cache of one head of size 32 in which a query of ones at its first element gets these base-2 logits."""
    shape = AttentionShape(1, 1, 32, 32, window=window)
    keys, wide = np.zeros((len(logits), 1, 32)), np.zeros((len(logits), 1, 32))
    keys[:, 0, 0], wide[:, 0, 0] = logits, values
    cache = PagedCache(shape, -(-len(logits) // LEAF))
    table = np.arange(-(-len(logits) // LEAF))
    cache.append(table, np.arange(len(logits)), from_float(keys), from_float(wide))
    query = np.zeros((1, 1, 32), np.uint32)
    query[0, 0, 0] = from_float(1.0)[()]
    return cache, query


def test_logits_far_below_zero():
    """All logits are below -2e5: the maximum must not be clamped, and a mask must not win against them."""
    cache, query = constant_logits(np.full(130, -262144.0), np.linspace(1, 2, 130))
    found = to_float(attention(query, np.array([129]), cache, np.arange(2)))[0, 0, 0]
    assert abs(found - 1.5) < 0.02


def test_first_leaf_fully_masked_and_the_rest_far_below_zero():
    """A window that begins in the second leaf: the first one is empty for the row (flash-attention#2082)."""
    cache, query = constant_logits(np.full(256, -300000.0), np.full(256, 1.0), window=64)
    assert to_float(attention(query, np.array([250]), cache, np.arange(2)))[0, 0, 0] == 1.0
    # Beside a row for which that leaf is not empty, so that it is computed for both.
    both = attention(np.repeat(query, 2, axis=0), np.array([250, 130]), cache, np.arange(2))
    np.testing.assert_array_equal(to_float(both)[:, 0, 0], 1.0)


def test_masked_position_does_not_beat_a_real_score():
    """q = -20000, keys 1 and 0, values 1 and 100, the second masked (lattice PR#373)."""
    cache, query = constant_logits(np.array([1.0, 0.0]), np.array([1.0, 100.0]))
    query[0, 0, 0] = from_float(-20000.0)[()]
    assert to_float(attention(query, np.array([0]), cache, np.arange(1)))[0, 0, 0] == 1.0


def test_sinks(rng):
    sequence = Sequence(rng, AttentionShape(4, 2, 64, 64), 150)
    sinks = rng.normal(size=4) * 4
    found = to_float(sequence.attend(np.array([149]), sinks=sink_logits(from_float(sinks))))
    exact = reference(sequence, np.array([149]), sinks * np.log2(np.e))
    np.testing.assert_allclose(found, exact, atol=0.03)
    weak = sink_logits(from_float(np.full(4, -1e4)))
    np.testing.assert_array_equal(sequence.attend(np.array([149]), sinks=weak), sequence.attend(np.array([149])))


def test_window_sees_no_more_than_it_should(rng):
    """What is outside of the window may change at will."""
    shape = SHAPES["window"]
    sequence = Sequence(rng, shape, 300)
    positions = np.array([299, 250])
    before = sequence.attend(positions)
    sequence.keys[:150], sequence.values[:150] = from_float(1e6), from_float(-1e6)
    sequence.append(sequence.cache, sequence.table, np.arange(150))
    after = sequence.attend(positions)
    np.testing.assert_array_equal(after[0], before[0])
    np.testing.assert_array_equal(after[1], before[1])
    assert (sequence.attend(np.array([248])) != before[1]).any()


@pytest.mark.parametrize("poison", [np.nan, np.inf])
@pytest.mark.parametrize("format", [MXINT8, E4M3], ids=lambda f: f.name)
def test_a_nan_reaches_only_the_rows_that_see_it(rng, poison, format: Format):
    shape = AttentionShape(2, 1, 32, 32, format)
    clean, dirty = (Sequence(np.random.default_rng(1), shape, 140) for _ in range(2))
    for part in (dirty.keys, dirty.values):
        part[130, 0, 5] = from_float(poison)[()]
    dirty.append(dirty.cache, dirty.table, np.array([130]))
    found, expected = dirty.attend(np.arange(140)), clean.attend(np.arange(140))
    np.testing.assert_array_equal(found[:130], expected[:130])
    assert np.isnan(to_float(found[130:])).all()


def test_what_the_hardware_refuses_is_refused():
    with pytest.raises(ValueError, match="equal groups"):
        AttentionShape(5, 2, 64, 64)
    with pytest.raises(ValueError, match="multiple of 32"):
        AttentionShape(4, 2, 60, 64)
    with pytest.raises(ValueError, match="does not fit"):
        AttentionShape(4, 1, 64, 96, latent=True)
    with pytest.raises(ValueError, match="window"):
        AttentionShape(4, 1, 64, 64, window=-1)
    with pytest.raises(ValueError, match="multiple of 32"):
        PagedCache(GQA, 2, 48)
    cache = PagedCache(GQA, 2)
    rows = np.zeros((1, 2, 64), np.uint32)
    with pytest.raises(ValueError, match="outside a table"):
        cache.append(np.arange(2), np.array([256]), rows, rows)
    with pytest.raises(ValueError, match="does not exist"):
        cache.append(np.array([5]), np.array([0]), rows, rows)
    with pytest.raises(ValueError, match="query must be"):
        attention(rows, np.array([0]), cache, np.arange(2))


def test_chip_functions_are_close_to_the_hosts(rng):
    """The seam of `golden.model_functions`: the same layer functions, on the chip and on its host."""
    chip, host = ChipFunctions(), HostFunctions()
    x, gain = (rng.normal(size=shape).astype(np.float32) for shape in ((5, 64), 64))
    np.testing.assert_allclose(chip.rms_norm(x, gain, 1e-5), host.rms_norm(x, gain, 1e-5), rtol=1e-5)
    np.testing.assert_allclose(chip.swiglu(x, x), host.swiglu(x, x), rtol=1e-5)
    np.testing.assert_array_equal(chip.add(x, x), x + x)
    heads = rng.normal(size=(5, 4, 32)).astype(np.float32)
    positions = np.arange(5)
    q, k = (part.rope(heads, positions, 10_000.0) for part in (chip, host))
    np.testing.assert_array_equal(q, k)
    ours, theirs = (part.attention(heads, heads[:, :2], heads[:, 2:], positions) for part in (chip, host))
    np.testing.assert_allclose(ours, theirs, atol=0.05)
