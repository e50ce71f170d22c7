"""Testbench of `hw.vector.unit.VectorUnit`."""

from scripts.simulator import Testbench
from tb.vector.models import UNIT

TESTBENCHES = [Testbench("vector_unit", UNIT, "tb.vector_unit.test_vector_unit")]
