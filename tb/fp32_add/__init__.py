"""Testbench of `hw.vector.fp32_add.Fp32Add`."""

from tb.vector.models import FP32_ADD, unit_testbench

TESTBENCHES = [unit_testbench("fp32_add", FP32_ADD)]
