"""Parallel prefix graphs: graph text, its check in linear time, classical ones, and adders rendered from them.

A graph of width n has leaves (i, i) for 0 <= i < n. A node `[i, k, j]` joins the span (i..k) with (k-1..j) to (i..j),
i >= k > j >= 0; both must be leaves or earlier nodes. A graph is complete if it has every span (i..0).
"""

from collections.abc import Sequence

from scripts.explore.builder import Builder

Node = tuple[int, int, int]
MAX_WIDTH = 512


class GraphError(ValueError):
    """Graph text that is not a circuit of the wanted kind; the message names the element."""


def check(width: int, nodes: Sequence[Sequence[int]]) -> list[Node]:
    """The nodes if they are a complete prefix graph of that width; raises `GraphError`. Linear in their number."""
    if not isinstance(width, int) or not 1 <= width <= MAX_WIDTH:
        raise GraphError(f"width must be 1 to {MAX_WIDTH}, not {width!r}")
    if not isinstance(nodes, (list, tuple)) or len(nodes) > width * width:
        raise GraphError("nodes must be a list of at most width^2 elements")
    spans = {(i, i) for i in range(width)}
    result = []
    for index, node in enumerate(nodes):
        if not isinstance(node, (list, tuple)) or len(node) != 3 or not all(type(v) is int for v in node):
            raise GraphError(f"node {index} must be three integers [i, k, j], not {node!r}")
        i, k, j = node
        if not 0 <= j < k <= i < width:
            raise GraphError(f"node {index} {list(node)}: must have {width} > i >= k > j >= 0")
        for parent in ((i, k), (k - 1, j)):
            if parent not in spans:
                raise GraphError(f"node {index} {list(node)}: there is no span {parent} before it")
        if (i, j) in spans:
            raise GraphError(f"node {index} {list(node)}: the span {(i, j)} is there already")
        spans.add((i, j))
        result.append((i, k, j))
    for i in range(width):
        if (i, 0) not in spans:
            raise GraphError(f"incomplete: there is no span {(i, 0)}")
    return result


def depth(width: int, nodes: Sequence[Node]) -> int:
    """Joins on the longest path."""
    level = {(i, i): 0 for i in range(width)}
    for i, k, j in nodes:
        level[i, j] = 1 + max(level[i, k], level[k - 1, j])
    return max(level.values())


def from_rows(rows: Sequence[Sequence[int]]) -> list[Node]:
    """Nodes from the lower ends present in each row, each joined to the next higher one; complete by construction.

    `rows[i]` holds the j of every wanted span (i..j). Spans that these need are added.
    """
    width = len(rows)
    present = [set(row) | ({0} if i else set()) for i, row in enumerate(rows)]
    for i in range(width - 1, 0, -1):
        upper = i
        for j in sorted((j for j in present[i] if j < i), reverse=True):
            if j < upper - 1:
                present[upper - 1].add(j)
            upper = j
    nodes = []
    for i in range(width):
        upper = i
        for j in sorted((j for j in present[i] if j < i), reverse=True):
            nodes.append((i, upper, j))
            upper = j
    return nodes


def serial(width: int) -> list[Node]:
    """A ripple: the smallest and deepest."""
    return [(i, i, 0) for i in range(1, width)]


