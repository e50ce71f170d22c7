"""Attention on the tile: grouped queries, multi-head and absorbed MLA over a paged cache, to the bit.

A query's result depends on its own position, the keys and values it sees and nothing else: not on the chunk in which
it is computed, on other sequences, on stale pages, or on which tile holds which leaf. That holds because

- keys are quantised per token in blocks of 32 along the head, values per token with one scale;
- positions are taken in leaves of `LEAF`, each leaf's softmax from scratch (its own maximum, sum and output);
- leaves merge over the tree of neighbours by absolute leaf number, where a leaf that a row does not see changes no
  bit (`golden.vector.merge`), so that longer and shorter trees agree;
- a masked position has weight +0 and its stored codes are finite: a token with a NaN or an infinity is stored as codes
  0 under the NaN scale, which reaches only the rows that see it.

Scores are base-2 logits: log2(e) and the softmax scale are multiplied into the query before it is quantised
(`query_factor`). The value's scale is multiplied into the softmax weight before the weight is quantised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from math import sqrt
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from golden import dot, model_fast, vector
from golden import quantise as exact_quantise
from golden.formats import BLOCK, E8M0_BIAS, E8M0_NAN, MXINT8, Format
from golden.fp32_ops import NAN, ONE, ZERO, Bits, from_float
from golden.vector import LOG2_E, Partial

LEAF = 128
"""Positions of a leaf."""

Bytes = NDArray[np.uint8]
_Part = TypeVar("_Part")


@dataclass(frozen=True)
class AttentionShape:
    """Sizes of one attention layer.

    Parameters
    ----------
    heads, kv_heads: query heads, and key/value heads that they share in equal groups.
    key_size, value_size: elements of a head's key and value, multiples of 32.
    format: of query, key, value and softmax weight: a block format with an E8M0 scale.
    window: positions that a query sees, its own included; 0 for all before it.
    latent: absorbed MLA: the value is the first `value_size` elements of the key, which share one scale per token.
    """

    heads: int
    kv_heads: int
    key_size: int
    value_size: int
    format: Format = MXINT8
    window: int = 0
    latent: bool = False

    def __post_init__(self) -> None:
        if self.kv_heads < 1 or self.heads < 1 or self.heads % self.kv_heads:
            raise ValueError(f"{self.heads} query heads cannot share {self.kv_heads} key heads in equal groups")
        for name in ("key_size", "value_size"):
            value = getattr(self, name)
            if value < BLOCK or value % BLOCK:
                raise ValueError(f"{name} must be a positive multiple of {BLOCK}, not {value}")
        if self.window < 0:
            raise ValueError(f"window must be 0 (none) or positive, not {self.window}")
        if self.latent and self.value_size > self.key_size:
            raise ValueError(f"A latent value of {self.value_size} does not fit into a key of {self.key_size}")
        if self.format.scale != "E8M0":
            raise ValueError(f"Attention needs a format with an E8M0 scale, not {self.format.name}")

    @property
    def group(self) -> int:
        """Query heads of a key head."""
        return self.heads // self.kv_heads


def query_factor(key_size: int, scale: float | None = None) -> np.uint32:
    """FP32 of log2(e) * scale, by which a query is multiplied before it is quantised; default 1 / sqrt(key_size)."""
    return from_float(np.float32(1.4426950408889634 * (1.0 / sqrt(key_size) if scale is None else scale)))[()]


def sink_logits(sinks: Bits) -> Bits:
    """Learned sinks (natural logits, uint32 [heads]) as base-2 logits."""
    return vector.scale(sinks, LOG2_E)


def per_token(values: Bits, format: Format) -> tuple[Bytes, Bytes]:
    """Codes [..., n] and one scale [...] over the whole last axis."""
    codes, scales = model_fast.quantise(values, replace(format, group=values.shape[-1]))
    return codes, scales[..., 0]


def quantise_keys(keys: Bits, shape: AttentionShape) -> tuple[Bytes, Bytes]:
    """Keys uint32 [..., key_size] to codes [..., key_size] and scales [..., key_size/32]."""
    if not shape.latent:
        return model_fast.quantise(keys, shape.format)
    latent, scale = per_token(keys[..., : shape.value_size], shape.format)
    parts, scales = [latent], [np.repeat(scale[..., None], shape.value_size // BLOCK, axis=-1)]
    if shape.key_size > shape.value_size:
        rest = model_fast.quantise(keys[..., shape.value_size :], shape.format)
        parts.append(rest[0])
        scales.append(rest[1])
    return np.concatenate(parts, axis=-1), np.concatenate(scales, axis=-1)


def scale_bits(scales: Bytes) -> Bits:
    """E8M0 scales as FP32: 2**(scale - 127), NaN for 0xFF."""
    wide = scales.astype(np.uint32)
    return np.where(wide == E8M0_NAN, NAN, np.where(wide == 0, np.uint32(1 << 22), wide << 23)).astype(np.uint32)


@dataclass(frozen=True)
class Leaf:
    """128 positions of one key head: key codes [128, key_size] with scales, value codes [128, value_size] with one."""

    key_codes: Bytes
    key_scales: Bytes
    value_codes: Bytes
    value_scales: Bytes


class PagedCache:
    """Keys and values of one layer in pages that sequences map through their page tables.

    A page table is an integer array: entry i is the page that holds positions i*page_size .. (i+1)*page_size - 1.
    Fresh pages hold zeros; a reused page keeps what was there, which changes no result.

    Raises
    ------
    ValueError
        For a page size that is not a multiple of 32, or a position that the table does not map.
    """

    def __init__(self, shape: AttentionShape, pages: int, page_size: int = LEAF):
        if page_size < BLOCK or page_size % BLOCK:
            raise ValueError(f"A page must hold a positive multiple of {BLOCK} positions, not {page_size}")
        self.shape, self.page_size = shape, page_size
        slots = pages * page_size
        self.key_codes = np.zeros((slots, shape.kv_heads, shape.key_size), np.uint8)
        self.key_scales = np.zeros((slots, shape.kv_heads, shape.key_size // BLOCK), np.uint8)
        stored = 0 if shape.latent else shape.value_size
        self._value_codes = np.zeros((slots, shape.kv_heads, stored), np.uint8)
        self._value_scales = np.zeros((slots, shape.kv_heads), np.uint8)

    def _slots(self, table: NDArray[np.integer], positions: NDArray[np.integer]) -> NDArray[np.int64]:
        table, positions = np.asarray(table), np.asarray(positions)
        entry = positions // self.page_size
        if (positions < 0).any() or (entry >= len(table)).any():
            raise ValueError(f"Positions up to {positions.max()} are outside a table of {len(table)} pages")
        pages = table[entry].astype(np.int64)
        slots = pages * self.page_size + positions % self.page_size
        if (pages < 0).any() or (slots >= len(self.key_codes)).any():
            raise ValueError(f"The table maps a position to page {pages.min()} or {pages.max()}, which does not exist")
        return slots

    def append(self, table: NDArray[np.integer], positions: NDArray[np.integer], keys: Bits, values: Bits) -> None:
        """Store keys uint32 [M, kv_heads, key_size] (after RoPE) and values [M, kv_heads, value_size] at `positions`.

        With `latent`, values are taken from the keys and the argument is ignored.
        """
        slots = self._slots(table, positions)
        self.key_codes[slots], self.key_scales[slots] = quantise_keys(keys, self.shape)
        if not self.shape.latent:
            self._value_codes[slots], self._value_scales[slots] = per_token(values, self.shape.format)

    def leaf(self, table: NDArray[np.integer], index: int, head: int, length: int) -> Leaf:
        """Positions index*128 .. of a sequence of `length`; what lies behind its end is zero."""
        count = min(LEAF, length - index * LEAF)
        slots = self._slots(table, np.arange(index * LEAF, index * LEAF + count))

        def fetch(store: Bytes) -> Bytes:
            block = np.zeros((LEAF, *store.shape[2:]), np.uint8)
            block[:count] = store[slots, head]
            return block

        key_codes, key_scales = fetch(self.key_codes), fetch(self.key_scales)
        if self.shape.latent:
            return Leaf(key_codes, key_scales, key_codes[:, : self.shape.value_size], key_scales[:, 0])
        return Leaf(key_codes, key_scales, fetch(self._value_codes), fetch(self._value_scales))


def leaf_partial(
    query: tuple[Bytes, Bytes], leaf: Leaf, visible: NDArray[np.bool_], format: Format, specification: bool = False
) -> Partial:
    """One leaf from scratch: quantised query rows [rows, key_size], visible bool [rows, 128].

    Scores on the array; softmax in the vector engine; weights times value scales quantised in blocks of 32 positions;
    output on the array with value scales of one. `specification`: the products by `golden.dot` and `golden.quantise`
    instead of their fast equals.
    """
    matmul = dot.matmul if specification else model_fast.matmul
    quantise = exact_quantise.quantise if specification else model_fast.quantise
    scores = matmul(*query, leaf.key_codes, leaf.key_scales, format, format)
    softmax = vector.softmax_leaf(scores, visible, scale_bits(leaf.value_scales))
    value_codes = np.ascontiguousarray(leaf.value_codes.T)
    ones = np.full((len(value_codes), LEAF // BLOCK), E8M0_BIAS, np.uint8)
    codes, scales = quantise(softmax.weights, format)
    return Partial(softmax.maximum, softmax.total, matmul(codes, scales, value_codes, ones, format, format))


def merge_tree(parts: dict[int, _Part], merge: Callable[[_Part, _Part], _Part]) -> _Part:
    """Merge leaves over the tree of neighbours (2i, 2i + 1); a leaf that is not in `parts` was seen by no row.

    The same for the nodes of a level, by their numbers in it. `merge`: `golden.vector.merge`, or what stands for it.
    """
    if not parts:
        raise ValueError("There is no leaf to merge")
    while len(parts) > 1:
        above: dict[int, _Part] = {}
        for index in sorted(parts):
            if index // 2 in above:
                above[index // 2] = merge(above[index // 2], parts[index])
            else:
                above[index // 2] = parts[index]
        parts = above
    return next(iter(parts.values()))


def visibility(positions: NDArray[np.integer], leaf: int, window: int) -> NDArray[np.bool_]:
    """bool [rows, 128]: which of a leaf's positions a query at each of `positions` sees; a negative one sees none."""
    keys = leaf * LEAF + np.arange(LEAF)
    behind = np.asarray(positions)[:, None] - keys
    return (behind >= 0) & ((behind < window) if window else True)


