"""The network's golden model against closed forms, and what a mesh configuration refuses."""

import pytest
from amaranth.hdl import unsigned

from golden import noc
from hw.noc import Direction, Mesh, MeshConfig
from hw.noc.arbiter import Arbiter
from hw.noc.axi import AxiNetworkConfig, Region
from hw.noc.edge import EdgeLink
from hw.noc.gather import GatherCollector, GatherSource
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


REGION = Region(0, 4096, 0, 0)


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"regions": ()}, "regions must not be empty"),
        ({"regions": (REGION, Region(0, 8192, 1, 1))}, "regions must not overlap"),
        ({"regions": (Region(2048, 4096, 0, 0),)}, "multiples of 4 KiB"),
        ({"regions": (Region(0, 4096, 2, 0),)}, "there is no endpoint"),
        ({"regions": (Region(1 << 32, 4096, 0, 0),)}, "must fit 32 address bits"),
        ({"slots": 1}, "slots must be an integer from 2 to 16, not 1"),
        ({"timeout": 0}, "timeout must be"),
        ({"data_width": 24}, "AXI data width must be one of"),
        ({"mesh": MeshConfig(2, 2, classes=1)}, "two traffic classes"),
        ({"mesh": MeshConfig(2, 2, payload=16)}, "a payload of 72 bits or more, not 16"),
    ],
)
def test_refused_axi_networks(wrong: dict, message: str) -> None:
    fields = {"mesh": MeshConfig(2, 2, payload=128), "regions": (REGION,)}
    with pytest.raises(ValueError, match=message):
        AxiNetworkConfig(**fields | wrong)


def test_refused_gathers_edges_and_parts() -> None:
    config = MeshConfig(4, 2)
    with pytest.raises(ValueError, match="sources must be different endpoints"):
        GatherCollector(config, [(0, 0, 0), (0, 0, 0)])
    with pytest.raises(ValueError, match="sources must be different endpoints"):
        GatherSource(config, (0, 2, 0))
    with pytest.raises(ValueError, match="depth must be an even number"):
        GatherSource(config, (0, 0, 0), depth=7)
    with pytest.raises(ValueError, match="one lane a class, not 2"):
        EdgeLink(MeshConfig(4, 2, channels=2))
    with pytest.raises(ValueError, match="ways must be an integer from 1 to 16, not 0"):
        EdgeLink(config, ways=0)
    with pytest.raises(ValueError, match="part must be columns and rows inside 4 x 2"):
        Mesh(config, (range(2, 5), range(2)))


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
def test_parts_of_a_mesh() -> None:
    """The edges of two chips face each other in the same order; a chip in the middle has four sides."""
    config = MeshConfig(4, 2)
    left, right = (Mesh(config, (columns, range(2))) for columns in (range(2), range(2, 4)))
    assert left.edges == [((1, 0), Direction.EAST), ((1, 1), Direction.EAST)]
    assert right.edges == [((2, 0), Direction.WEST), ((2, 1), Direction.WEST)]
    assert left.endpoints + right.endpoints == sorted(config.endpoints(), key=lambda end: (end[0] > 1, end[1], end[0]))
    middle = Mesh(MeshConfig(3, 3), (range(1, 2), range(1, 2)))
    assert [side for _, side in middle.edges] == [side for side in Direction if side != Direction.LOCAL]


def test_endpoints() -> None:
    config = MeshConfig(2, 2, local_ports={(0, 0): 2})
    assert config.endpoints() == [(0, 0, 0), (1, 0, 0), (0, 1, 0), (1, 1, 0), (0, 0, 1)]
    assert config.endpoint(0, 0, 1) == 4
    assert frame_beats(96, 32, 64) == 3
