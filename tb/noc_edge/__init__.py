"""Testbench of a mesh over two chips: two 2x2 meshes, joined by a link whose lanes can go wrong."""

from scripts.simulator import Model, Testbench
from tb.noc_edge.bench import CONFIG, edge_bench

TESTBENCHES = [
    Testbench(
        name="noc_edge",
        model=Model(
            name="noc_edge",
            component=edge_bench,
            sources=("rtl/noc_channel.sv",),
            key=repr(CONFIG),
            optimise="-O0",
        ),
        module="tb.noc_edge.test_noc_edge",
        environment={"MESH": "edge_4x2"},
    )
]
