"""Columns 0 and 1 of a 4x2 mesh on one chip, 2 and 3 on another; one link carries both rows' channels."""

from __future__ import annotations

from amaranth.hdl import Cat, ClockSignal, Instance, Module, ResetSignal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.emit import once
from hw.noc import Mesh, MeshConfig
from hw.noc.edge import EdgeLink
from hw.noc.flit import flit_layout
from tb.mesh import CONFIGS

CONFIG = CONFIGS["edge_4x2"]
LANES, LATENCY = 64, 8


class EdgeBench(wiring.Component):
    """Ports as those of the whole `Mesh`; `error_rate` and `cut` go to both lanes, `errors` are theirs."""

    def __init__(self, config: MeshConfig):
        self.config = config
        endpoints = len(config.endpoints())
        flits = stream.Signature(flit_layout(config))
        super().__init__(
            {
                "send": In(flits).array(endpoints, config.classes),
                "receive": Out(flits).array(endpoints, config.classes),
                "refused": Out(config.classes).array(endpoints),
                "error_rate": In(32),
                "cut": In(1),
                "up": Out(2),
                "retries": Out(32).array(2),
                "errors": Out(32).array(2),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        edges = []
        for chip, columns in enumerate((range(2), range(2, 4))):
            m.submodules[f"mesh_{chip}"] = mesh = Mesh(self.config, (columns, range(self.config.rows)))
            edge = once(EdgeLink(self.config, ways=len(mesh.edges), lane_width=LANES), "noc_edge_link")
            m.submodules[f"edge_{chip}"] = edge
            edges.append(edge)
            for way in range(len(mesh.edges)):
                wiring.connect(m, mesh.edge_o[way], edge.i[way])
                wiring.connect(m, edge.o[way], mesh.edge_i[way])
            for here, place in enumerate(mesh.endpoints):
                there = self.config.endpoint(*place)
                m.d.comb += self.refused[there].eq(mesh.refused[here])
                for traffic in range(self.config.classes):
                    wiring.connect(m, wiring.flipped(self.send[there][traffic]), mesh.send[here][traffic])
                    wiring.connect(m, mesh.receive[here][traffic], wiring.flipped(self.receive[there][traffic]))
        for chip, (edge, peer) in enumerate(zip(edges, reversed(edges), strict=True)):
            m.d.comb += [self.up[chip].eq(edge.up), self.retries[chip].eq(edge.retries)]
            m.submodules[f"channel_{chip}"] = Instance(
                "noc_channel", p_WIDTH=LANES + 1, p_LATENCY=LATENCY, p_SEED=chip + 1,
                i_clk=ClockSignal(), i_rst=ResetSignal(), i_error_rate=self.error_rate, i_cut=self.cut,
                i_i=Cat(edge.tx, edge.tx_first), o_o=Cat(peer.rx, peer.rx_first), o_errors=self.errors[chip],
            )  # fmt: skip
        return m


def edge_bench() -> EdgeBench:
    return EdgeBench(CONFIG)
