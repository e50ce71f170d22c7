"""A 2x2 mesh with an AXI4 manager at each node of row 0 and an AXI4 target at each node of row 1."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.emit import once
from hw.noc import Mesh, MeshConfig, TrafficClass
from hw.noc.axi import AxiManagerBridge, AxiNetworkConfig, AxiTargetBridge, Region

REGION = 1 << 16
CONFIG = AxiNetworkConfig(
    mesh=MeshConfig(2, 2, payload=unsigned(48), classes=2),
    regions=(Region(0, REGION, 0, 1), Region(REGION, REGION, 1, 1)),
    address_width=20, data_width=32, id_width=3, slots=4, pending=4, timeout=500,
)  # fmt: skip


class AxiBench(wiring.Component):
    """`manager[x]` is driven by the manager at (x, 0), `target[x]` drives the target at (x, 1)."""

    def __init__(self, config: AxiNetworkConfig):
        self.config = config
        super().__init__(
            {
                "manager": In(config.manager_signature()).array(2),
                "target": Out(config.target_signature()).array(2),
                "hung": Out(4),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.mesh = mesh = Mesh(self.config.mesh)
        hung = []
        for x in range(2):
            m.submodules[f"manager_{x}"] = manager = once(AxiManagerBridge(self.config), "noc_axi_manager")
            m.submodules[f"target_{x}"] = target = once(AxiTargetBridge(self.config), "noc_axi_target")
            wiring.connect(m, wiring.flipped(self.manager[x]), manager.axi)
            wiring.connect(m, target.axi, wiring.flipped(self.target[x]))
            here, there = self.config.mesh.endpoint(x, 0), self.config.mesh.endpoint(x, 1)
            wiring.connect(m, manager.send, mesh.send[here][TrafficClass.REQUEST])
            wiring.connect(m, mesh.receive[here][TrafficClass.RESPONSE], manager.receive)
            wiring.connect(m, target.send, mesh.send[there][TrafficClass.RESPONSE])
            wiring.connect(m, mesh.receive[there][TrafficClass.REQUEST], target.receive)
            hung.append(target.hung)
        m.d.comb += self.hung.eq(Cat(hung))
        return m


def axi_bench() -> AxiBench:
    return AxiBench(CONFIG)
