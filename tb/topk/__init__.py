"""Testbench of `hw.vector.topk.TopK`."""

from hw.vector.topk import TopK
from scripts.simulator import Model, Testbench

TESTBENCHES = [Testbench("topk", Model("topk_8", lambda: TopK(8)), "tb.topk.test_topk")]
