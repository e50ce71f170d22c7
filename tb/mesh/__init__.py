"""Testbenches of `hw.noc.Mesh`: the chip's mesh (with a short payload), and meshes with every option on."""

from amaranth.lib import data

from hw.noc import Mesh, MeshConfig
from scripts.simulator import Model, Testbench

REMOTE_WRITE = data.StructLayout({"address": 16, "data": 24})
CONFIGS = {
    "mesh_2x2": MeshConfig(2, 2, payload=REMOTE_WRITE, local_ports={(0, 0): 2}, counters=True),
    "mesh_3x2": MeshConfig(
        3, 2, payload=32, classes=2, channels=2, urgent=(1,), lists=True, local_ports={(1, 1): 3}, counters=True
    ),
    "mesh_4x2": MeshConfig(4, 2, payload=32, classes=1, channels=4, depth=5),
    "edge_4x2": MeshConfig(4, 2, payload=32, classes=2, urgent=(1,)),  # over two chips: tb/noc_edge
}


def _bench(name: str, long: bool = False) -> Testbench:
    config = CONFIGS[name]
    model = Model(name=name, component=lambda: Mesh(config), key=repr(config), optimise="-O0")
    return Testbench(name=name, model=model, module="tb.mesh.test_mesh", long=long, environment={"MESH": name})


TESTBENCHES = [_bench("mesh_2x2"), _bench("mesh_3x2", long=True), _bench("mesh_4x2", long=True)]
