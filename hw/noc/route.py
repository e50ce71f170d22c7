"""The routing function: which outputs of a router a flit leaves by, and on which virtual channel."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw.noc.config import MeshConfig
from hw.noc.flit import Direction, header_layout

__all__ = ["Route", "ends_packet", "entry_lane", "legal", "reaches", "single_target"]

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


def reaches(channels: int, arrival: int, lane: int, output: int) -> bool:
    """Whether a flit that came in on `lane` (of `channels`) of side `arrival` may leave by `output`.

    Lane 0 serves every legal turn, since multicast uses it; the others only the turn that `Route` gives them.
    """
    local = output >= Direction.LOCAL
    if not legal(arrival, output) or lane == 0:
        return legal(arrival, output)
    if arrival >= Direction.LOCAL:
        return channels == 2 and output not in _X or channels == 4 and (output == lane or (lane == 3 and local))
    if arrival in _X:
        straight = output in _X
        return not straight and (channels == 2 or (output == lane + 1 if lane < 3 else local))
    return local if channels == 2 or lane >= 2 else not local


def single_target(config: MeshConfig, goal: data.View) -> Value:
    """Whether a destination is written as one node."""
    single = (goal.x_first == goal.x_last) & (goal.y_first == goal.y_last)
    return single & ~goal.listed if config.lists else single


def ends_packet(config: MeshConfig, header: data.View) -> Value:
    """Whether a flit ends its packet as far as switching is concerned."""
    return header.last | ~single_target(config, header.destination)


def entry_lane(config: MeshConfig, outputs: Value) -> Value:
    """Lane on which a flit enters its first router, from the outputs (`Route.outputs`) that it takes there.

    Two lanes: east or west, else. Four: east, west, north, else. Lane 0 for several outputs.
    """
    east, west, north, south = outputs[: Direction.LOCAL]
    across, along, local = east | west, north | south, outputs[Direction.LOCAL :].any()
    several = (east & west) | (north & south) | (across & along) | ((across | along) & local)
    if config.channels == 1:
        return Const(0)
    lane = ~across if config.channels == 2 else Mux(east, 0, Mux(west, 1, Mux(north, 2, 3)))
    return Mux(several, 0, lane)


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
    lane : Out(range(config.channels))
        Virtual channel, within its class, for the next link.
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
                "lane": Out(range(config.channels)),
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
            east, west, column, north, south, here = (Mux(goal.listed, a, b) for a, b in zip(listed, plain, strict=True))
        wanted = [east, west, column & north, column & south]
        wanted += [column & here & (goal.port == port) for port in range(self.ports - Direction.LOCAL)]
        for output, want in enumerate(wanted):
            if legal(self.arrival, output):
                m.d.comb += self.outputs[output].eq(want)
        m.d.comb += self.tail.eq(ends_packet(self.config, self.header))
        if self.config.channels > 1:
            single = single_target(self.config, goal)
            m.d.comb += self.lane.eq(Mux(single, _next_lane(self.config, self.x, self.y, self.header), 0))
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


def _next_lane(config: MeshConfig, x: Value, y: Value, header: data.View) -> Value:
    """Lane of a flit with one target: decided by what it does at the next router.

    So a flow keeps its lane on each link, and stays in order. Lanes on a row link: straight on, north, south, arrived
    (two lanes: straight on, else). On a column link: straight on, arrived; of four lanes, two each by a bit of the
    target row or the source column.
    """
    goal, four = header.destination, config.channels == 4
    along_row = goal.x_first != x
    x_next = Mux(goal.x_first > x, x + 1, x - 1)[: config.x_width]
    y_next = Mux(goal.y_first > y, y + 1, y - 1)[: config.y_width]
    north, south = goal.y_first > y, goal.y_first < y
    if four:
        row_lane = Mux(goal.x_first != x_next, 0, Mux(north, 1, Mux(south, 2, 3)))
        column_lane = Mux(goal.y_first != y_next, Cat(goal.y_first[0], 0), Cat(header.source.x[0], 1))
    else:
        row_lane = goal.x_first == x_next
        column_lane = goal.y_first == y_next
    return Mux(along_row, row_lane, column_lane)
