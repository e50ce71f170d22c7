"""Testbench of `golden.rsqrt` on the hardware."""

from tb.vector.models import FUNCTION, unit_testbench

TESTBENCHES = [unit_testbench("rsqrt", FUNCTION)]
