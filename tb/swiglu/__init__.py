"""SwiGLU, its clamped form, the residual connection and the experts' sum on the vector engine."""

from scripts.simulator import Testbench
from tb.vector.models import ENGINE

TESTBENCHES = [Testbench("swiglu", ENGINE, "tb.swiglu.test_swiglu", environment={"LANES": "2"})]
