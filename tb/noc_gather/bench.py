"""A mesh with a gather's source at some endpoints, its collector at the second port of node (0, 0), and a barrier."""

from __future__ import annotations

from amaranth.hdl import Module, unsigned
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.noc import Mesh, MeshConfig, TrafficClass
from hw.noc.barrier import Barrier
from hw.noc.gather import GatherCollector, GatherSource, item_layout

CONFIG = MeshConfig(2, 2, payload=unsigned(16), classes=2, local_ports={(0, 0): 2})
COLLECTOR, CLASS = (0, 0, 1), TrafficClass.RESPONSE
SOURCES = [(1, 1, 0), (0, 0, 0), (0, 1, 0), (1, 0, 0)]  # in the order of their turns
DEPTH = 8


class GatherBench(wiring.Component):
    """`i[n]` feeds source n; `o` and `source` are the collector's; `arrive`, `ready`, `released` those of each node."""

    def __init__(self, config: MeshConfig, sources: list[tuple[int, int, int]], depth: int):
        self.config, self.sources, self.depth = config, sources, depth
        items = stream.Signature(item_layout(config))
        self.collector = GatherCollector(config, sources, depth)
        super().__init__(
            {"i": In(items).array(len(sources)), "o": Out(items), "source": Out(self.collector.source.shape())}
            | {"arrive": In(config.nodes), "ready": Out(config.nodes), "released": Out(config.nodes)}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.mesh = mesh = Mesh(self.config)
        m.submodules.collector = collector = self.collector
        here = self.config.endpoint(*COLLECTOR)
        wiring.connect(m, collector.send, mesh.send[here][CLASS])
        wiring.connect(m, mesh.receive[here][CLASS], collector.receive)
        wiring.connect(m, collector.o, wiring.flipped(self.o))
        m.d.comb += self.source.eq(collector.source)
        for index, place in enumerate(self.sources):
            m.submodules[f"source_{index}"] = source = GatherSource(self.config, COLLECTOR, self.depth)
            where = self.config.endpoint(*place)
            wiring.connect(m, wiring.flipped(self.i[index]), source.i)
            wiring.connect(m, source.send, mesh.send[where][CLASS])
            wiring.connect(m, mesh.receive[where][CLASS], source.receive)
        for node in range(self.config.nodes):
            m.submodules[f"barrier_{node}"] = barrier = Barrier(self.config)
            wiring.connect(m, barrier.send, mesh.send[node][TrafficClass.REQUEST])
            wiring.connect(m, mesh.receive[node][TrafficClass.REQUEST], barrier.receive)
            m.d.comb += [
                barrier.arrive.eq(self.arrive[node]),
                barrier.node_receive.ready.eq(1),
                self.ready[node].eq(barrier.ready),
                self.released[node].eq(barrier.released),
            ]
        return m


def gather_bench() -> GatherBench:
    return GatherBench(CONFIG, SOURCES, DEPTH)
