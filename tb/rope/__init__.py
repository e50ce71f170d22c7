"""RoPE and YaRN on the vector engine."""

from scripts.simulator import Testbench
from tb.vector.models import ENGINE_4

TESTBENCHES = [Testbench("rope", ENGINE_4, "tb.rope.test_rope", environment={"LANES": "4"})]
