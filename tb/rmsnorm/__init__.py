"""RMSNorm on the vector engine."""

from scripts.simulator import Testbench
from tb.vector.models import ENGINE_4

TESTBENCHES = [Testbench("rmsnorm", ENGINE_4, "tb.rmsnorm.test_rmsnorm", environment={"LANES": "4"})]