def leaf_partials(
    query: Bits,
    positions: NDArray[np.integer],
    cache: PagedCache,
    table: NDArray[np.integer],
    head: int,
    leaves: Iterable[int] | None = None,
    specification: bool = False,
) -> dict[int, Partial]:
    """Partials of the leaves that a row sees, of one key head: query uint32 [M, group, key_size], rows M*group.

    `leaves` limits the work to some of them: a tile's share of a sequence.
    """
    shape = cache.shape
    rows = query.reshape(-1, shape.key_size)
    row_positions = np.repeat(np.asarray(positions), query.shape[1])
    length = int(row_positions.max(initial=-1)) + 1
    codes = model_fast.quantise(rows, shape.format)
    parts = {}
    for index in range(-(-length // LEAF)) if leaves is None else leaves:
        visible = visibility(row_positions, index, shape.window)
        if visible.any():
            leaf = cache.leaf(table, index, head, length)
            parts[index] = leaf_partial(codes, leaf, visible, shape.format, specification)
    return parts


def _nothing(rows: int, size: int) -> Partial:
    nothing = np.zeros(rows, np.uint32)
    return Partial(np.full(rows, vector.NEGATIVE_INFINITY), nothing, np.zeros((rows, size), np.uint32))


def attention(
    query: Bits,
    positions: NDArray[np.integer],
    cache: PagedCache,
    table: NDArray[np.integer],
    sinks: Bits | None = None,
    specification: bool = False,
) -> Bits:
    """Attention of queries at `positions` [M] of one sequence: uint32 [M, heads, key_size] to [M, heads, value_size].

    query: after RoPE and times `query_factor`, not quantised. The keys and values of every position that is seen
    are in `cache`. A negative position sees nothing and gives +0. sinks: base-2 logits uint32 [heads]
    (`sink_logits`), each an additional key without a value. `ValueError` for shapes that do not fit.
    """
    shape = cache.shape
    query = np.asarray(query, dtype=np.uint32)
    if query.shape != (len(positions), shape.heads, shape.key_size):
        raise ValueError(f"query must be {(len(positions), shape.heads, shape.key_size)}, not {query.shape}")
    count, group, size = len(positions), shape.group, shape.value_size
    result = np.zeros((count, shape.heads, size), np.uint32)
    for head in range(shape.kv_heads):
        heads = slice(head * group, (head + 1) * group)
        parts = leaf_partials(query[:, heads], positions, cache, table, head, None, specification)
        part = merge_tree(parts, vector.merge) if parts else _nothing(count * group, size)
        if sinks is not None:
            logits = np.tile(sinks[heads], count)
            part = vector.merge(part, Partial(logits, np.full_like(logits, ONE), np.full_like(part.output, ZERO)))
        result[:, heads] = vector.finish(part).reshape(count, group, size)
    return result
