"""What stands between a layer's matrix products: RMSNorm, RoPE, attention, SwiGLU, residual add; float32, to the bit.

Every result is the same on every machine. That holds because only operations that IEEE 754 defines exactly are used
(add, subtract, multiply, divide, square root, comparison, power-of-two scaling), each a NumPy ufunc of its own, so that
nothing is fused; because sums follow one fixed tree (`tree_sum`), never BLAS and never `np.sum`; and because
exponentials, sines and cosines do not come from libm: `exponential` is a polynomial in float64 rounded once to float32,
and the RoPE table is computed with integers.

`Functions` is the seam: an object with these five methods can be put in its place.
"""

from __future__ import annotations

from functools import lru_cache
from math import isqrt
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

_FRACTION = 120  # Fraction bits of the integers behind the RoPE table: its float32 values are correctly rounded.
_ROWS = 32  # Query rows at a time in attention: the products of one head then fit the cache.
_LOG2_E = 1.4426950408889634
_LN2_HIGH = 0.693147180369123816490  # 33 bits, so that its product with an integer of 11 bits is exact (fdlibm).
_LN2_LOW = 1.90821492927058770002e-10
_INVERSE_FACTORIALS = [1.0 / f for f in (6227020800, 479001600, 39916800, 3628800, 362880, 40320, 5040, 720, 120, 24)]


def tree_sum(x: NDArray[np.floating], axis: int = -1) -> NDArray[np.floating]:
    """Sum over `axis` by a tree of neighbours: (0,1), (2,3), ... then the same on the results.

    Zeros appended to the axis do not change the result, so a masked row and a short row give the same bits.
    """
    x = np.moveaxis(x, axis, 0)
    while len(x) > 1:
        pairs = x[0 : len(x) - 1 : 2] + x[1::2]
        x = np.concatenate([pairs, x[-1:]]) if len(x) % 2 else pairs
    return x[0] + x.dtype.type(0)


def exponential(x: Floats) -> Floats:
    """e**x in float32 from a float64 polynomial: error below 0.5001 ulp, minus infinity gives 0, overflow infinity."""
    wide = np.clip(x.astype(np.float64), -200.0, 200.0)
    whole = np.floor(np.nan_to_num(wide) * _LOG2_E + 0.5)
    rest = (wide - whole * _LN2_HIGH) - whole * _LN2_LOW
    result = np.full_like(rest, _INVERSE_FACTORIALS[0])
    for coefficient in (*_INVERSE_FACTORIALS[1:], 1.0 / 6.0, 0.5, 1.0, 1.0):
        result = result * rest + coefficient
    with np.errstate(over="ignore", under="ignore"):
        return np.ldexp(result, whole.astype(np.int32)).astype(np.float32)


