"""SmolLM2 in golden arithmetic: a layer as its matrix products, in block formats, and the functions between them.

`layer_steps` is a generator: it yields each matrix product as codes and scales and is sent the FP32 bits of the
result, so that the products can be done by the RTL (one at a time, compared with `Product.golden`) or by
the golden arithmetic itself, with the same code between them. `GoldenModel` runs it over whole models.

Weights, activations and the output layer are quantised in blocks of 32 along K; the residual stream, the KV cache and
everything in `golden.model_functions` is float32.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden import dot, model_fast
from golden.formats import MXINT8, Format
from golden.model_functions import Functions, HostFunctions
from golden.smollm2 import LayerWeights, ModelConfig, SmolLM2

Floats = NDArray[np.float32]
Bits = NDArray[np.uint32]

PRODUCTS = ("q", "k", "v", "o", "gate", "up", "down")


@dataclass(frozen=True)
class Quantised:
    """A matrix [rows, K] in blocks along K: codes uint8 [rows, K], scales uint8 (E8M0) [rows, K/32]."""

    codes: NDArray[np.uint8]
    scales: NDArray[np.uint8]
    format: Format

    @classmethod
    def of(cls, values: Floats, format: Format) -> Quantised:
        codes, scales = model_fast.quantise(np.ascontiguousarray(values, np.float32).view(np.uint32), format)
        return cls(codes, scales, format)


@dataclass(frozen=True)
class Product:
    """One matrix product of a layer: activations [M, K] times weights [N, K], both quantised, to FP32 [M, N]."""

    name: str
    layer: int
    activations: Quantised
    weights: Quantised

    @property
    def m(self) -> int:
        return len(self.activations.codes)

    @property
    def n(self) -> int:
        return len(self.weights.codes)

    @property
    def k(self) -> int:
        return int(self.weights.codes.shape[1])

    def golden(self) -> Bits:
        """The result that the chip must give, by the specification: FP32 bits [M, N]. Tenths of a second a product."""
        return dot.matmul(*self._arguments())

    def fast(self) -> Bits:
        """The same bits from `golden.model_fast`, in milliseconds: for the layers before the one that is looked at."""
        return model_fast.matmul(*self._arguments())

    def _arguments(self) -> tuple[Any, ...]:
        a, b = self.activations, self.weights
        return a.codes, a.scales, b.codes, b.scales, a.format, b.format


class KvCache:
    """Keys (after RoPE) and values of one layer for the positions so far, each float32 [T, kv_heads, head_size]."""

    def __init__(self, config: ModelConfig) -> None:
        self.keys: Floats = np.zeros((0, config.kv_heads, config.head_size), np.float32)
        self.values: Floats = self.keys

    def __len__(self) -> int:
        return len(self.keys)

    def append(self, keys: Floats, values: Floats) -> None:
        self.keys = np.concatenate([self.keys, keys])
        self.values = np.concatenate([self.values, values])


@dataclass(frozen=True)
class QuantisedLayer:
    """A layer's weights as the chip holds them: the seven matrices quantised, the norms' gains in float32."""

    matrices: dict[str, Quantised]
    attention_norm: Floats
    feed_forward_norm: Floats

    @classmethod
    def of(cls, weights: LayerWeights, format: Format) -> QuantisedLayer:
        matrices = {name: Quantised.of(getattr(weights, name), format) for name in PRODUCTS}
        return cls(matrices, weights.attention_norm, weights.feed_forward_norm)


LayerSteps = Generator[Product, Bits, Floats]


def layer_steps(
    config: ModelConfig,
    weights: QuantisedLayer,
    x: Floats,
    cache: KvCache,
    *,
    layer: int,
    activation_format: Format = MXINT8,
    functions: Functions | None = None,
) -> LayerSteps:
    """One layer over the next M positions: yields the seven products in order, wants each one's FP32 bits [M, N].

    `x` is the residual stream, float32 [M, hidden]; the positions are those that follow `cache`, which is extended.
    The generator's return value (`StopIteration.value`) is the new residual stream, float32 [M, hidden].
    """
    between = functions or HostFunctions()
    count, size = len(x), config.head_size
    positions = np.arange(len(cache), len(cache) + count)

    def product(name: str, activations: Quantised) -> Generator[Product, Bits, Floats]:
        bits = yield Product(name, layer, activations, weights.matrices[name])
        wanted = (count, len(weights.matrices[name].codes))
        if bits is None or bits.dtype != np.uint32 or bits.shape != wanted:
            raise ValueError(f"product {name} of layer {layer} wants uint32 {wanted} FP32 bits")
        return np.ascontiguousarray(bits).view(np.float32)

    normed = Quantised.of(between.rms_norm(x, weights.attention_norm, config.norm_epsilon), activation_format)
    q = (yield from product("q", normed)).reshape(count, config.heads, size)
    k = (yield from product("k", normed)).reshape(count, config.kv_heads, size)
    v = (yield from product("v", normed)).reshape(count, config.kv_heads, size)
    cache.append(between.rope(k, positions, config.rope_base), v)
    q = between.rope(q, positions, config.rope_base)
    mixed = between.attention(q, cache.keys, cache.values, positions).reshape(count, config.hidden)
    x = between.add(x, (yield from product("o", Quantised.of(mixed, activation_format))))
    normed = Quantised.of(between.rms_norm(x, weights.feed_forward_norm, config.norm_epsilon), activation_format)
    gate = yield from product("gate", normed)
    up = yield from product("up", normed)
    inner = Quantised.of(between.swiglu(gate, up), activation_format)
    return between.add(x, (yield from product("down", inner)))


def run_steps(steps: LayerSteps) -> Floats:
    """Do every product of a layer in golden arithmetic; the new residual stream, float32 [M, hidden]."""
    try:
        product = next(steps)
        while True:
            product = steps.send(product.fast())
    except StopIteration as end:
        result: Floats = end.value
        return result


class GoldenModel:
    """A whole model in golden arithmetic with its KV cache. Positions may come one at a time or in any chunks."""

    def __init__(
        self,
        model: SmolLM2,
        weight_format: Format = MXINT8,
        activation_format: Format = MXINT8,
        functions: Functions | None = None,
    ) -> None:
        self.model, self.config = model, model.config
        self.weight_format, self.activation_format = weight_format, activation_format
        self.functions = functions or HostFunctions()
        self.weights = lru_cache(maxsize=None)(self._weights)
        self._head: Quantised | None = None
        self.reset()

    def reset(self) -> None:
        """Forget all positions."""
        self.caches = [KvCache(self.config) for _ in range(self.config.layers)]

    def _weights(self, layer: int) -> QuantisedLayer:
        """Layer `layer` as the chip holds it; quantised once."""
        return QuantisedLayer.of(self.model.layer(layer), self.weight_format)

    def embed(self, tokens: Sequence[int]) -> Floats:
        """The residual stream before layer 0, float32 [M, hidden]."""
        ids = np.asarray(tokens, np.int64)
        if ids.ndim != 1 or not len(ids) or ids.min() < 0 or ids.max() >= self.config.vocabulary:
            raise ValueError(f"tokens must be a non-empty list of ids from 0 to {self.config.vocabulary - 1}")
        return self.model.embedding[ids]

    def steps(self, layer: int, x: Floats) -> LayerSteps:
        """`layer_steps` of `layer` with this model's weights, cache, formats and functions."""
        return layer_steps(
            self.config,
            self.weights(layer),
            x,
            self.caches[layer],
            layer=layer,
            activation_format=self.activation_format,
            functions=self.functions,
        )

    def layer_input(self, layer: int, tokens: Sequence[int]) -> Floats:
        """The true input of `layer` for the next `tokens`: layers before it run in golden arithmetic, caches grow."""
        if not 0 <= layer < self.config.layers:
            raise ValueError(f"layer must be 0 to {self.config.layers - 1}, not {layer}")
        x = self.embed(tokens)
        for index in range(layer):
            x = run_steps(self.steps(index, x))
        return x

    def logits(self, tokens: Sequence[int]) -> Floats:
        """Logits float32 [len(tokens), vocabulary] of the tokens that follow all earlier calls'."""
        x = self.layer_input(self.config.layers - 1, tokens)
        x = run_steps(self.steps(self.config.layers - 1, x))
        x = self.functions.rms_norm(x, self.model.output_norm, self.config.norm_epsilon)
        if self._head is None:
            self._head = Quantised.of(self.model.embedding, self.weight_format)
        activations = Quantised.of(x, self.activation_format)
        return Product("head", self.config.layers, activations, self._head).fast().view(np.float32)


@dataclass(frozen=True)
class LayerWork:
    """One layer's work, ready to be run: a chunk of `prefill` positions, then one `decode` step that sees them."""

    layer: int
    tokens: list[int]
    prefill: LayerSteps
    decode: LayerSteps


def layer_work(golden: GoldenModel, layer: int, tokens: Sequence[int]) -> LayerWork:
    """Layer `layer` for a tokenised prompt: all tokens but the last as one prefill chunk, the last as a decode step.

    The decode step attends to the chunk's keys and values: run `prefill` to its end before `decode` is started.
    """
    if len(tokens) < 2:
        raise ValueError(f"the prompt must have at least 2 tokens (one chunk, one decode step), not {len(tokens)}")
    golden.reset()
    chunk = golden.layer_input(layer, tokens[:-1])
    last = golden.layer_input(layer, tokens[-1:])
    return LayerWork(layer, list(tokens), golden.steps(layer, chunk), golden.steps(layer, last))
