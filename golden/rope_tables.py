"""Cosine and sine tables of RoPE and YaRN, correctly rounded FP32, the same on every machine.

Frequencies come from `decimal` (60 digits); the rotations are accumulated in integers of `_FRACTION` fraction bits.
Sources: Su et al., RoFormer; Peng et al., YaRN; gpt-oss `torch/model.py`; DeepSeek-V3 `model.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal, localcontext
from functools import lru_cache

import numpy as np

from golden import fp32
from golden.fp32_ops import Bits
from golden.rounding import U64, Wide

_FRACTION = 120
_PRECISION = Context(prec=60, rounding=ROUND_HALF_EVEN)
_PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459")


@dataclass(frozen=True)
class Yarn:
    """YaRN: contexts of `factor` times the `original` length.

    `beta_fast`, `beta_slow`: rotations over the original context above which a frequency is kept and below which it is
    divided by `factor`, with a linear ramp between. `whole`: the ramp's ends are rounded outwards (DeepSeek), or not
    (GPT-OSS). `concentration`: factor of both tables; None for 0.1 ln(factor) + 1 (GPT-OSS).
    """

    factor: int
    original: int
    beta_fast: int = 32
    beta_slow: int = 1
    whole: bool = False
    concentration: str | None = None


def _ramp_end(rotations: int, base: int, half: int, original: int) -> Decimal:
    return half * (Decimal(original) / (rotations * 2 * _PI)).ln() / Decimal(base).ln()


def _frequencies(base: int, half: int, yarn: Yarn | None) -> list[Decimal]:
    """Radians a position of every pair."""
    log_base = Decimal(base).ln()
    plain = [(-log_base * i / half).exp() for i in range(half)]
    if yarn is None:
        return plain
    low = _ramp_end(yarn.beta_fast, base, half, yarn.original)
    high = _ramp_end(yarn.beta_slow, base, half, yarn.original)
    if yarn.whole:
        low = max(low.to_integral_value(ROUND_FLOOR), Decimal(0))
        high = min(high.to_integral_value(ROUND_CEILING), Decimal(2 * half - 1))
    result = []
    for i, frequency in enumerate(plain):
        ramp = min(max((i - low) / (high - low), Decimal(0)), Decimal(1))
        result.append(frequency / yarn.factor * ramp + frequency * (1 - ramp))
    return result


def _concentration(yarn: Yarn | None) -> Decimal:
    if yarn is None:
        return Decimal(1)
    if yarn.concentration is not None:
        return Decimal(yarn.concentration)
    return Decimal(yarn.factor).ln() / 10 + 1


def _sine_cosine(angle: int) -> tuple[int, int]:
    """sin and cos of an angle in [0, 1], all with `_FRACTION` fraction bits."""
    sums, term, n = [0, 0], 1 << _FRACTION, 0
    while term:
        sums[n % 2] += -term if n % 4 in (2, 3) else term
        n += 1
        term = (term * angle >> _FRACTION) // n
    return sums[1], sums[0]


def _to_bits(values: list[int]) -> Bits:
    """Fixed-point integers of `_FRACTION` fraction bits to the nearest FP32."""
    signs = np.array([value < 0 for value in values])
    magnitudes = [abs(value) for value in values]
    high = np.array([value >> 64 for value in magnitudes], dtype=U64)
    low = np.array([value & (1 << 64) - 1 for value in magnitudes], dtype=U64)
    return fp32.encode(signs, Wide(high, low), np.full(len(values), -_FRACTION))


@lru_cache(maxsize=8)
def rope_table(base: int, size: int, positions: int, yarn: Yarn | None = None) -> tuple[Bits, Bits]:
    """(cosine, sine) for heads of `size` elements that pair i with i + size/2: uint32 [positions, size] each.

    The sine is negative in the first half, so that a rotation is x * cosine + (x rotated by size/2) * sine.
    """
    if size < 2 or size % 2:
        raise ValueError(f"The size of a rotated head must be even, not {size}")
    half = size // 2
    with localcontext(_PRECISION):
        one = Decimal(1 << _FRACTION)
        steps = [int((f * one).to_integral_value()) for f in _frequencies(base, half, yarn)]
        start = int((_concentration(yarn) * one).to_integral_value())
    cosine, sine = (np.empty((positions, half), np.uint32) for _ in range(2))
    for column, step in enumerate(steps):
        step_sine, step_cosine = _sine_cosine(step)
        x, y, xs, ys = start, 0, [], []
        for _ in range(positions):
            xs.append(x)
            ys.append(y)
            x, y = (x * step_cosine - y * step_sine) >> _FRACTION, (x * step_sine + y * step_cosine) >> _FRACTION
        cosine[:, column], sine[:, column] = _to_bits(xs), _to_bits(ys)
    tables = np.concatenate([cosine, cosine], axis=1), np.concatenate([sine ^ fp32.SIGN, sine], axis=1)
    for table in tables:
        table.flags.writeable = False
    return tables
