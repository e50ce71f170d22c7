"""SmolLM2 in plain float32: what the golden arithmetic is compared with, not what the chip is compared with.

It uses BLAS and libm, so its last bits may differ between machines. Source: the Llama model of Hugging Face's
`transformers` (RMSNorm, rotate-half RoPE, grouped-query attention, SwiGLU).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from golden.smollm2 import LayerWeights, ModelConfig, SmolLM2

Floats = NDArray[np.float32]


def rms_norm(x: Floats, gain: Floats, epsilon: float) -> Floats:
    """[..., hidden] over the last axis."""
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + np.float32(epsilon)) * gain


def rope(x: Floats, positions: NDArray[np.int64], base: float) -> Floats:
    """Rotate [M, heads, head_size] by the angles of `positions` [M]; element i pairs with i + head_size/2."""
    half = x.shape[-1] // 2
    angles = positions[:, None] * base ** (-np.arange(half) / half)
    cos, sin = (f(angles).astype(np.float32)[:, None, :] for f in (np.cos, np.sin))
    low, high = x[..., :half], x[..., half:]
    return np.concatenate([low * cos - high * sin, high * cos + low * sin], axis=-1)


@dataclass
class _Cache:
    keys: Floats
    values: Floats


class Reference:
    """A forward pass that keeps its KV cache: call `forward` with the next tokens, get their logits."""

    def __init__(self, model: SmolLM2) -> None:
        self.model = model
        self.reset()

    def reset(self) -> None:
        """Forget all positions."""
        config = self.model.config
        empty = np.zeros((0, config.kv_heads, config.head_size), np.float32)
        self._caches = [_Cache(empty, empty) for _ in range(config.layers)]
        self.position = 0

    def forward(self, tokens: Sequence[int]) -> Floats:
        """Logits [len(tokens), vocabulary] of the tokens that follow all earlier calls'."""
        x = self.model.embedding[np.asarray(tokens)]
        for index, cache in enumerate(self._caches):
            x = _layer(self.model.config, self.model.layer(index), x, cache, self.position)
        self.position += len(tokens)
        x = rms_norm(x, self.model.output_norm, self.model.config.norm_epsilon)
        return x @ self.model.embedding.T

    def generate(self, tokens: Sequence[int], count: int, stop: int | None = None) -> list[int]:
        """The `count` most likely next tokens after `tokens`, one after the other; ends early at `stop`."""
        self.reset()
        result: list[int] = []
        pending = list(tokens)
        while len(result) < count:
            token = int(np.argmax(self.forward(pending)[-1]))
            if token == stop:
                break
            result.append(token)
            pending = [token]
        return result


def _layer(config: ModelConfig, weights: LayerWeights, x: Floats, cache: _Cache, start: int) -> Floats:
    count, size = len(x), config.head_size
    positions = np.arange(start, start + count)
    normed = rms_norm(x, weights.attention_norm, config.norm_epsilon)
    q = rope((normed @ weights.q.T).reshape(count, config.heads, size), positions, config.rope_base)
    k = rope((normed @ weights.k.T).reshape(count, config.kv_heads, size), positions, config.rope_base)
    v = (normed @ weights.v.T).reshape(count, config.kv_heads, size)
    cache.keys, cache.values = np.concatenate([cache.keys, k]), np.concatenate([cache.values, v])
    group = config.heads // config.kv_heads
    keys, values = (np.repeat(a, group, axis=1) for a in (cache.keys, cache.values))
    scores = np.einsum("mhd,thd->hmt", q, keys, optimize=True) / np.float32(np.sqrt(size))
    visible = np.arange(len(keys))[None, :] <= positions[:, None]
    scores = np.where(visible, scores, np.float32(-np.inf))
    weight = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weight /= weight.sum(axis=-1, keepdims=True)
    mixed = np.einsum("hmt,thd->mhd", weight, values, optimize=True).reshape(count, config.hidden)
    x = x + mixed @ weights.o.T
    normed = rms_norm(x, weights.feed_forward_norm, config.norm_epsilon)
    gate, up = normed @ weights.gate.T, normed @ weights.up.T
    return x + (gate / (1 + np.exp(-gate)) * up) @ weights.down.T


def log_probabilities(logits: Floats) -> NDArray[np.float64]:
    """log softmax over the last axis, in float64."""
    wide = logits.astype(np.float64)
    wide -= wide.max(axis=-1, keepdims=True)
    return wide - np.log(np.exp(wide).sum(axis=-1, keepdims=True))


def perplexity(logits: Floats, tokens: Sequence[int]) -> float:
    """exp of the mean negative log likelihood of tokens[1:] under logits[:-1]; logits are [len(tokens), vocabulary]."""
    if len(tokens) < 2 or len(logits) != len(tokens):
        raise ValueError(
            f"perplexity wants as many rows of logits as tokens, at least 2; not {len(logits)}, {len(tokens)}"
        )
    chosen = log_probabilities(logits[:-1])[np.arange(len(tokens) - 1), np.asarray(tokens[1:])]
    return float(np.exp(-chosen.mean()))


@dataclass(frozen=True)
class Agreement:
    """How near one set of logits is to another: both perplexities, mean KL divergence in nats, share of equal top-1."""

    reference_perplexity: float
    perplexity: float
    mean_kl: float
    top1: float


def agreement(reference: Floats, logits: Floats, tokens: Sequence[int]) -> Agreement:
    """Compare `logits` with the `reference`'s, both [len(tokens), vocabulary]."""
    p, q = log_probabilities(reference), log_probabilities(logits)
    kl = (np.exp(p) * (p - q)).sum(axis=-1).mean()
    top1 = (reference.argmax(axis=-1) == logits.argmax(axis=-1)).mean()
    return Agreement(perplexity(reference, tokens), perplexity(logits, tokens), float(kl), float(top1))
