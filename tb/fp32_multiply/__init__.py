"""Testbench of `hw.vector.fp32_multiply.Fp32Multiply`."""

from scripts.simulator import Testbench
from tb.vector.models import FP32_MULTIPLY

TESTBENCHES = [Testbench("fp32_multiply", FP32_MULTIPLY, "tb.fp32_multiply.test_fp32_multiply")]
