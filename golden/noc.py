"""The network as a function: who gets a flit, over which links, how soon, and how much traffic a mesh can bear."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import numpy as np

Node = tuple[int, int]
Link = tuple[Node, Node]

PATTERNS = ("uniform", "transpose", "bitcomp", "neighbour", "hotcorners")


def targets(destination: dict[str, int], columns: int, rows: int) -> list[Node]:
    """Nodes that a flit reaches, from the fields of `hw.noc.flit.destination_layout`; row by row.

    Raises ValueError for a destination that the network interface refuses: outside the mesh, or empty.
    """
    if destination.get("listed"):
        nodes = destination["nodes"]
        if not 0 < nodes < 1 << (columns * rows):
            raise ValueError(f"nodes must be a non-empty mask of {columns * rows} bits, not {nodes:#x}")
        return [(n % columns, n // columns) for n in range(columns * rows) if nodes >> n & 1]
    xs = range(destination["x_first"], destination["x_last"] + 1)
    ys = range(destination["y_first"], destination["y_last"] + 1)
    if not xs or not ys or xs[-1] >= columns or ys[-1] >= rows:
        raise ValueError(f"destination must be a rectangle inside {columns} x {rows}, not {destination}")
    return [(x, y) for y in ys for x in xs]


def path(source: Node, target: Node) -> list[Link]:
    """Links from `source` to `target`: along the row, then along the column."""
    (x, y), (x_end, y_end) = source, target
    nodes = [(column, y) for column in range(x, x_end, 1 if x_end > x else -1)]
    nodes += [(x_end, row) for row in range(y, y_end, 1 if y_end > y else -1)] + [target]
    return list(pairwise(nodes))


def tree(source: Node, nodes: Iterable[Node]) -> set[Link]:
    """Links that one multicast flit uses, each once."""
    return {link for node in nodes for link in path(source, node)}


def latency(hops: int) -> int:
    """Cycles from the one in which `send` takes a flit to the one in which `receive` offers it, nothing in the way."""
    return 2 * hops + 3


def traffic_matrix(pattern: str, columns: int, rows: int) -> np.ndarray:
    """Share of node s's flits that go to node d, [s, d]; nodes are numbered y*columns + x. Rows sum to 1.

    The patterns are BookSim's: transpose swaps x and y, bit complement mirrors both, neighbour goes one up in both
    (with wrap-around), hot corners go to the four corners in equal shares.
    """
    count = columns * rows
    x, y = np.arange(count) % columns, np.arange(count) // columns
    matrix = np.zeros((count, count))
    if pattern == "uniform":
        matrix[:] = 1 / count
    elif pattern == "hotcorners":
        for corner in (0, columns - 1, count - columns, count - 1):
            matrix[:, corner] += 0.25
    else:
        goal = {
            "transpose": x * columns + y,
            "bitcomp": (rows - 1 - y) * columns + columns - 1 - x,
            "neighbour": (y + 1) % rows * columns + (x + 1) % columns,
        }
        if pattern not in goal or (pattern == "transpose" and columns != rows):
            raise ValueError(f"pattern must be one of {PATTERNS} (transpose: square meshes), not {pattern!r}")
        matrix[np.arange(count), goal[pattern]] = 1
    return matrix


def link_loads(matrix: np.ndarray, columns: int) -> dict[Link, float]:
    """Flits a cycle on each link when every node sends one flit a cycle with the shares of `matrix`."""
    loads: dict[Link, float] = {}
    for source, target in zip(*np.nonzero(matrix), strict=True):
        ends = [(int(n) % columns, int(n) // columns) for n in (source, target)]
        for link in path(*ends):
            loads[link] = loads.get(link, 0.0) + float(matrix[source, target])
    return loads


def throughput_bound(pattern: str, columns: int, rows: int) -> float:
    """Most flits a node and cycle: one over the load of the busiest link, endpoint in or endpoint out."""
    matrix = traffic_matrix(pattern, columns, rows)
    return 1 / max([1.0, matrix.sum(axis=0).max(), *link_loads(matrix, columns).values()])


def mean_hops(pattern: str, columns: int, rows: int) -> float:
    """Links that a flit of `pattern` crosses, on average over sources."""
    return sum(link_loads(traffic_matrix(pattern, columns, rows), columns).values()) / (columns * rows)


def spread_bound(side: int, flits: int) -> int:
    """Fewest cycles in which `flits` flits from node (0, 0) reach the far corner of a `side` x `side` mesh."""
    return flits + latency(2 * (side - 1))


def gather_bound(side: int, flits: int) -> int:
    """Fewest cycles of an all-gather of `flits` flits, spread as evenly as possible (the first nodes have one more).

    A node receives one flit a cycle, and none from a node at distance d in its first `latency(d)` cycles: so for every
    d, the flits from distance d and farther need that long, and a cycle each. The worst node and d decide. The same
    holds for a link: all flits that cross it, one a cycle, after the way to it.
    """
    nodes = [(n % side, n // side) for n in range(side * side)]
    share = {node: flits // len(nodes) + (index < flits % len(nodes)) for index, node in enumerate(nodes)}
    worst = 0
    for x, y in nodes:
        distances = {node: abs(node[0] - x) + abs(node[1] - y) for node in nodes}
        for least in range(2 * side - 1):
            far = sum(share[node] for node in nodes if distances[node] >= least)
            worst = max(worst, far + latency(least)) if far else worst
    return worst


def goodput_ratio(ber: float, beats: int, wires: int, lane_latency: int) -> float:
    """Goodput of go-back-N over the error-free rate: (1 - p) / (1 - p + p*r).

    p is the chance that a frame of `beats` beats on `wires` wires is damaged; each damaged frame costs r frame times:
    the round trip of the lanes (`lane_latency` cycles each way, a register at the sender), the check at both ends, on
    average half a frame's wait for the next frame at both ends, and the frame that carries the request.
    """
    damaged = 1 - (1 - ber) ** (beats * wires)
    cycles = 2 * (lane_latency + 1) + 2 * 2 + 2 * beats + 2 * beats / 2
    lost = cycles / beats
    return (1 - damaged) / (1 - damaged + damaged * lost)
