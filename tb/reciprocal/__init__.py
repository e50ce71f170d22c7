"""Testbench of `golden.reciprocal` on the hardware."""

from tb.vector.models import FUNCTION, unit_testbench

TESTBENCHES = [unit_testbench("reciprocal", FUNCTION)]
