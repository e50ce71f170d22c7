"""Flits, headers and links of the network as data structures."""

from __future__ import annotations

from amaranth.hdl import Shape, ValueLike
from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from hw.noc.config import MeshConfig

__all__ = [
    "Direction", "Kind", "LinkSignature", "TrafficClass", "destination_layout", "endpoint_layout", "flit_layout",
    "header_layout", "to_endpoint",
]  # fmt: skip


class TrafficClass(enum.IntEnum):
    """Classes with virtual channels of their own; none can block another."""

    REQUEST = 0
    RESPONSE = 1
    COLLECTIVE = 2


class Kind(enum.Enum, shape=3):
    """What a flit carries. Routers do not look at it."""

    DATA = 0
    WRITE = 1
    READ = 2
    BARRIER = 3
    GATHER = 4
    RELEASE = 5
    CREDIT = 6
    GATHER_LAST = 7


class Direction(enum.IntEnum):
    """Ports of a router. North is the next higher row; local ports follow from `LOCAL` on."""

    EAST = 0
    WEST = 1
    NORTH = 2
    SOUTH = 3
    LOCAL = 4


def destination_layout(config: MeshConfig) -> data.StructLayout:
    """Where a flit goes: local port `port` of every node of a rectangle, exactly once each.

    A single node is a rectangle of one. A rectangle of more than one node reaches port 0 only. With `config.lists`
    there are also `listed` (1 bit) and `nodes` (bit y*columns + x): where `listed` is set, `nodes` replaces the
    rectangle and must not be zero.
    """
    fields = {
        "x_first": config.x_width,
        "x_last": config.x_width,
        "y_first": config.y_width,
        "y_last": config.y_width,
        "port": config.port_width,
    }
    if config.lists:
        fields |= {"nodes": config.nodes, "listed": 1}
    return data.StructLayout(fields)


def endpoint_layout(config: MeshConfig) -> data.StructLayout:
    """Place of an endpoint: node (x, y) and its local port."""
    return data.StructLayout({"x": config.x_width, "y": config.y_width, "port": config.port_width})


def to_endpoint(destination: data.View, x: ValueLike, y: ValueLike, port: ValueLike) -> list:
    """Assignments that make `destination` (of `destination_layout`) the one endpoint (x, y, port)."""
    nodes = {"x_first": x, "x_last": x, "y_first": y, "y_last": y}
    return [destination[name].eq(value) for name, value in (nodes | {"port": port}).items()]


def header_layout(config: MeshConfig) -> data.StructLayout:
    """The header that every flit has.

    `destination`; `source` (an `endpoint_layout`) and `traffic` (class), which the network fills in; `kind`; `last`
    (last flit of a packet). All flits of a packet have the same destination. A flit that goes to several nodes
    is switched as a packet of its own, whatever `last` says, and `last` arrives as it was sent.
    """
    return data.StructLayout(
        {
            "destination": destination_layout(config),
            "source": endpoint_layout(config),
            "traffic": bits_for(max(1, config.classes - 1)),
            "kind": Kind,
            "last": 1,
        }
    )


def flit_layout(config: MeshConfig) -> data.StructLayout:
    """A flit: `header` and `payload` (of shape `config.payload`)."""
    return data.StructLayout({"header": header_layout(config), "payload": config.payload})


class LinkSignature(wiring.Signature):
    """One direction of a channel between two routers, with the credits that come back.

    Parameters
    ----------
    config : MeshConfig

    Interface attributes
    --------------------
    valid : Out(1)
        A flit is on the link in this cycle. It has a place at the receiver: there is no way to refuse it.
    channel : Out(range(config.virtual_channels))
        Its virtual channel; meaningful with `valid`.
    flit : Out(flit bits)
        The flit (raw bits of `flit_layout`); meaningful with `valid`.
    credit : In(config.virtual_channels)
        Driven by the receiver: bit v is set for one cycle for each flit that left its buffer of channel v.
    """

    def __init__(self, config: MeshConfig):
        self.config = config
        super().__init__(
            {
                "valid": Out(1),
                "channel": Out(range(config.virtual_channels)),
                "flit": Out(Shape.cast(flit_layout(config)).width),
                "credit": In(config.virtual_channels),
            }
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LinkSignature) and self.members == other.members
