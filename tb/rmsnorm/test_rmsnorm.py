"""RMSNorm on the vector engine."""

from pathlib import Path

import pyuvm

from golden import vector
from golden.fp32_ops import from_float
from tb.vector.engine import FunctionTest

EPSILON = from_float(1e-5)[()]


def norm(rows, length, factor=1.0):
    def run(generator):
        gain = from_float(generator.normal(size=length))
        vector.rms_norm(from_float(generator.normal(size=(rows, length)) * factor), gain, EPSILON)

    return run


CASES = {
    "hidden_576": norm(2, 576),
    "single_element": norm(3, 1),
    "ragged": norm(3, 37),
    "zeros": norm(2, 16, 0.0),
    "tiny": norm(2, 16, 1e-25),
    "overflow": norm(2, 16, 1e25),
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
