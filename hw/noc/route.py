"""The routing function: which outputs of a router a flit leaves by, and on which virtual channel."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw.noc.config import MeshConfig
from hw.noc.flit import Direction, header_layout

__all__ = ["FLOWS", "Route", "ends_packet", "flow_number", "legal", "single_target"]

_X = (Direction.EAST, Direction.WEST)


def legal(arrival: int, output: int) -> bool:
    """Whether dimension order (first along the row, then along the column) ever sends a flit this way.

    `arrival` is the side on which it came in: a flit that comes in on the WEST side travels east.
    """
    if arrival >= Direction.LOCAL or output >= Direction.LOCAL:
        return True
    if arrival in _X:
        return output != arrival
    return output not in _X and output != arrival


def single_target(config: MeshConfig, goal: data.View) -> Value:
    """Whether a destination is written as one node."""
    single = (goal.x_first == goal.x_last) & (goal.y_first == goal.y_last)
    return single & ~goal.listed if config.lists else single


def ends_packet(config: MeshConfig, header: data.View) -> Value:
    """Whether a flit ends its packet as far as switching is concerned."""
    return header.last | ~single_target(config, header.destination)


FLOWS = 16


def flow_number(config: MeshConfig, header: data.View) -> Value:
    """Number below `FLOWS` that all flits of one source and destination share.

    Flits of equal numbers never stand in two lanes of one link at a time, so that lanes keep flows in order.
    """
    goal, source = header.destination, header.source
    mixed: Value = Const(0, 4)
    for part, turn in (
        (goal.x_first, 0),
        (goal.y_first, 2),
        (source.x, 1),
        (source.x, 3),
        (source.y, 2),
        (source.y, 0),
    ):
        folded = part[:4] ^ part[4:]
        mixed = mixed ^ Cat(folded, Const(0, 4))[:4].rotate_left(turn)
    return mixed[:4]


class Route(wiring.Component):
    """Routing function of a router for flits that come in on side `arrival`; combinational.

    A flit goes along its source's row, and in each column of its destination along that column: a tree in which
    every node has one parent, so each target gets it once.

    Parameters
    ----------
    config : MeshConfig
    ports : int
        Ports of the router: four sides and its local ports.
    arrival : int
        Side on which the flit comes in (`Direction`), or a local port.

    Interface attributes
    --------------------
    x, y : In
        Position of the router.
    header : In(header_layout(config))
    outputs : Out(ports)
        Outputs that the flit leaves by; bit numbers as `Direction`. Never zero for a destination inside the mesh.
    flow : Out(4)
        `flow_number` of the flit.
    tail : Out(1)
        The flit ends its packet as far as switching is concerned: it is the last, or it goes to several nodes.
    """

    def __init__(self, config: MeshConfig, ports: int, arrival: int):
        if arrival not in range(ports):
            raise ValueError(f"arrival must be an integer from 0 to {ports - 1}, not {arrival!r}")
        self.config, self.ports, self.arrival = config, ports, arrival
        super().__init__(
            {
                "x": In(config.x_width),
                "y": In(config.y_width),
                "header": In(header_layout(config)),
                "outputs": Out(ports),
                "flow": Out(range(FLOWS)),
                "tail": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        goal = self.header.destination
        east, west, column, north, south, here = _rectangle(self.x, self.y, goal)
        if self.config.lists:
            listed = _listed(self.config, self.x, self.y, goal.nodes)
            plain = (east, west, column, north, south, here)
            east, west, column, north, south, here = (
                Mux(goal.listed, a, b) for a, b in zip(listed, plain, strict=True)
            )
        wanted = [east, west, column & north, column & south]
        wanted += [column & here & (goal.port == port) for port in range(self.ports - Direction.LOCAL)]
        for output, want in enumerate(wanted):
            if legal(self.arrival, output):
                m.d.comb += self.outputs[output].eq(want)
        m.d.comb += self.tail.eq(ends_packet(self.config, self.header))
        m.d.comb += self.flow.eq(flow_number(self.config, self.header))
        return m


def _rectangle(x: Value, y: Value, goal: data.View) -> tuple[Value, ...]:
    """Whether targets of the rectangle lie east, west, in this column; and in a target column north, south, here."""
    column = (goal.x_first <= x) & (goal.x_last >= x)
    here = (goal.y_first <= y) & (goal.y_last >= y)
    return goal.x_last > x, goal.x_first < x, column, goal.y_last > y, goal.y_first < y, here


def _listed(config: MeshConfig, x: Value, y: Value, nodes: Value) -> tuple[Value, ...]:
    """The same for a list: `nodes` has bit y*columns + x for each target."""
    columns, rows = config.columns, config.rows
    in_column = [Cat(nodes[row * columns + column] for row in range(rows)) for column in range(columns)]
    targets = [bits.any() for bits in in_column]
    mine = Value.cast(0)
    for column, bits in enumerate(in_column):
        mine = mine | Mux(x == column, bits, 0)
    east = Cat(targets[column] & (x < column) for column in range(columns)).any()
    west = Cat(targets[column] & (x > column) for column in range(columns)).any()
    north = Cat(mine[row] & (y < row) for row in range(rows)).any()
    south = Cat(mine[row] & (y > row) for row in range(rows)).any()
    here = Cat(mine[row] & (y == row) for row in range(rows)).any()
    return east, west, mine.any(), north, south, here
