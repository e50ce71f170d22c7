"""Models as their published shapes: the matrix products of a token, parameters, bytes and KV cache.

A model is a TOML file in `models/`. What it must reproduce is in `scripts/published.toml` under `model.`, and
`tests/test_extrapolate_shapes.py` compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from scripts.extrapolate.toml_object import DescriptionError, make, read

FOLDER = Path(__file__).with_name("models")

BITS = {
    "BF16": 16.0,
    "FP8": 8.0,
    "FP8_128x128": 8.0 + 32 / 128**2,
    "MXINT8": 8.25,
    "MXFP4": 4.25,
    "INT4_G32": 4.5,
}
"""Bits a weight in memory, its share of the scales included."""


@dataclass(frozen=True)
class Attention:
    """Grouped-query (`gqa`: heads, kv_heads, head_size) or latent (`mla`: heads, ranks, parts of a head)."""

    kind: str
    heads: int
    kv_heads: int = 0
    head_size: int = 0
    biases: bool = False
    sinks: bool = False
    window: int = 0
    window_layers: int = 0
    q_rank: int = 0
    kv_rank: int = 0
    nope: int = 0
    rope: int = 0
    value: int = 0

    def __post_init__(self) -> None:
        if self.kind not in ("gqa", "mla"):
            raise ValueError(f"kind must be gqa or mla, not {self.kind!r}")
        needed = ("kv_heads", "head_size") if self.kind == "gqa" else ("q_rank", "kv_rank", "nope", "rope", "value")
        for name in ("heads", *needed):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")


@dataclass(frozen=True)
class FeedForward:
    """Dense layers first, then layers of routed and shared experts."""

    dense_layers: int = 0
    dense_size: int = 0
    experts: int = 0
    top_k: int = 0
    shared: int = 0
    expert_size: int = 0
    expert_biases: bool = False

    def __post_init__(self) -> None:
        if self.experts and not 1 <= self.top_k <= self.experts:
            raise ValueError(f"top_k must be 1 to {self.experts}, not {self.top_k}")


@dataclass(frozen=True)
class Formats:
    """Names of `BITS` for each part."""

    attention: str
    head: str
    kv: str
    dense: str = "BF16"
    routed: str = "BF16"
    shared: str = "BF16"
    router: str = "BF16"

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value not in BITS:
                raise ValueError(f"{name} must be one of {', '.join(BITS)}, not {value!r}")


@dataclass(frozen=True)
class Matrix:
    """A matrix product of one token: `used` of the `held` matrices [n, k] in each of `layers` layers, in `format`.

    Products of one `stage` share their activations and run together; stages of a layer follow one another.
    """

    name: str
    n: int
    k: int
    format: str
    layers: int
    stage: int
    used: int = 1
    held: int = 1
    bias: bool = False

    @property
    def bytes(self) -> float:
        """Bytes of one of the matrices, its BF16 bias included."""
        return self.n * self.k * BITS[self.format] / 8 + (2 * self.n if self.bias else 0)

    @property
    def parameters(self) -> int:
        return self.n * (self.k + self.bias)


@dataclass(frozen=True)
class Model:
    """A decoder's shape."""

    name: str
    layers: int
    hidden: int
    vocabulary: int
    tied: bool
    attention: Attention
    feed_forward: FeedForward
    formats: Formats
    matrices: tuple[Matrix, ...] = field(init=False)

    def __post_init__(self) -> None:
        ff = self.feed_forward
        if not ff.experts and ff.dense_layers != self.layers:
            raise ValueError(f"without experts all {self.layers} layers are dense, not {ff.dense_layers}")
        object.__setattr__(self, "matrices", (*self._attention(), *self._feed_forward(), self._head()))

    def _attention(self) -> list[Matrix]:
        a, h, f = self.attention, self.hidden, self.formats.attention
        if a.kind == "gqa":
            wide, narrow = a.heads * a.head_size, a.kv_heads * a.head_size
            sizes = [("q", wide, h, 0), ("k", narrow, h, 0), ("v", narrow, h, 0), ("o", h, wide, 2)]
        else:
            sizes = [
                ("q_a", a.q_rank, h, 0),
                ("kv_a", a.kv_rank + a.rope, h, 0),
                ("q_b", a.heads * (a.nope + a.rope), a.q_rank, 1),
                ("kv_b", a.heads * (a.nope + a.value), a.kv_rank, 1),
                ("o", h, a.heads * a.value, 2),
            ]
        return [Matrix(name, n, k, f, self.layers, stage, bias=a.biases) for name, n, k, stage in sizes]

    def _feed_forward(self) -> list[Matrix]:
        ff, h, f = self.feed_forward, self.hidden, self.formats
        found = []
        if ff.dense_layers:
            found += [
                Matrix("gate", ff.dense_size, h, f.dense, ff.dense_layers, 4),
                Matrix("up", ff.dense_size, h, f.dense, ff.dense_layers, 4),
                Matrix("down", h, ff.dense_size, f.dense, ff.dense_layers, 5),
            ]
        if ff.experts:
            rest, size, bias = self.layers - ff.dense_layers, ff.expert_size, ff.expert_biases
            found.append(Matrix("router", ff.experts, h, f.router, rest, 3, bias=bias))
            for kind, used, held, format in (("expert", ff.top_k, ff.experts, f.routed),
                                             ("shared", ff.shared, ff.shared, f.shared)):  # fmt: skip
                if held:
                    found += [
                        Matrix(f"{kind} gate, up", 2 * size, h, format, rest, 4, used, held, bias),
                        Matrix(f"{kind} down", h, size, format, rest, 5, used, held, bias),
                    ]
        return found

    def _head(self) -> Matrix:
        return Matrix("head", self.vocabulary, self.hidden, self.formats.head, 1, 6)

    @property
    def parameters(self) -> int:
        """All parameters: matrices, biases, norms, sinks, embedding."""
        matrices = sum(m.parameters * m.held * m.layers for m in self.matrices)
        embedding = 0 if self.tied else self.vocabulary * self.hidden
        sinks = self.attention.heads * self.layers if self.attention.sinks else 0
        norms = (2 * self.layers + 1) * self.hidden
        if self.attention.kind == "mla":
            norms += self.layers * (self.attention.q_rank + self.attention.kv_rank)
        return matrices + embedding + sinks + norms

    @property
    def active(self) -> int:
        """Parameters that a token multiplies with, output layer included, embedding not."""
        return sum(m.parameters * m.used * m.layers for m in self.matrices)

    def weight_bytes(self, tokens: float = 1) -> float:
        """Weight bytes that a step over `tokens` positions reads: distinct routed experts by random routing."""
        return sum(m.bytes * distinct(m, tokens) * m.layers for m in self.matrices)

    @property
    def resident(self) -> float:
        """Bytes of all weights; an untied embedding is held in the output layer's format."""
        embedding = 0 if self.tied else self.vocabulary * self.hidden * BITS[self.formats.head] / 8
        return sum(m.bytes * m.held * m.layers for m in self.matrices) + embedding

    @property
    def kv_layer(self) -> float:
        """KV cache bytes of one token in one layer."""
        a = self.attention
        values = 2 * a.kv_heads * a.head_size if a.kind == "gqa" else a.kv_rank + a.rope
        return values * BITS[self.formats.kv] / 8

    @property
    def kv_token(self) -> float:
        """KV cache bytes of one token in all layers."""
        return self.kv_layer * self.layers

    def kv_read(self, context: float) -> float:
        """KV bytes that one decode step at `context` positions reads; windowed layers read their window."""
        full = self.layers - self.attention.window_layers
        return self.kv_layer * (full * context + self.attention.window_layers * min(context, self.attention.window))

    def attention_macs(self, context: float, new: float = 1) -> float:
        """Multiply-accumulates of scores and weighted values, all layers: `new` positions over `context` each.

        MLA in its absorbed form (576-wide keys, 512-wide values), or, where that is less work, with keys and values
        of every head expanded from the context's latents first.
        """
        a = self.attention
        full = self.layers - a.window_layers
        pairs = new * (full * context + a.window_layers * min(context, a.window))
        if a.kind == "gqa":
            return pairs * a.heads * 2 * a.head_size
        absorbed = pairs * a.heads * (2 * a.kv_rank + a.rope)
        expand = self.layers * context * a.kv_rank * a.heads * (a.nope + a.value)
        return min(absorbed, pairs * a.heads * (a.nope + a.rope + a.value) + expand)


def distinct(matrix: Matrix, tokens: float) -> float:
    """Expected number of the `held` matrices that `tokens` positions use, each drawing `used` of them at random."""
    if matrix.used == matrix.held:
        return matrix.held
    return matrix.held * (1 - (1 - matrix.used / matrix.held) ** tokens)


def load(name: str | Path) -> Model:
    """A model by the name of its file in `models/`, or from a path. Raises DescriptionError."""
    path = name if isinstance(name, Path) else FOLDER / f"{name}.toml"
    if not path.exists():
        known = ", ".join(sorted(p.stem for p in FOLDER.glob("*.toml")))
        raise DescriptionError(f"{path}: no such model; there are: {known}")
    return make(Model, read(path), path.name)
