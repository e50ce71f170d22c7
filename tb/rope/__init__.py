"""RoPE and YaRN on the vector engine."""

from scripts.simulator import Testbench
from tb.vector.models import ENGINE

TESTBENCHES = [Testbench("rope", ENGINE, "tb.rope.test_rope", environment={"LANES": "2"})]
