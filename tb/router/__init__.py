"""Testbench of `hw.noc.router.Router`, the middle one of a 3x3 mesh, its links driven flit by flit."""

from amaranth.hdl import unsigned

from hw.noc import MeshConfig
from hw.noc.router import Router
from scripts.simulator import Model, Testbench

CONFIG = MeshConfig(3, 3, payload=unsigned(16))

TESTBENCHES = [
    Testbench(
        name="router",
        model=Model(name="router", component=lambda: Router(CONFIG), key=repr(CONFIG), optimise="-O0"),
        module="tb.router.test_router",
    )
]
