"""Attention's softmax on the vector engine: leaves, merges, the end, and the router's softmax."""

from pathlib import Path

import numpy as np
import pyuvm

from golden import vector
from golden.attention import scale_bits, visibility
from golden.fp32_ops import NEGATIVE_INFINITY, ONE, from_float
from golden.vector import Partial
from tb.vector.engine import FunctionTest

LEAF = 128


def scores(generator, rows, offset=0.0):
    return from_float(generator.normal(size=(rows, LEAF)) * 8 + offset)


def leaf(positions, window=0, group=1, offset=0.0, index=0):
    def run(generator):
        rows = np.repeat(np.asarray(positions), group)
        value_scales = scale_bits(generator.integers(100, 140, LEAF).astype(np.uint8))
        vector.softmax_leaf(scores(generator, len(rows), offset), visibility(rows, index, window), value_scales)

    return run


def partial(generator, rows, size, nothing=()):
    top = from_float(generator.normal(size=rows) * 10)
    total = from_float(1 + generator.random(rows) * 50)
    output = from_float(generator.normal(size=(rows, size)))
    for row in nothing:
        top[row], total[row], output[row] = NEGATIVE_INFINITY, 0, 0
    return Partial(top, total, output)


def merge(generator):
    left, right = partial(generator, 5, 32, nothing=(1, 3)), partial(generator, 5, 32, nothing=(2, 3))
    vector.finish(vector.merge(left, right))


def sink(generator):
    part = partial(generator, 5, 32, nothing=(4,))
    logits = from_float(generator.normal(size=5) * 10)
    vector.finish(vector.merge(part, Partial(logits, np.full(5, ONE), np.zeros((5, 32), np.uint32))))


CASES = {
    "causal_rows": leaf(range(60, 66)),
    "grouped_heads": leaf([126, 127], group=3),
    "decode": leaf([200] * 3),
    "window": leaf([130, 131, 132], window=64),
    "fully_masked": leaf([100, 100], index=1),
    "first_row_masked": leaf([127, 128, 129], index=1),
    "far_below_zero": leaf([127], offset=-3e5),
    "single_key": leaf([0]),
    "nothing": leaf([-1]),
    "merge": merge,
    "sink": sink,
    "router": lambda generator: vector.softmax(from_float(generator.normal(size=(3, 4)) * 5)),
}


@pyuvm.test()
class test_random(FunctionTest):
    """Every case, with idles on all inputs and pauses on both outputs."""

    testplan = Path(__file__).with_name("testplan.toml")
    cases = CASES


@pyuvm.test()
class test_unhindered(test_random):
    """Every case at full speed."""

    idle = pause = 0.0


@pyuvm.test(expect_error=AssertionError)
class test_wrong_expectation_fails(test_unhindered):
    """One golden element is wrong: the scoreboard has to notice."""

    corrupt = True
