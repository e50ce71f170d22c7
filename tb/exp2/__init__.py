"""Testbench of `golden.exp2` on the hardware."""

from tb.vector.models import FUNCTION, unit_testbench

TESTBENCHES = [unit_testbench("exp2", FUNCTION)]
