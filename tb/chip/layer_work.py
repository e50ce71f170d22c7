"""A small random layer: the shape of the real one, for tests of whole layers."""

from __future__ import annotations

import numpy as np

from golden.formats import MXINT8
from golden.fp32_ops import Bits
from golden.layer import Layer, run_layer
from golden.model import KvCache, Quantised, QuantisedLayer
from golden.smollm2 import ModelConfig

MODEL = ModelConfig(1, 128, 2, 1, 128, 100, 2048, 10000.0, 1e-5)
"""One layer: 128 channels, two heads that share a key head, 128 gated channels."""


def random_layer(seed: int) -> QuantisedLayer:
    """Weights and gains of a layer of `MODEL`."""
    numbers = np.random.default_rng(seed)
    matrices = {
        name: Quantised.of(numbers.standard_normal(shape).astype(np.float32) / np.float32(8), MXINT8)
        for name, shape in MODEL.shapes().items()
    }
    gains = (numbers.standard_normal(MODEL.hidden).astype(np.float32) for _ in range(2))
    return QuantisedLayer(matrices, *gains)


def random_work(seed: int, chunk: int = 5) -> dict[str, tuple[Layer, dict[str, Bits]]]:
    """A chunk of positions (`prefill`) and a step behind it (`decode`): the work and its results."""
    numbers = np.random.default_rng(seed)
    layer, cache = random_layer(seed), KvCache(MODEL)
    return {
        mode: run_layer(MODEL, layer, numbers.standard_normal((positions, MODEL.hidden)).astype(np.float32), cache)
        for mode, positions in (("prefill", chunk), ("decode", 1))
    }