def _root_of_base(base: int, order: int) -> list[int]:
    """base ** (-i / order) for i in 0 .. order - 1 with `_FRACTION` fraction bits; `order` is a power of two."""
    guard = 2 * _FRACTION
    step = base << guard
    for _ in range(order.bit_length() - 1):
        step = isqrt(step << guard)
    powers = [1 << guard]
    for _ in range(order - 1):
        powers.append((powers[-1] << guard) // step)
    return [p >> (guard - _FRACTION) for p in powers]


def _sine_cosine(angle: int) -> tuple[int, int]:
    """sin and cos of an angle in [0, 1], all with `_FRACTION` fraction bits, by Taylor series."""
    sine, cosine, term, n = 0, 0, 1 << _FRACTION, 0
    while term:
        signed = -term if n % 4 in (2, 3) else term
        if n % 2:
            sine += signed
        else:
            cosine += signed
        n += 1
        term = (term * angle >> _FRACTION) // n
    return sine, cosine


@lru_cache(maxsize=8)
def rope_table(base: int, half: int, positions: int) -> tuple[Floats, Floats]:
    """cos and sin, each float32 [positions, half], of position * base**(-i / half); `half` is a power of two.

    Rotations are accumulated in integers of `_FRACTION` bits: 8192 of them lose 14 bits of 120.
    """
    if half < 1 or half & (half - 1):
        raise ValueError(f"half of the head size must be a power of two, not {half}")
    unit = [_sine_cosine(frequency) for frequency in _root_of_base(base, half)]
    cos, sin = np.empty((positions, half), np.float32), np.empty((positions, half), np.float32)
    for column, (step_sin, step_cos) in enumerate(unit):
        x, y = 1 << _FRACTION, 0
        for row in range(positions):
            cos[row, column], sin[row, column] = _to_float32(x), _to_float32(y)
            x, y = (x * step_cos - y * step_sin) >> _FRACTION, (x * step_sin + y * step_cos) >> _FRACTION
    for table in (cos, sin):
        table.flags.writeable = False
    return cos, sin


def _to_float32(value: int) -> float:
    """A fixed-point integer to the nearest float32, ties to even, in one rounding."""
    drop = max(abs(value).bit_length() - 24, 0)
    kept, rest = abs(value) >> drop, abs(value) & ((1 << drop) - 1)
    half = 1 << drop >> 1
    if drop and (rest > half or (rest == half and kept & 1)):
        kept += 1
    magnitude = float(kept) * 2.0 ** (drop - _FRACTION)
    return -magnitude if value < 0 else magnitude


class Functions(Protocol):
    """What a layer needs between its products. All arrays are float32; M is the number of positions at hand."""

    def rms_norm(self, x: Floats, gain: Floats, epsilon: float) -> Floats:
        """[M, hidden] and [hidden] to [M, hidden]."""
        ...

    def rope(self, x: Floats, positions: NDArray[np.int64], base: float) -> Floats:
        """[M, heads, head_size], rotated by the angles of positions [M]."""
        ...

    def attention(self, q: Floats, keys: Floats, values: Floats, positions: NDArray[np.int64]) -> Floats:
        """q [M, heads, head_size], keys and values [T, kv_heads, head_size] to [M, heads, head_size], causal."""
        ...

    def swiglu(self, gate: Floats, up: Floats) -> Floats:
        """silu(gate) * up, elementwise."""
        ...

    def add(self, x: Floats, y: Floats) -> Floats:
        """The residual connection."""
        ...


def _attend(q: Floats, keys: Floats, values: Floats, positions: NDArray[np.int64]) -> Floats:
    """`Functions.attention` for a few rows, head by head; the axis that is summed always comes first in memory."""
    group = q.shape[1] // keys.shape[1]
    hidden = np.arange(len(keys))[None, :] > positions[:, None]
    scale = np.float32(1) / np.sqrt(np.float32(q.shape[-1]))
    result = np.empty_like(q)
    for head in range(q.shape[1]):
        q_columns = np.ascontiguousarray(q[:, head].T)  # [head_size, rows]
        k_columns = np.ascontiguousarray(keys[:, head // group].T)  # [head_size, T]
        scores = tree_sum(q_columns[:, :, None] * k_columns[:, None, :], axis=0) * scale
        scores[hidden] = -np.inf
        weight = exponential(scores - scores.max(axis=1, keepdims=True)).T  # [T, rows]
        weight = np.ascontiguousarray(weight)
        mixed = tree_sum(weight[:, :, None] * values[:, None, head // group], axis=0)
        result[:, head] = mixed / tree_sum(weight, axis=0)[:, None]
    return result


class HostFunctions:
    """`Functions` in IEEE float32 (see the module): for the steps that the chip leaves to its host."""

    def rms_norm(self, x: Floats, gain: Floats, epsilon: float) -> Floats:
        mean = tree_sum(x * x) / np.float32(x.shape[-1])
        return x / np.sqrt(mean + np.float32(epsilon))[..., None] * gain

    def rope(self, x: Floats, positions: NDArray[np.int64], base: float) -> Floats:
        half = x.shape[-1] // 2
        if base != int(base):
            raise ValueError(f"the RoPE base must be a whole number, not {base}")
        # The table grows by whole steps, so that a decode step does not compute a new one.
        length = -(-(int(positions.max()) + 1) // 256) * 256
        cos, sin = (table[positions][:, None, :] for table in rope_table(int(base), half, length))
        low, high = x[..., :half], x[..., half:]
        return np.concatenate([low * cos - high * sin, high * cos + low * sin], axis=-1)

    def attention(self, q: Floats, keys: Floats, values: Floats, positions: NDArray[np.int64]) -> Floats:
        result = np.empty_like(q)
        for start in range(0, len(q), _ROWS):
            rows = slice(start, start + _ROWS)
            seen = min(int(positions[rows].max()) + 1, len(keys))
            result[rows] = _attend(q[rows], keys[:seen], values[:seen], positions[rows])
        return result

    def swiglu(self, gate: Floats, up: Floats) -> Floats:
        with np.errstate(over="ignore"):
            return gate / (np.float32(1) + exponential(-gate)) * up

    def add(self, x: Floats, y: Floats) -> Floats:
        return x + y
