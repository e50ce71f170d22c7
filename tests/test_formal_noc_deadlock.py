"""Deadlock freedom and exactly-once routing, by a program that walks the hardware's own routing function."""

import pytest
from amaranth.hdl import Module

from hw.noc import MeshConfig
from hw.noc.route import Route
from scripts.formal.noc_deadlock import RoutingError, order, walk


@pytest.mark.parametrize("columns, rows", [(2, 2), (3, 3), (4, 1)])
def test_rectangles(columns: int, rows: int) -> None:
    config = MeshConfig(columns, rows, payload=1, local_ports={(0, 0): 2})
    report = walk(config)
    assert len(order(report.edges)) > columns * rows
    rectangles = columns * (columns + 1) * rows * (rows + 1) // 4
    assert report.flits == (columns * rows + 1) * (rectangles + 1)


@pytest.mark.parametrize("columns, rows", [(2, 2), (3, 2)])
def test_lists(columns: int, rows: int) -> None:
    report = walk(MeshConfig(columns, rows, payload=1, lists=True), lists=True)
    assert order(report.edges)
    assert report.flits == columns * rows * (2 ** (columns * rows) - 1)


@pytest.mark.long
@pytest.mark.parametrize("side", [4, 6])
def test_larger(side: int) -> None:
    assert order(walk(MeshConfig(side, side, payload=1)).edges)


class _ColumnFirst(Route):
    """A routing function that goes along the column first to every other target: a cycle (must fail)."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        goal = self.header.destination
        east, west = goal.x_last > self.x, goal.x_first < self.x
        north, south = goal.y_last > self.y, goal.y_first < self.y
        here = ~(east | west | north | south)
        with m.If((goal.x_first[0] ^ goal.y_first[0]) & (north | south)):
            m.d.comb += [self.outputs[2].eq(north), self.outputs[3].eq(south)]
        with m.Elif(east | west):
            m.d.comb += [self.outputs[0].eq(east), self.outputs[1].eq(west)]
        with m.Else():
            m.d.comb += [self.outputs[2].eq(north), self.outputs[3].eq(south), self.outputs[4].eq(here)]
        return m


def test_mixed_order_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scripts.formal.noc_deadlock.legal", lambda *_: True)
    monkeypatch.setattr("scripts.formal.noc_deadlock.destinations", lambda config, lists: [
        {"x_first": x, "x_last": x, "y_first": y, "y_last": y, "port": 0} for x in range(2) for y in range(2)
    ])  # fmt: skip
    report = walk(MeshConfig(2, 2, payload=1), route=_ColumnFirst)
    with pytest.raises(RoutingError, match="wait for each other"):
        order(report.edges)


def test_lost_target_is_refused() -> None:
    class Deaf(Route):
        def elaborate(self, platform: object) -> Module:
            m = super().elaborate(platform)
            with m.If(self.header.destination.y_last > self.y):
                m.d.comb += self.outputs[4].eq(0)
            return m

    with pytest.raises(RoutingError, match="reaches"):
        walk(MeshConfig(2, 2, payload=1), route=Deaf)
