"""Testbench of `hw.vector.unit.VectorUnit`."""

from scripts.simulator import Testbench
from tb.vector.models import UNIT_4

TESTBENCHES = [Testbench("vector_unit", UNIT_4, "tb.vector_unit.test_vector_unit")]
