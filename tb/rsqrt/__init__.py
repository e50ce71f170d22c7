"""Testbench of `golden.rsqrt` on the hardware."""

from scripts.simulator import Testbench
from tb.vector.models import FUNCTION

TESTBENCHES = [Testbench("rsqrt", FUNCTION, "tb.rsqrt.test_rsqrt")]
