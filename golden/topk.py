"""Top-k and the routers of mixture-of-experts layers: golden functions of `hw.vector.topk.TopK`.

Values are uint32 FP32 patterns. Sources: gpt-oss `torch/model.py` (softmax after top-k), DeepSeek-V3 `model.py`
(sigmoid, groups, correction bias, scale).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from golden import fp32_ops as ops
from golden.fp32_ops import Bits
from golden.vector import Function, Reduce, add, scale, sigmoid, softmax, vector_pass


class Chosen(NamedTuple):
    """The k largest: int64 indices and their values, both [..., k], largest first."""

    index: NDArray[np.int64]
    value: Bits


class Routing(NamedTuple):
    """Experts int64 [..., k] and their weights uint32 [..., k], in the order in which they are combined."""

    expert: NDArray[np.int64]
    weight: Bits


def top_k(values: Bits, k: int, allowed: NDArray[np.bool_] | None = None) -> Chosen:
    """The k largest of the last axis, largest first; of equal values the lower index first.

    NaN counts as larger than everything, so that it is seen; +0 is larger than -0. Elements that are not `allowed`
    are never chosen. `ValueError` if fewer than k may be chosen.
    """
    values = np.asarray(values, dtype=np.uint32)
    allowed = np.ones(values.shape, bool) if allowed is None else np.broadcast_to(allowed, values.shape)
    if k < 1 or (allowed.sum(axis=-1) < k).any():
        raise ValueError(f"Cannot choose {k} of {int(allowed.sum(axis=-1).min())} values")
    keys = np.where(ops.is_nan(values), np.uint32(0xFFFFFFFF), ops.order(values)).astype(np.int64)
    index = np.argsort(-np.where(allowed, keys, -1), axis=-1, kind="stable")[..., :k]
    return Chosen(index, np.take_along_axis(values, index, axis=-1))


def route_softmax(logits: Bits, k: int) -> Routing:
    """GPT-OSS: the k largest logits, then softmax over these alone."""
    chosen = top_k(logits, k)
    return Routing(chosen.index, softmax(chosen.value))


def route_sigmoid(
    logits: Bits, bias: Bits, k: int, groups: int = 1, kept_groups: int = 1, factor: np.uint32 = ops.ONE
) -> Routing:
    """DeepSeek, Kimi: sigmoid scores; groups by the sum of their two largest biased scores; k experts of these groups.

    logits [..., experts], bias [experts]. The bias takes part in the choice only; the weights are the chosen scores
    over their tree sum, times `factor`. `ValueError` where the groups do not divide the experts.
    """
    experts = logits.shape[-1]
    if experts % groups or not 1 <= kept_groups <= groups:
        raise ValueError(f"{experts} experts in {groups} groups of which {kept_groups} are kept is impossible")
    scores = sigmoid(logits)
    biased = add(scores, bias)
    allowed = None
    if groups > 1:
        best = top_k(biased.reshape(*biased.shape[:-1], groups, -1), 2).value
        kept = top_k(add(best[..., 0], best[..., 1]), kept_groups).index
        inside = (np.arange(groups) == kept[..., None]).any(axis=-2)
        allowed = np.repeat(inside, experts // groups, axis=-1)
    chosen = top_k(biased, k, allowed).index
    weights = np.take_along_axis(scores, chosen, axis=-1)
    total = vector_pass(weights, reduce=Reduce.SUM).reduced
    inverse = vector_pass(total, function=Function.RECIPROCAL, v=factor).result
    return Routing(chosen, scale(weights, inverse[..., None]))
