"""Sums of weighted bits: multipliers, multiply-accumulate and dot products as a compressor tree and a final adder.

Trusted code makes the **sources**, one list of nets for each column (power of two) whose weighted sum is the result
modulo 2^width: partial products (AND array with Baugh-Wooley signs, or radix-4 Booth rows) and constants. Graph text
says how they are added up. Nets are numbered: the sources by column, then two nets (sum, carry) an element:

    ["f", x, y, z]   full adder on three nets of one column: sum in that column, carry in the next
    ["h", x, y]      half adder

Each net is used at most once; what is left over, at most two a column, goes to the final adder, a prefix graph over
the columns from the lowest that has two. The check is linear and makes the sum right by construction: an adder keeps
the weighted sum, and every net is counted exactly once.
"""

import dataclasses
from collections.abc import Sequence

from golden.specifications import Specification
from scripts.explore import prefix
from scripts.explore.builder import ONE, ZERO, Builder
from scripts.explore.prefix import GraphError, Node
from scripts.verify.netlist import Netlist

Element = tuple[str, int, int] | tuple[str, int, int, int]
ROWS = ("and", "booth")
MAX_ELEMENTS = 200_000


@dataclasses.dataclass
class Sources:
    """Nets by column; `outputs` is the width of the result."""

    build: Builder
    columns: list[list[int]]

    @property
    def heights(self) -> list[int]:
        return [len(column) for column in self.columns]

    @property
    def arrival(self) -> list[float]:
        """Time of every source in the order of their numbers, in delays of an XOR gate."""
        return [self.build.arrival[net] for column in self.columns for net in column]


class _Collector:
    def __init__(self, build: Builder, width: int) -> None:
        self.build, self.width, self.constant = build, width, 0
        self.columns: list[list[int]] = [[] for _ in range(width)]

    def put(self, net: int, column: int) -> None:
        if column >= self.width or net == ZERO:
            return
        if net == ONE:
            self.constant += 1 << column
        else:
            self.columns[column].append(net)

    def negative(self, net: int, column: int) -> None:
        """Subtract the net's bit: its complement, less the weight."""
        self.put(self.build.not_(net), column)
        self.constant -= 1 << column

    def word(self, bits: list[int], signed: bool) -> None:
        for index, net in enumerate(bits):
            if signed and index == len(bits) - 1:
                self.negative(net, index)
            else:
                self.put(net, index)

    def and_rows(self, a: list[int], b: list[int], a_signed: bool, b_signed: bool) -> None:
        for j, y in enumerate(b):
            for i, x in enumerate(a):
                bit = self.build.and_(x, y)
                if (a_signed and i == len(a) - 1) != (b_signed and j == len(b) - 1):
                    self.negative(bit, i + j)
                else:
                    self.put(bit, i + j)

    def booth_rows(self, a: list[int], b: list[int], a_signed: bool, b_signed: bool) -> None:
        """Radix-4 Booth rows of `a`, chosen by digits of `b`."""
        build = self.build
        top_a, top_b = (a[-1] if a_signed else ZERO), (b[-1] if b_signed else ZERO)
        wide = [*b, top_b] if len(b) % 2 else [*b, *([] if b_signed else [ZERO, ZERO])]
        operand = [*a, top_a] if a_signed else [*a, ZERO, ZERO]  # room for the sign of twice the operand
        for digit in range(0, len(wide), 2):
            low = wide[digit - 1] if digit else ZERO
            middle, high = wide[digit], wide[digit + 1]
            one = build.xor(middle, low)
            two = build.and_(build.xor(high, middle), build.not_(one))
            for index in range(len(operand)):
                below = operand[index - 1] if index else ZERO
                pick = build.or_(build.and_(one, operand[index]), build.and_(two, below))
                bit = build.xor(pick, high)
                if index == len(operand) - 1:
                    self.negative(bit, digit + index)
                else:
                    self.put(bit, digit + index)
            self.put(high, digit)

    def finish(self) -> Sources:
        """Constants as nets of value one, in the columns where the binary constant has ones."""
        constant = self.constant % (1 << self.width)
        for column in range(self.width):
            if constant >> column & 1:
                self.columns[column].append(ONE)
        return Sources(self.build, self.columns)


def sources(specification: Specification, rows: str = "and") -> Sources:
    """The weighted bits of a `mul_`, `mac_` or `dot_` specification; raises `GraphError` for another."""
    if rows not in ROWS:
        raise GraphError(f"rows must be one of {', '.join(ROWS)}, not {rows!r}")
    family = specification.name.split("_")[0]
    if family not in ("mul", "mac", "dot"):
        raise GraphError(f"{specification.name} is not a sum of products")
    build = Builder({port.name: port.bits for port in specification.inputs})
    collect = _Collector(build, specification.outputs[0].bits)
    first, second = specification.inputs[:2]
    make = collect.and_rows if rows == "and" else collect.booth_rows
    for i in range(first.elements):
        a = build.inputs[first.name][i * first.width : (i + 1) * first.width]
        b = build.inputs[second.name][i * second.width : (i + 1) * second.width]
        make(a, b, first.format == "s", second.format == "s")
    if family == "mac":
        collect.word(build.inputs["c"], False)  # as wide as the result, so its sign does not matter modulo 2^width
    return collect.finish()


