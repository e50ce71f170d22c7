"""Testbench of the AXI4 bridges: two managers and two targets on a 2x2 mesh."""

from scripts.simulator import Model, Testbench
from tb.noc_axi.bench import CONFIG, axi_bench

MODEL = Model(name="noc_axi", component=axi_bench, key=repr(CONFIG), optimise="-O0")
TESTBENCHES = [
    Testbench(name=f"noc_axi_{part}", model=MODEL, module=f"tb.noc_axi.test_{part}")
    for part in ("bursts", "faults", "environment")
]