def sklansky(width: int) -> list[Node]:
    """Least depth, high fan-out."""
    nodes, step = [], 1
    while step < width:
        nodes += [(i, i // step * step, i // step * step - step) for i in range(width) if i // step % 2]
        step *= 2
    return nodes


def kogge_stone(width: int) -> list[Node]:
    """Least depth, fan-out two, most nodes."""
    nodes, step = [], 1
    while step < width:
        nodes += [(i, i - step + 1, max(0, i - 2 * step + 1)) for i in range(step, width)]
        step *= 2
    return nodes


def brent_kung(width: int) -> list[Node]:
    """About twice the least depth, few nodes."""
    rows: list[set[int]] = [set() for _ in range(width)]
    step = 1
    while step < width:
        for i in range(2 * step - 1, width, 2 * step):
            rows[i].add(i - 2 * step + 1)
        step *= 2
    return from_rows([sorted(row) for row in rows])


def ladner_fischer(width: int, slack: int = 0) -> list[Node]:
    """Ladner and Fischer's recursion: `slack` more levels than the least, fewer nodes."""

    def build(low: int, points: list[int], slack: int) -> list[Node]:
        # `points` are the upper ends of groups; group t spans points[t] down to points[t-1]+1 (or `low`).
        count = len(points)
        if count == 1:
            return []
        start = [low] + [p + 1 for p in points[:-1]]
        if slack == 0:
            half = 1 << (count - 1).bit_length() - 1
            lower = build(low, points[:half], 1) if half > 1 else []
            upper = build(start[half], points[half:], 0)
            return lower + upper + [(p, start[half], low) for p in points[half:]]
        pairs = [(points[t], start[t], start[t - 1]) for t in range(1, count, 2)]
        inner = build(low, [points[t] for t in range(1, count, 2)], slack - 1)
        rest = [(points[t], start[t], low) for t in range(2, count, 2)]
        return pairs + inner + rest

    return build(0, list(range(width)), slack)


CLASSICAL = {
    "serial": serial,
    "sklansky": sklansky,
    "kogge_stone": kogge_stone,
    "brent_kung": brent_kung,
    "ladner_fischer": ladner_fischer,
    "ladner_fischer_1": lambda width: ladner_fischer(width, 1),
    "ladner_fischer_2": lambda width: ladner_fischer(width, 2),
}
ARRIVAL = {"arrival": 0.0, "arrival_1": 1.0, "arrival_2": 2.0, "arrival_4": 4.0}
"""Graphs made for the times at which the operands come: joins by which each span may be late."""
NAMES = (*CLASSICAL, *ARRIVAL)
JOIN = 1.2
"""Delay of a join in XOR gates."""


def for_arrival(times: Sequence[float], slack: str | float = 0.0) -> list[Node]:
    """A graph for operands of which position i comes at `times[i]` (in delays of an XOR gate).

    The earliest time of every span comes from dynamic programming; each may be `slack` joins later than that, and is
    split where this leaves the fewest new nodes. Without slack and with equal times it has Sklansky's depth and size.
    Raises `GraphError` above 128 bits.
    """
    width = len(times)
    if width > 128:
        raise GraphError(f"an adder by arrival times has at most 128 bits, not {width}")
    earliest = {(i, i): time for i, time in enumerate(times)}
    for span in range(1, width):
        for j in range(width - span):
            i = j + span
            earliest[i, j] = min(max(earliest[i, k], earliest[k - 1, j]) for k in range(j + 1, i + 1)) + JOIN
    late = (ARRIVAL[slack] if isinstance(slack, str) else slack) * JOIN + 1e-9
    real = {(i, i): time for i, time in enumerate(times)}
    nodes: list[Node] = []

    def splits(i: int, j: int) -> list[int]:
        """Where the span can be split so that it is in time; never empty, for its parts are in time too."""
        before = earliest[i, j] + late - JOIN
        return [
            k
            for k in range(j + 1, i + 1)
            if max(real.get((i, k), earliest[i, k]), real.get((k - 1, j), earliest[k - 1, j])) <= before
        ]

    def price(i: int, j: int, deep: bool = True) -> int:
        """New nodes that the span costs at most."""
        if (i, j) in real:
            return 0
        if not deep:
            return i - j
        return 1 + min(price(i, k, False) + price(k - 1, j, False) for k in splits(i, j))

    def make(i: int, j: int) -> None:
        if (i, j) in real:
            return
        k = min(splits(i, j), key=lambda k: (price(i, k) + price(k - 1, j), k))
        make(i, k)
        make(k - 1, j)
        real[i, j] = max(real[i, k], real[k - 1, j]) + JOIN
        nodes.append((i, k, j))

    for i in range(1, width):
        make(i, 0)
    return nodes


def carries(build: Builder, generate: list[int], propagate: list[int], nodes: Sequence[Node]) -> list[int]:
    """Carry out of every position. A span's propagate is only built where a later join needs it."""
    g = {(i, i): net for i, net in enumerate(generate)}
    p = {(i, i): net for i, net in enumerate(propagate)}
    for i, k, j in nodes:
        g[i, j] = build.or_(g[i, k], build.and_(p[i, k], g[k - 1, j]))
        p[i, j] = build.and_(p[i, k], p[k - 1, j])
    return [g[i, 0] for i in range(len(generate))]


def add(build: Builder, a: list[int], b: list[int], nodes: Sequence[Node]) -> list[int]:
    """Sum bits, one more than the operands have."""
    propagate = [build.xor(x, y) for x, y in zip(a, b, strict=True)]
    generate = [build.and_(x, y) for x, y in zip(a, b, strict=True)]
    carry = carries(build, generate, propagate, nodes)
    return [propagate[0]] + [build.xor(propagate[i], carry[i - 1]) for i in range(1, len(a))] + [carry[-1]]