def check(heights: Sequence[int], tree: Sequence[Sequence]) -> tuple[list[Element], list[list[int]]]:
    """(elements, nets left by column) if the tree is sound; raises `GraphError`. Linear in its size."""
    if not isinstance(tree, (list, tuple)) or len(tree) > MAX_ELEMENTS:
        raise GraphError(f"tree must be a list of at most {MAX_ELEMENTS} elements")
    column = [place for place, height in enumerate(heights) for _ in range(height)]
    used = [False] * len(column)
    elements: list[Element] = []
    for index, element in enumerate(tree):
        pins = {"f": 3, "h": 2}.get(element[0]) if isinstance(element, (list, tuple)) and element else None
        if pins is None or len(element) != pins + 1 or not all(type(v) is int for v in element[1:]):
            raise GraphError(f'element {index} must be ["f", x, y, z] or ["h", x, y], not {element!r}')
        for net in element[1:]:
            if not 0 <= net < len(column):
                raise GraphError(f"element {index}: there is no net {net} before it")
            if used[net]:
                raise GraphError(f"element {index}: net {net} is used twice")
            used[net] = True
        places = {column[net] for net in element[1:]}
        if len(places) != 1:
            raise GraphError(f"element {index}: nets of different columns {sorted(places)}")
        place = places.pop()
        column += [place, place + 1]
        used += [False, False]
        elements.append(tuple(element))
    left: list[list[int]] = [[] for _ in heights]
    for net, place in enumerate(column):
        if not used[net] and place < len(heights):
            left[place].append(net)
    for place, nets in enumerate(left):
        if len(nets) > 2:
            raise GraphError(f"column {place} is left with {len(nets)} nets; at most 2")
    return elements, left


def adder_span(left: Sequence[Sequence[int]]) -> tuple[int, int]:
    """(lowest column with two nets, width of the final adder from there)."""
    double = [place for place, nets in enumerate(left) if len(nets) == 2]
    return (double[0], len(left) - double[0]) if double else (len(left), 0)


def element_times(kind: str, pins: Sequence[float]) -> tuple[float, float]:
    """(sum, carry) times of a full ("f") or half adder from those of its pins, in delays of an XOR gate."""
    if kind == "h":
        return max(pins) + 1, max(pins) + 0.6
    half = max(pins[0], pins[1]) + 1
    return max(half, pins[2]) + 1, max(half, pins[2]) + 0.9


def adder_nodes(
    adder: str | Sequence, left: Sequence[Sequence[int]], elements: Sequence[Element], arrival: Sequence[float]
) -> list[Node]:
    """The final adder's prefix graph over the columns of `adder_span`; raises `GraphError`.

    `adder`: nodes, the name of a classical graph, or one of `prefix.ARRIVAL`, which are made for the times at which
    the tree leaves its bits.
    """
    low, width = adder_span(left)
    if not isinstance(adder, str):
        return prefix.check(width, adder)
    if adder in prefix.CLASSICAL:
        return prefix.CLASSICAL[adder](width)
    if adder not in prefix.ARRIVAL:
        raise GraphError(f"adder must be one of {', '.join(prefix.NAMES)} or nodes, not {adder!r}")
    times = list(arrival)
    for element in elements:
        times += element_times(element[0], [times[net] for net in element[1:]])
    return prefix.for_arrival([max((times[net] for net in group), default=0.0) for group in left[low:]], adder)


def render(specification: Specification, rows: str, tree: Sequence[Sequence], adder: str | Sequence) -> Netlist:
    """The circuit; raises `GraphError` for a graph that is not one. `adder`: see `adder_nodes`."""
    made = sources(specification, rows)
    build = made.build
    elements, left = check(made.heights, tree)
    nets = [net for column in made.columns for net in column]
    for element in elements:
        pins = [nets[index] for index in element[1:]]
        nets += build.full_adder(*pins) if element[0] == "f" else build.half_adder(*pins)
    low, width = adder_span(left)
    result = [nets[group[0]] if group else ZERO for group in left[:low]]
    if width:
        operands = [[nets[group[side]] if len(group) > side else ZERO for group in left[low:]] for side in (0, 1)]
        nodes = adder_nodes(adder, left, elements, made.arrival)
        result += prefix.add(build, *operands, nodes)[:width]
    port = specification.outputs[0]
    return build.netlist({port.name: result[: port.bits]})
