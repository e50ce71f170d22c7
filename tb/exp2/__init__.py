"""Testbench of `golden.exp2` on the hardware."""

from scripts.simulator import Testbench
from tb.vector.models import FUNCTION

TESTBENCHES = [Testbench("exp2", FUNCTION, "tb.exp2.test_exp2")]
