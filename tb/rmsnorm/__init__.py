"""RMSNorm on the vector engine."""

from scripts.simulator import Testbench
from tb.vector.models import ENGINE

TESTBENCHES = [Testbench("rmsnorm", ENGINE, "tb.rmsnorm.test_rmsnorm", environment={"LANES": "2"})]
