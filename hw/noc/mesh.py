"""A mesh of routers with a network interface at every local port."""

from __future__ import annotations

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.emit import once
from hw.noc.config import MeshConfig
from hw.noc.counters import counters_layout
from hw.noc.flit import Direction, LinkSignature, flit_layout
from hw.noc.interface import NetworkInterface
from hw.noc.router import Router

__all__ = ["Mesh"]

_STEP = {Direction.EAST: (1, 0), Direction.WEST: (-1, 0), Direction.NORTH: (0, 1), Direction.SOUTH: (0, -1)}
_OPPOSITE = {
    Direction.EAST: Direction.WEST,
    Direction.WEST: Direction.EAST,
    Direction.NORTH: Direction.SOUTH,
    Direction.SOUTH: Direction.NORTH,
}


class Mesh(wiring.Component):
    """`config.columns` x `config.rows` routers, or a part of them; streams of flits at every endpoint.

    Guarantees: no flit is lost, doubled or made up; flits of one source, class and destination arrive in order; a
    multicast flit arrives once at each target; no deadlock as long as every receiver takes its flits in the end; every
    sender is served in the end. Latency of a flit that nothing stops: 2 * hops + 3 cycles from the cycle in which
    `send` takes it to the cycle in which `receive` offers it (hops: links between routers).

    Parameters
    ----------
    config : MeshConfig
    part : (columns, rows), two ranges
        The routers of this chip, where a mesh spans several; all by default. Coordinates are those of the whole.

    Attributes
    ----------
    endpoints : list of (x, y, port)
        Those of the part, in the order of `config.endpoints()`: the order of `send`, `receive` and `refused`.
    edges : list of ((x, y), Direction)
        Links that leave the part, side by side in the order of `Direction`, then by position.

    Interface attributes
    --------------------
    send : In(stream(flit_layout(config))), [endpoint][class]
    receive : Out(stream(flit_layout(config))), [endpoint][class]
        Endpoints are numbered by `config.endpoint(x, y, port)`; classes are `TrafficClass`.
    refused : Out(classes), one for each endpoint
        A flit with an impossible destination was taken and dropped in this cycle.
    counters : Out(counters_layout()), [node][port], where the configuration has counters
        What left each router by each port (`Direction`; local ports from `LOCAL` on): flits, and stalled cycles.
    edge_o, edge_i : Out(LinkSignature), In(LinkSignature), one for each of `edges`, where there are any
        For an `EdgeLink` to the chip that has the neighbour.
    """

    def __init__(self, config: MeshConfig, part: tuple[range, range] | None = None):
        self.config = config
        columns, rows = part or (range(config.columns), range(config.rows))
        if (
            not (columns and rows)
            or not (0 <= columns[0] <= columns[-1] < config.columns)
            or not (0 <= rows[0] <= rows[-1] < config.rows)
        ):
            raise ValueError(f"part must be columns and rows inside {config.columns} x {config.rows}, not {part!r}")
        self.endpoints = [(x, y, port) for x, y, port in config.endpoints() if x in columns and y in rows]
        self.nodes = [(x, y) for x, y, port in self.endpoints if port == 0]
        self.edges = [
            ((x, y), side)
            for side, (dx, dy) in _STEP.items()
            for x, y in self.nodes
            if (x + dx, y + dy) not in self.nodes and x + dx in range(config.columns) and y + dy in range(config.rows)
        ]
        endpoints = len(self.endpoints)
        flits = stream.Signature(flit_layout(config))
        ports = {
            "send": In(flits).array(endpoints, config.classes),
            "receive": Out(flits).array(endpoints, config.classes),
            "refused": Out(config.classes).array(endpoints),
        }
        if config.counters:
            ports["counters"] = Out(counters_layout()).array(len(self.nodes), config.router_ports)
        if self.edges:
            ports["edge_o"] = Out(LinkSignature(config)).array(len(self.edges))
            ports["edge_i"] = In(LinkSignature(config)).array(len(self.edges))
        super().__init__(ports)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        routers = {(x, y): self._router(m, x, y) for x, y in self.nodes}
        for (x, y), router in routers.items():
            for side, (dx, dy) in _STEP.items():
                neighbour = routers.get((x + dx, y + dy))
                if neighbour is not None:
                    wiring.connect(m, router.o[side], neighbour.i[_OPPOSITE[side]])
        for index, (node, side) in enumerate(self.edges):
            wiring.connect(m, routers[node].o[side], wiring.flipped(self.edge_o[index]))
            wiring.connect(m, wiring.flipped(self.edge_i[index]), routers[node].i[side])
        for index, (x, y, port) in enumerate(self.endpoints):
            interface = once(NetworkInterface(config), f"noc_interface_{config.key()}{self._extra()}")
            m.submodules[f"interface_{x}_{y}_{port}"] = interface
            m.d.comb += [interface.x.eq(x), interface.y.eq(y), interface.port.eq(port)]
            m.d.comb += self.refused[index].eq(interface.refused)
            wiring.connect(m, interface.to_router, routers[x, y].i[Direction.LOCAL + port])
            wiring.connect(m, routers[x, y].o[Direction.LOCAL + port], interface.from_router)
            for traffic in range(config.classes):
                wiring.connect(m, wiring.flipped(self.send[index][traffic]), interface.send[traffic])
                wiring.connect(m, interface.receive[traffic], wiring.flipped(self.receive[index][traffic]))
        return m

    def _router(self, m: Module, x: int, y: int) -> wiring.Component:
        config, locals_here = self.config, self.config.ports_at(x, y)
        router = once(Router(config, locals_here), f"noc_router_{config.key()}_l{locals_here}")
        m.submodules[f"router_{x}_{y}"] = router
        m.d.comb += [router.x.eq(x), router.y.eq(y)]
        if config.counters:
            for port, counted in enumerate(router.counters):
                m.d.comb += self.counters[self.nodes.index((x, y))][port].eq(counted)
        return router

    def _extra(self) -> str:
        return "".join(f"_e{x}_{y}_{port}" for x, y, port in self.config.endpoints()[self.config.nodes :])
