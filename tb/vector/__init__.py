"""Testbench of `hw.vector.engine.VectorEngine`."""

from scripts.simulator import Testbench
from tb.vector.models import ENGINE

TESTBENCHES = [Testbench("vector", ENGINE, "tb.vector.test_vector", environment={"LANES": "2"})]
