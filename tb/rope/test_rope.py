"""RoPE and YaRN on the vector engine."""

from pathlib import Path

import numpy as np
import pyuvm

from golden import vector
from golden.attention import query_factor
from golden.fp32_ops import from_float
from golden.rope_tables import Yarn, rope_table
from tb.vector.engine import FunctionTest


def rotate(size, positions, yarn=None, factor=vector.ONE):
    def run(generator):
        cosine, sine = rope_table(100_000, size, max(positions) + 1, yarn)
        heads = from_float(generator.normal(size=(len(positions), size)))
        vector.rope(heads, cosine[list(positions)], sine[list(positions)], np.uint32(factor))

    return run


CASES = {
    "head_64": rotate(64, range(3)),
    "far_positions": rotate(64, (511, 700)),
    "scaled_query": rotate(64, (5, 6), factor=query_factor(64)),
    "yarn": rotate(64, (100,), Yarn(32, 4096)),
    "mla_64": rotate(64, (9,), Yarn(40, 4096, whole=True, concentration="1")),
    "small": rotate(8, (1, 2)),
}


@pyuvm.test()
class test_random(FunctionTest):
    """Every case, with idles on all inputs and pauses on both outputs."""

    testplan = Path(__file__).with_name("testplan.toml")
    cases = CASES
    reduces = False


@pyuvm.test()
class test_unhindered(test_random):
    """Every case at full speed."""

    idle = pause = 0.0


@pyuvm.test(expect_error=AssertionError)
class test_wrong_expectation_fails(test_unhindered):
    """One golden element is wrong: the scoreboard has to notice."""

    corrupt = True
