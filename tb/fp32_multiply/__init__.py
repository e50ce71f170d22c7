"""Testbench of `hw.vector.fp32_multiply.Fp32Multiply`."""

from tb.vector.models import FP32_MULTIPLY, unit_testbench

TESTBENCHES = [unit_testbench("fp32_multiply", FP32_MULTIPLY)]
