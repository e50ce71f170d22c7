"""The network's golden model against closed forms, and what a mesh configuration refuses."""

import pytest
from amaranth.hdl import unsigned

from golden import noc
from hw.noc import MeshConfig
from hw.noc.arbiter import Arbiter
from hw.noc.link import LinkEndpoint, frame_beats


@pytest.mark.parametrize(
    "side, pattern, bound, hops",
    [
        (4, "uniform", 1.0, 2.5), (4, "transpose", 1 / 3, 2.5), (4, "bitcomp", 0.5, 4.0), (4, "neighbour", 1.0, 3.0),
        (4, "hotcorners", 0.25, 3.0), (8, "uniform", 0.5, 5.25), (8, "transpose", 1 / 7, 5.25),
        (8, "bitcomp", 0.25, 8.0),
    ],
)  # fmt: skip
def test_bounds_and_hops(side: int, pattern: str, bound: float, hops: float) -> None:
    """Bounds and mean hops as they are published for BookSim's patterns on these meshes."""
    assert noc.throughput_bound(pattern, side, side) == pytest.approx(bound)
    assert noc.mean_hops(pattern, side, side) == pytest.approx(hops)


def test_tree_has_one_way_to_each_node() -> None:
    nodes = [(x, y) for x in range(4) for y in range(4)]
    for source in nodes:
        links = noc.tree(source, nodes)
        assert len(links) == 15
        assert sorted(end for _, end in links) == sorted(node for node in nodes if node != source)


def test_targets() -> None:
    rectangle = {"x_first": 1, "x_last": 2, "y_first": 0, "y_last": 1, "port": 0}
    assert noc.targets(rectangle, 3, 2) == [(1, 0), (2, 0), (1, 1), (2, 1)]
    assert noc.targets(rectangle | {"listed": 1, "nodes": 0b100001}, 3, 2) == [(0, 0), (2, 1)]
    for wrong in (rectangle | {"x_last": 3}, rectangle | {"y_first": 2}, rectangle | {"listed": 1, "nodes": 0}):
        with pytest.raises(ValueError, match="must be"):
            noc.targets(wrong, 3, 2)


def test_bounds_of_collectives() -> None:
    assert noc.spread_bound(4, 224) == 224 + 15
    assert noc.gather_bound(1, 7) == 7 + 3  # all from the node itself
    assert noc.gather_bound(4, 224) >= 224 + 3


def test_goodput() -> None:
    assert noc.goodput_ratio(0, 3, 65, 8) == 1
    assert noc.goodput_ratio(1e-6, 3, 65, 8) > noc.goodput_ratio(1e-4, 3, 65, 8) > 0.5


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"columns": 0}, "columns must be an integer from 1 to 64, not 0"),
        ({"classes": 4}, "classes must be 1, 2 or 3, not 4"),
        ({"channels": 3}, "channels must be 1, 2 or 4, not 3"),
        ({"depth": 0}, "depth must be"),
        ({"urgent": (3,)}, "urgent must be classes below 3"),
        ({"payload": unsigned(0)}, "payload must be at least one bit wide"),
        ({"local_ports": {(2, 0): 2}}, "local_ports node must be inside the mesh"),
        ({"local_ports": {(0, 0): 9}}, "local_ports count must be"),
    ],
)
def test_refused_configurations(wrong: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MeshConfig(**{"columns": 2, "rows": 2} | wrong)


def test_refused_parts() -> None:
    with pytest.raises(ValueError, match="size must be"):
        Arbiter(0)
    with pytest.raises(ValueError, match="lane_width must be one of"):
        LinkEndpoint(32, lane_width=24)
    with pytest.raises(ValueError, match="window must be a power of two"):
        LinkEndpoint(32, window=12)


def test_endpoints() -> None:
    config = MeshConfig(2, 2, local_ports={(0, 0): 2})
    assert config.endpoints() == [(0, 0, 0), (1, 0, 0), (0, 1, 0), (1, 1, 0), (0, 0, 1)]
    assert config.endpoint(0, 0, 1) == 4
    assert frame_beats(96, 32, 64) == 3
