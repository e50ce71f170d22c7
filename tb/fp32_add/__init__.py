"""Testbench of `hw.vector.fp32_add.Fp32Add`."""

from scripts.simulator import Testbench
from tb.vector.models import FP32_ADD

TESTBENCHES = [Testbench("fp32_add", FP32_ADD, "tb.fp32_add.test_fp32_add")]
