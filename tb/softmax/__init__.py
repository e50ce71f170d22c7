"""Attention's softmax on the vector engine: leaves, merges, the end, and the router's softmax."""

from scripts.simulator import Testbench
from tb.vector.models import ENGINE

TESTBENCHES = [Testbench("softmax", ENGINE, "tb.softmax.test_softmax", environment={"LANES": "2"})]
