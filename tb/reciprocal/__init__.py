"""Testbench of `golden.reciprocal` on the hardware."""

from scripts.simulator import Testbench
from tb.vector.models import FUNCTION

TESTBENCHES = [Testbench("reciprocal", FUNCTION, "tb.reciprocal.test_reciprocal")]
