"""Testbench of `hw.vector.engine.VectorEngine`."""

from scripts.simulator import Testbench
from tb.vector.models import ENGINE_4

TESTBENCHES = [Testbench("vector", ENGINE_4, "tb.vector.test_vector", environment={"LANES": "4"})]
