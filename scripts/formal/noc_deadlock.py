"""Deadlock freedom and exactly-once routing of a mesh, from the routing function that the hardware uses.

`hw.noc.route.Route` is evaluated (Amaranth's simulator) for every router, side and destination; from the answers come
the paths of all flits. Then:

- every destination's targets are reached exactly once each, from every source, and nothing else is reached;
- the crossbar has the way that each flit takes (`legal`);
- the channel dependency graph (an edge from each channel to every channel that a flit in its buffer can wait for,
  multicast branches included) has no cycle. A flit may take any lane of a link, so the lanes of a link, and with them
  the classes, are one channel here: if that graph has no cycle, the finer one has none.

A flit waits for nothing but a place in the next buffers: a multicast flit is one flit long, holds only the place where
it is, and leaves towards each branch as soon as that one has a place, so branches do not wait for each other. A packet
of several flits has one target. So an acyclic graph means that along every chain of waiting the last one moves.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter

from amaranth.sim import Simulator

from golden.noc import Node, targets
from hw.noc.config import MeshConfig
from hw.noc.flit import Direction
from hw.noc.route import Route, legal

Channel = tuple[Node, int]  # router and output; or, for the way in, minus one minus its local port
Fields = dict[str, int]
Table = dict[tuple[int, Node, int], int]

_STEP = {0: (1, 0), 1: (-1, 0), 2: (0, 1), 3: (0, -1)}
_OPPOSITE = {0: 1, 1: 0, 2: 3, 3: 2}


class RoutingError(AssertionError):
    """A flit is lost, doubled or misdirected, or channels depend on each other in a cycle."""


@dataclass
class Report:
    """What was walked: flits (pairs of source and destination), router decisions, and the dependencies found."""

    flits: int = 0
    decisions: int = 0
    edges: dict[Channel, set[Channel]] = field(default_factory=dict)


def destinations(config: MeshConfig, lists: bool = False) -> list[Fields]:
    """Every rectangle and every node's further local ports; or, with `lists`, every non-empty list."""
    if lists:
        plain = {"x_first": 0, "x_last": 0, "y_first": 0, "y_last": 0, "port": 0, "listed": 1}
        return [plain | {"nodes": nodes} for nodes in range(1, 1 << config.nodes)]
    xs, ys = (itertools.combinations_with_replacement(range(n), 2) for n in (config.columns, config.rows))
    found = [
        {"x_first": x0, "x_last": x1, "y_first": y0, "y_last": y1, "port": 0}
        for (x0, x1), (y0, y1) in itertools.product(xs, ys)
    ]
    for x, y, port in config.endpoints()[config.nodes :]:
        found.append({"x_first": x, "x_last": x, "y_first": y, "y_last": y, "port": port})
    return found


def tabulate(config: MeshConfig, goals: list[Fields], route: Callable[..., Route] = Route) -> Table:
    """The hardware's outputs for every (arrival side, router, index into `goals`)."""
    table: Table = {}
    nodes = [(x, y) for x, y, port in config.endpoints() if port == 0]
    ports = Direction.LOCAL + max(config.ports_at(*node) for node in nodes)
    for arrival in range(ports):
        dut = route(config, ports, arrival)

        async def ask(ctx, dut=dut, arrival=arrival) -> None:
            for index, goal in enumerate(goals):
                for name, value in goal.items():
                    ctx.set(dut.header.destination[name], value)
                for node in nodes:
                    ctx.set(dut.x, node[0])
                    ctx.set(dut.y, node[1])
                    table[arrival, node, index] = ctx.get(dut.outputs)

        simulator = Simulator(dut)
        simulator.add_testbench(ask)
        simulator.run()
    return table


def walk(config: MeshConfig, lists: bool = False, route: Callable[..., Route] = Route) -> Report:
    """Follow every flit; raises RoutingError where one is lost, doubled or misdirected. Returns what was found."""
    goals = destinations(config, lists)
    table, report = tabulate(config, goals, route), Report()
    for (x, y, port), (index, goal) in itertools.product(config.endpoints(), enumerate(goals)):
        reached: Counter[tuple[Node, int]] = Counter()
        for node, output in _follow(config, table, report, (x, y), port, index):
            reached[node, output - Direction.LOCAL] += 1
        wanted = {(node, goal["port"]): 1 for node in targets(goal, config.columns, config.rows)}
        if reached != wanted:
            raise RoutingError(f"from {(x, y)}, {goal} reaches {dict(reached)}, not {wanted}")
        report.flits += 1
    return report


def _follow(
    config: MeshConfig, table: Table, report: Report, source: Node, port: int, index: int
) -> Iterator[tuple[Node, int]]:
    """Local outputs that one flit comes out of; its decisions and dependencies go into `report`."""
    waiting: list[tuple[Node, int, Channel]] = [(source, Direction.LOCAL + port, (source, -1 - port))]
    while waiting:
        node, arrival, channel = waiting.pop()
        outputs = table[arrival, node, index]
        report.decisions += 1
        if report.decisions > 10_000_000:
            raise RoutingError(f"a flit from {source} never arrives")
        for output in range(Direction.LOCAL + config.ports_at(*node)):
            if not outputs >> output & 1:
                continue
            if not legal(arrival, output):
                raise RoutingError(f"router {node} has no way from side {arrival} to {output}")
            report.edges.setdefault(channel, set()).add((node, output))
            if output >= Direction.LOCAL:
                yield node, output
                continue
            step = _STEP[output]
            neighbour = (node[0] + step[0], node[1] + step[1])
            if not (0 <= neighbour[0] < config.columns and 0 <= neighbour[1] < config.rows):
                raise RoutingError(f"router {node} sends a flit out of the mesh on side {output}")
            waiting.append((neighbour, _OPPOSITE[output], (node, output)))


def order(edges: dict[Channel, Iterable[Channel]]) -> list[Channel]:
    """The channels, each after all that it depends on. Raises RoutingError with the cycle if there is one."""
    try:
        return list(TopologicalSorter(edges).static_order())
    except CycleError as error:
        raise RoutingError(f"channels wait for each other: {error.args[1]}") from None
