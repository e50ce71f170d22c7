"""Testbench of the ordered gather: every node of a 2x2 mesh sends to a collector beside node (0, 0)."""

from amaranth.hdl import unsigned

from hw.noc import MeshConfig
from scripts.simulator import Model, Testbench
from tb.noc_gather.bench import GatherBench

CONFIG = MeshConfig(2, 2, payload=unsigned(16), classes=1, local_ports={(0, 0): 2})
SOURCES = [(1, 1, 0), (0, 0, 0), (0, 1, 0), (1, 0, 0)]  # in the order of their turns
DEPTH = 8

TESTBENCHES = [
    Testbench(
        name="noc_gather",
        model=Model(
            name="noc_gather",
            component=lambda: GatherBench(CONFIG, SOURCES, DEPTH),
            key=f"{CONFIG!r} {SOURCES} {DEPTH}",
            optimise="-O0",
        ),
        module="tb.noc_gather.test_noc_gather",
    )
]
