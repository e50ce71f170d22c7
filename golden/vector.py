"""The vector engine: one pass over its lanes, and every function between matrix products as passes.

`vector_pass` is the golden function of `hw.vector.engine.VectorEngine` for one command; the functions below it are the
command sequences that the chip runs, so each has the same bits on both sides. All arrays are uint32 FP32 patterns.

A lane computes, with one rounding (to nearest even) at every arrow,

    x * y -> p0      z * w -> p1      combine(p0, p1) -> s      function(s) -> f      f * v -> r

and a command may also reduce f over a row: sums by the tree of `golden.fp32_ops.tree_sum`, maxima in any order.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from golden import fp32_ops as ops
from golden.exp2 import exp2
from golden.fp32_ops import MINUS_ONE, NEGATIVE_INFINITY, NEGATIVE_ZERO, ONE, ZERO, Bits
from golden.reciprocal import reciprocal
from golden.rsqrt import rsqrt

LOG2_E = np.uint32(0x3FB8AA3B)
MINUS_LOG2_E = np.uint32(0xBFB8AA3B)


class Combine(IntEnum):
    """What joins the two products."""

    ADD = 0
    """p0 + p1."""
    DIFFERENCE = 1
    """p0 + p1, but minus infinity where p0 is: nothing minus anything is nothing."""
    MAXIMUM = 2
    MINIMUM = 3
    CLAMP = 4
    """p0 limited to -p1 .. p1."""


class Function(IntEnum):
    """What is applied to the combined value."""

    RECIPROCAL = 0
    RSQRT = 1
    EXP2 = 2
    NONE = 3


class Reduce(IntEnum):
    """What is reduced over a row of f."""

    NONE = 0
    SUM = 1
    MAXIMUM = 2


_FUNCTIONS = {Function.RECIPROCAL: reciprocal, Function.RSQRT: rsqrt, Function.EXP2: exp2}


class Pass(NamedTuple):
    """One executed command: what went in (the operands as given, by name) and what came out."""

    operands: dict[str, Bits]
    combine: Combine
    function: Function
    reduce: Reduce
    visible: NDArray[np.bool_] | None
    result: Bits
    reduced: Bits | None


_recorders: list[list[Pass]] = []


@contextmanager
def recording() -> Iterator[list[Pass]]:
    """Every pass that is made inside, in order: the commands behind a function, for the compiler and the tests."""
    passes: list[Pass] = []
    _recorders.append(passes)
    try:
        yield passes
    finally:
        _recorders.pop()


class PassResult(NamedTuple):
    """r of every element, and the reduction of f over the last axis (None where the command has none)."""

    result: Bits
    reduced: Bits | None


def _product(a: Bits, b: Bits) -> Bits:
    return a if np.ndim(b) == 0 and b == ONE else ops.multiply(a, b)


def _combine(combine: Combine, p0: Bits, p1: Bits) -> Bits:
    if combine == Combine.MAXIMUM:
        return ops.maximum(p0, p1)
    if combine == Combine.MINIMUM:
        return ops.minimum(p0, p1)
    if combine == Combine.CLAMP:
        return ops.maximum(ops.minimum(p0, p1), ops.negate(p1))
    total = ops.add(p0, p1)
    if combine == Combine.DIFFERENCE:
        return np.where(np.asarray(p0) == NEGATIVE_INFINITY, NEGATIVE_INFINITY, total)
    return total


def vector_pass(
    x: Bits,
    y: Bits = ONE,
    z: Bits = NEGATIVE_ZERO,
    w: Bits = ONE,
    v: Bits = ONE,
    *,
    combine: Combine = Combine.ADD,
    function: Function = Function.NONE,
    reduce: Reduce = Reduce.NONE,
    visible: NDArray[np.bool_] | None = None,
) -> PassResult:
    """One command. Operands [..., length] or whatever broadcasts to the shape of x.

    Where `visible` (bool, broadcasts likewise) is false, s is minus infinity and r is +0. The defaults are identities:
    1 for a factor, and -0 for the second product, since p0 + -0 is p0 whatever its sign.
    """
    s = _combine(combine, _product(x, y), _product(z, w))
    if visible is not None:
        s = np.where(visible, s, NEGATIVE_INFINITY)
    f = _FUNCTIONS[function](s) if function != Function.NONE else s
    r = _product(f, v)
    if visible is not None:
        r = np.where(visible, r, ZERO)
    reducers = {Reduce.SUM: ops.tree_sum, Reduce.MAXIMUM: ops.max_over}
    reduced = reducers[reduce](f) if reduce != Reduce.NONE else None
    r = r.astype(np.uint32)
    for passes in _recorders:
        passes.append(Pass({"x": x, "y": y, "z": z, "w": w, "v": v}, combine, function, reduce, visible, r, reduced))
    return PassResult(r, reduced)


def add(x: Bits, y: Bits) -> Bits:
    """x + y: the residual connection."""
    return vector_pass(x, z=y).result


def scale(x: Bits, factor: Bits) -> Bits:
    """x * factor."""
    return vector_pass(x, factor).result


def rms_norm(x: Bits, gain: Bits, epsilon: np.uint32) -> Bits:
    """x / sqrt(mean(x**2) + epsilon) * gain over the last axis; gain [n].

    The mean is the tree sum times FP32(1/n). Passes: square and sum; scale, shift and rsqrt of the sum; scale.
    """
    x = np.asarray(x, dtype=np.uint32)
    total = vector_pass(x, x, reduce=Reduce.SUM).reduced
    factor = vector_pass(total, inverse_length(x.shape[-1]), epsilon, function=Function.RSQRT).result
    return vector_pass(x, factor[..., None], v=gain).result


def inverse_length(n: int) -> np.uint32:
    """FP32 nearest to 1/n, n at most 2**24."""
    if not 1 <= n <= 1 << 24:
        raise ValueError(f"A length must be in 1 .. {1 << 24}, not {n}")
    return ops.from_float(np.float32(1) / np.float32(n))[()]


def rope(x: Bits, cosine: Bits, sine: Bits, factor: np.uint32 = ONE) -> Bits:
    """Rotate the pairs (i, i + d/2) of the last axis [d] and multiply by `factor`.

    cosine, sine: [..., d] as `golden.rope_tables.rope_table` gives them, the sine already negative in the first half.
    One pass: x * cosine + x_rotated * sine, times the factor.
    """
    rotated = np.roll(np.asarray(x, dtype=np.uint32), x.shape[-1] // 2, axis=-1)
    return vector_pass(x, cosine, rotated, sine, factor).result


def swiglu(gate: Bits, up: Bits) -> Bits:
    """gate * sigmoid(gate) * up. Passes: exp2(-gate log2 e); gate / (1 + e); times up."""
    return vector_pass(_gated(gate, MINUS_LOG2_E), up).result


def swiglu_clamped(
    gate: Bits, up: Bits, limit: np.uint32 = np.uint32(0x40E00000), alpha: np.uint32 = np.uint32(0x3FD9DB23)
) -> Bits:
    """GPT-OSS: g = min(gate, limit), u = up within +-limit; g * sigmoid(alpha g) * (u + 1). Defaults 7, 1.702."""
    gate = vector_pass(gate, z=limit, combine=Combine.MINIMUM).result
    up = vector_pass(up, z=limit, combine=Combine.CLAMP).result
    gated = _gated(gate, ops.multiply(alpha, MINUS_LOG2_E)[()])
    return vector_pass(up, z=ONE, v=gated).result


def _gated(gate: Bits, factor: np.uint32) -> Bits:
    """gate / (1 + 2**(gate * factor)) in two passes."""
    power = vector_pass(gate, factor, function=Function.EXP2).result
    return vector_pass(power, z=ONE, v=gate, function=Function.RECIPROCAL).result


def sigmoid(x: Bits) -> Bits:
    """1 / (1 + e**-x) in two passes."""
    power = vector_pass(x, MINUS_LOG2_E, function=Function.EXP2).result
    return vector_pass(power, z=ONE, function=Function.RECIPROCAL).result


def softmax(x: Bits) -> Bits:
    """e**x / sum(e**x) over the last axis, the maximum taken off first. Passes: maximum; exp2 and sum; 1/sum; scale."""
    top = vector_pass(x, reduce=Reduce.MAXIMUM).reduced
    powers = vector_pass(x, LOG2_E, top[..., None], MINUS_LOG2_E, function=Function.EXP2, reduce=Reduce.SUM)
    inverse = vector_pass(powers.reduced, function=Function.RECIPROCAL).result
    return scale(powers.result, inverse[..., None])


class LeafSoftmax(NamedTuple):
    """Softmax over one leaf from scratch: maximum m and sum l [rows], weights times value scales p [rows, n]."""

    maximum: Bits
    total: Bits
    weights: Bits


def softmax_leaf(scores: Bits, visible: NDArray[np.bool_], value_scales: Bits = ONE) -> LeafSoftmax:
    """One leaf's softmax on base-2 logits [rows, n]; value_scales [n] (or 1) are folded into the weights, not the sum.

    A row that sees nothing has maximum minus infinity, sum 0 and weights +0. Passes: maximum; exp2, sum and scale.
    """
    top = vector_pass(scores, visible=visible, reduce=Reduce.MAXIMUM).reduced
    powers = vector_pass(scores, z=top[..., None], w=MINUS_ONE, v=value_scales, combine=Combine.DIFFERENCE,
                         function=Function.EXP2, visible=visible, reduce=Reduce.SUM)  # fmt: skip
    return LeafSoftmax(top, powers.reduced, powers.result)


class Partial(NamedTuple):
    """What is known after some leaves: maximum and sum [rows], unnormalised output [rows, d]."""

    maximum: Bits
    total: Bits
    output: Bits


def merge(left: Partial, right: Partial) -> Partial:
    """Join two partial softmaxes. A side that saw nothing changes no bit of the other, save the sign of a zero.

    Passes: maximum; both factors 2**(m - max); the sum; the output.
    """
    top = vector_pass(left.maximum, z=right.maximum, combine=Combine.MAXIMUM).result
    a, b = (
        vector_pass(side.maximum, z=top, w=MINUS_ONE, combine=Combine.DIFFERENCE, function=Function.EXP2).result
        for side in (left, right)
    )
    total = vector_pass(left.total, a, right.total, b).result
    output = vector_pass(left.output, a[..., None], right.output, b[..., None]).result
    return Partial(top, total, output)


def finish(part: Partial) -> Bits:
    """output / sum [rows, d]; +0 where nothing was seen, and no -0 anywhere.

    Every sum of a row that saw something is at least 1 (its maximum contributes 2**0), so max(sum, 1) changes only
    the row that saw nothing. Adding +0 takes the sign off a zero, the one thing that could depend on empty leaves.
    """
    inverse = vector_pass(part.total, z=ONE, combine=Combine.MAXIMUM, function=Function.RECIPROCAL).result
    return vector_pass(part.output, inverse[..., None], z=ZERO).result


def export(part: Partial) -> Bits:
    """A partial result as a tile hands it to another: uint32 [rows, d + 8], output + 0 and behind it sum, maximum, ...

    Adding +0 takes the sign off a zero, as in `finish`. `golden.vector_commands.merge` goes on from there.
    """
    statistics = np.stack([part.total, part.maximum], axis=-1)
    return vector_pass(np.concatenate([part.output, np.tile(statistics, 4)], axis=-1), z=ZERO).result


def moe_combine(outputs: Bits, weights: Bits) -> Bits:
    """sum over k of weights[..., k] * outputs[..., k, n], k ascending (the rank that top-k gave): [..., n]."""
    result = vector_pass(outputs[..., 0, :], weights[..., 0, None]).result
    for k in range(1, outputs.shape[-2]):
        result = vector_pass(outputs[..., k, :], weights[..., k, None], result).result
    return result
