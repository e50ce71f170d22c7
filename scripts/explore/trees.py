"""Ways to build a compressor tree: Dadda's, Wallace's, and two by arrival times with a little chance."""

import bisect
import heapq
import random
from collections.abc import Sequence

from scripts.explore.compressor import Element, element_times


def dadda(heights: Sequence[int]) -> list[Element]:
    """As few adders as possible, each stage down to the next of 2, 3, 4, 6, 9, 13, ..."""
    columns, elements, count = _numbered(heights)
    targets = [2]
    while targets[-1] < max(heights):
        targets.append(targets[-1] * 3 // 2)
    for target in reversed(targets):
        fresh: list[list[int]] = [[] for _ in range(len(columns) + 1)]
        for place, nets in enumerate(columns):
            while len(nets) + len(fresh[place]) > target:
                take = 3 if len(nets) + len(fresh[place]) > target + 1 else 2
                if len(nets) < take:
                    break
                pins, nets[:take] = nets[:take], []
                elements.append(("f" if take == 3 else "h", *pins))
                fresh[place].append(count)
                fresh[place + 1].append(count + 1)
                count += 2
        columns = [nets + new for nets, new in zip(columns, fresh, strict=False)]
    return elements


def wallace(heights: Sequence[int]) -> list[Element]:
    """As early as possible: every stage adds up all threes, and pairs where a column has two left over."""
    columns, elements, count = _numbered(heights)
    while max(map(len, columns)) > 2:
        fresh: list[list[int]] = [[] for _ in range(len(columns) + 1)]
        for place, nets in enumerate(columns):
            while len(nets) > 2 or (len(nets) == 2 and len(columns[place]) > 3 and len(fresh[place]) > 0):
                take = min(3, len(nets))
                pins, nets[:take] = nets[:take], []
                elements.append(("f" if take == 3 else "h", *pins))
                fresh[place].append(count)
                fresh[place + 1].append(count + 1)
                count += 2
        columns = [nets + new for nets, new in zip(columns, fresh, strict=False)]
    return elements


def _numbered(heights: Sequence[int]) -> tuple[list[list[int]], list[Element], int]:
    columns, count = [], 0
    for height in heights:
        columns.append(list(range(count, count + height)))
        count += height
    return columns, [], count


def by_arrival(heights: Sequence[int], arrival: Sequence[float] | None = None) -> list[Element]:
    """Column by column, full adders on the earliest nets; the latest goes to the fast pin.

    `arrival`: one time a net, in delays of an XOR gate.
    """
    columns, elements, count = _numbered(heights)
    times = {net: (arrival[net] if arrival else 0.0) for nets in columns for net in nets}
    for place in range(len(columns)):
        queue = [(times[net], net) for net in columns[place]]
        heapq.heapify(queue)
        while len(queue) > 2:
            pins = [heapq.heappop(queue)[1] for _ in range(3)]
            elements.append(("f", *pins))
            sums, carries = element_times("f", [times[pin] for pin in pins])
            for net, time, column in ((count, sums, place), (count + 1, carries, place + 1)):
                times[net] = time
                if column == place:
                    heapq.heappush(queue, (time, net))
                elif column < len(columns):
                    columns[column].append(net)
            count += 2
    return elements


def three_greedy(
    heights: Sequence[int],
    arrival: Sequence[float] | None = None,
    ripple: int = 0,
    generator: random.Random | None = None,
    chance: float = 0.0,
) -> list[Element]:
    """Column by column, the earliest nets first, two left in every column: Stelling's three-greedy method.

    A column with an odd number of nets begins with a half adder on the two earliest, so that no late carry has to be
    summed up again. The lowest `ripple` columns are brought down to one net instead, which spares as many bits of the
    final adder. `chance`: how often a later net is taken instead of an earliest one.
    """
    generator = generator or random.Random(0)
    columns, elements, count = _numbered(heights)
    times = {net: (arrival[net] if arrival else 0.0) for nets in columns for net in nets}
    for place, nets in enumerate(columns):
        queue = sorted(nets, key=lambda net: (times[net], net))
        half = place >= ripple and len(queue) > 2 and len(queue) % 2
        while len(queue) > 2:
            take = 2 if half else 3
            late = chance and len(queue) > take and generator.random() < chance
            start = generator.randrange(min(len(queue) - take, 4) + 1) if late else 0
            pins, queue[start : start + take] = queue[start : start + take], []
            kind, half = ("h" if half else "f"), 0
            elements.append((kind, *pins))
            times[count], times[count + 1] = element_times(kind, [times[pin] for pin in pins])
            bisect.insort(queue, count, key=lambda net: (times[net], net))
            if place + 1 < len(columns):
                columns[place + 1].append(count + 1)
            count += 2
    return elements
