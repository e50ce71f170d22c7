"""What a run computes: the layer's products with their true inputs, and the bits that they must give."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from golden.layer import Layer, layer_problem, run_layer
from golden.model import GoldenModel, LayerSteps, Product, layer_work
from golden.smollm2 import SmolLM2
from golden.tokenizer import Tokenizer
from golden.vector_functions import ChipFunctions
from hw.config import ChipConfig

PHASES = (("q", "k", "v"), ("o",), ("gate", "up"), ("down",))
"""Products that share their activations; between phases stand norm, RoPE, attention and SwiGLU."""

DEFAULT_PROMPT = "The Sierra Nevada rises east of the Central Valley, and its snow feeds the rivers of California."
MINIMUM_CHUNK = 16
BEFORE = {"what": "tokenisation, embedding and the layers before the one that runs", "where": "golden model (NumPy)"}
BETWEEN = {
    "what": "RMSNorm, RoPE, softmax attention, SwiGLU and quantisation between the products", "where": "golden model",
}  # fmt: skip
ATTENTION = {
    "what": "softmax attention: scores and mixed values of rotated queries and keys, quantised for o",
    "where": "golden model",
}


class PromptError(ValueError):
    """A prompt that cannot be run; the message says what is allowed."""


@dataclass(frozen=True)
class Work:
    """`phases[mode]` has the products of each phase, `expected[mode]` the FP32 bits [M, N] of each result by its name.

    `layers[mode]` is the whole layer, where the tiles run it and not its products alone; `outside` says what is
    computed elsewhere.
    """

    text: str
    tokens: list[int]
    layer: int
    model_file: str
    phases: dict[str, list[list[Product]]]
    expected: dict[str, dict[str, NDArray[np.uint32]]]
    layers: dict[str, Layer] = field(default_factory=dict)
    outside: list[dict[str, str]] = field(default_factory=lambda: [BEFORE, BETWEEN])


def prepare(prompt: str, layer: int, chip: ChipConfig | None = None) -> Work:
    """Tokenise, run the layers before `layer`, and collect its work for a prefill chunk and one decode step.

    The work is a whole layer where the tiles of `chip` can run it, else the products. Raises PromptError for a prompt
    of fewer than 17 tokens or an unknown layer.
    """
    model = SmolLM2.load()
    if not 0 <= layer < model.config.layers:
        raise PromptError(f"LAYER must be 0 to {model.config.layers - 1}, not {layer}")
    tokens = Tokenizer(model).encode(prompt)
    if len(tokens) <= MINIMUM_CHUNK:
        raise PromptError(f"PROMPT must have at least {MINIMUM_CHUNK + 1} tokens; this one has {len(tokens)}")
    if chip is not None and layer_problem(chip, model.config) is None:
        return _whole(prompt, model, layer, tokens, chip)
    work = layer_work(GoldenModel(model), layer, tokens)
    phases, expected = {}, {}
    for mode, steps in (("prefill", work.prefill), ("decode", work.decode)):
        phases[mode], expected[mode] = _collect(steps)
    return Work(prompt, tokens, layer, model.path.name, phases, expected)


def _collect(steps: LayerSteps) -> tuple[list[list[Product]], dict[str, NDArray[np.uint32]]]:
    products, expected = {}, {}
    try:
        product = next(steps)
        while True:
            products[product.name], expected[product.name] = product, product.golden()
            product = steps.send(expected[product.name])
    except StopIteration:
        return [[products[name] for name in names] for names in PHASES], expected


def _whole(prompt: str, model: SmolLM2, layer: int, tokens: list[int], chip: ChipConfig) -> Work:
    golden = GoldenModel(model, functions=ChipFunctions())
    layers, expected = {}, {}
    inputs = {"prefill": golden.layer_input(layer, tokens[:-1]), "decode": golden.layer_input(layer, tokens[-1:])}
    for mode, x in inputs.items():
        layers[mode], expected[mode] = run_layer(model.config, golden.weights(layer), x, golden.caches[layer], layer)
    phases = {mode: [[work.products[n] for n in names] for names in PHASES] for mode, work in layers.items()}
    outside = [BEFORE] if chip.tile.attention_rows else [BEFORE, ATTENTION]
    return Work(prompt, tokens, layer, model.path.name, phases, expected, layers, outside)
