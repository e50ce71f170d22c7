"""Testbench of the ordered gather: every node of a 2x2 mesh sends to a collector beside node (0, 0)."""

from scripts.simulator import Model, Testbench
from tb.noc_gather.bench import CONFIG, DEPTH, SOURCES, gather_bench

TESTBENCHES = [
    Testbench(
        name="noc_gather",
        model=Model(
            name="noc_gather",
            component=gather_bench,
            key=f"{CONFIG!r} {SOURCES} {DEPTH}",
            optimise="-O0",
        ),
        module="tb.noc_gather.test_noc_gather",
    )
]
