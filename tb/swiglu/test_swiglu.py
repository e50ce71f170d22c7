"""SwiGLU, its clamped form, the residual connection and the experts' sum on the vector engine."""

from pathlib import Path

import pyuvm

from golden import vector
from golden.fp32_ops import from_float
from golden.topk import route_sigmoid
from tb.vector.engine import FunctionTest


def gated(function, shape, spread):
    def run(generator):
        function(*(from_float(generator.normal(size=shape) * spread) for _ in range(2)))

    return run


def combine(generator):
    outputs = from_float(generator.normal(size=(4, 48)))
    vector.moe_combine(outputs, from_float(generator.random(4)))


def router(generator):
    logits, bias = (from_float(generator.normal(size=n)) for n in ((1, 32), 32))
    route_sigmoid(logits, bias, 4, 4, 2, from_float(2.5)[()])


CASES = {
    "swiglu": gated(vector.swiglu, (1, 384), 3),
    "swiglu_saturates": gated(vector.swiglu, (2, 33), 200),
    "swiglu_clamped": gated(vector.swiglu_clamped, (2, 96), 6),
    "residual": gated(vector.add, (2, 72), 3),
    "experts": combine,
    "router": router,
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
