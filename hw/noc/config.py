"""Configuration of a mesh, checked when it is made."""

from __future__ import annotations

from dataclasses import dataclass, field

from amaranth.hdl import Shape, ShapeLike, unsigned
from amaranth.utils import bits_for

__all__ = ["MeshConfig"]


def _check(name: str, value: object, allowed: str, holds: bool) -> None:
    if not holds:
        raise ValueError(f"{name} must be {allowed}, not {value!r}")


@dataclass(frozen=True)
class MeshConfig:
    """Parameters of a mesh of `columns` x `rows` routers.

    Parameters
    ----------
    columns, rows : int
        Size; column 0 is the west edge, row 0 the south edge. 1 to 64 each.
    payload : ShapeLike
        Shape of a flit's payload (usually a `lib.data` layout).
    classes : int
        Traffic classes, 1 to 3; class numbers are `TrafficClass`. Each has virtual channels and credits of its own.
    channels : int
        Virtual channels ("lanes") of a class on every link: 1, 2 or 4. With more than one, packets of different flows
        pass each other.
    depth : int
        Flits that an input buffer of one virtual channel holds. 4 sustain a flit a cycle (the credit loop is 4).
    local_ports : mapping or tuple of ((x, y), count)
        Nodes with more than one local port, for example `{(0, 0): 2}`.
    urgent : tuple of int
        Classes that go before the others in every arbiter.
    urgent_limit : int
        Flits of urgent classes that may pass a waiting flit of the other classes before it goes: the others keep one
        cycle of a link in `urgent_limit` + 1, and delay the urgent by no more than that share.
    lists : bool
        Adds a bit mask of nodes to the header, for multicast to any set of nodes.
    counters : bool
        Adds counters to every router's outputs (`hw.noc.counters`).
    """

    columns: int
    rows: int
    payload: ShapeLike = field(default_factory=lambda: unsigned(64))
    classes: int = 3
    channels: int = 1
    depth: int = 4
    local_ports: tuple = ()
    urgent: tuple[int, ...] = ()
    urgent_limit: int = 64
    lists: bool = False
    counters: bool = False

    def __post_init__(self) -> None:
        _check("columns", self.columns, "an integer from 1 to 64", self.columns in range(1, 65))
        _check("rows", self.rows, "an integer from 1 to 64", self.rows in range(1, 65))
        _check("classes", self.classes, "1, 2 or 3", self.classes in (1, 2, 3))
        _check("channels", self.channels, "1, 2 or 4", self.channels in (1, 2, 4))
        _check("depth", self.depth, "an integer from 1 to 64", self.depth in range(1, 65))
        _check("urgent_limit", self.urgent_limit, "an integer from 1 to 255", self.urgent_limit in range(1, 256))
        _check("payload", self.payload, "at least one bit wide", Shape.cast(self.payload).width >= 1)
        for item in self.urgent:
            _check("urgent", self.urgent, f"classes below {self.classes}", item in range(self.classes))
        items = self.local_ports.items() if hasattr(self.local_ports, "items") else self.local_ports
        object.__setattr__(self, "local_ports", tuple((tuple(node), int(count)) for node, count in items))
        for (x, y), count in self.local_ports:
            _check("local_ports node", (x, y), "inside the mesh", x in range(self.columns) and y in range(self.rows))
            _check("local_ports count", count, "an integer from 1 to 4", count in range(1, 5))

    @property
    def router_ports(self) -> int:
        """Ports of the router with the most local ones."""
        return 4 + max((count for _, count in self.local_ports), default=1)

    @property
    def nodes(self) -> int:
        """Number of routers."""
        return self.columns * self.rows

    @property
    def virtual_channels(self) -> int:
        """Virtual channels of a link: class c has numbers c*channels to (c+1)*channels - 1."""
        return self.classes * self.channels

    @property
    def x_width(self) -> int:
        return bits_for(self.columns - 1)

    @property
    def y_width(self) -> int:
        return bits_for(self.rows - 1)

    @property
    def port_width(self) -> int:
        return bits_for(max((count for _, count in self.local_ports), default=1) - 1)

    def ports_at(self, x: int, y: int) -> int:
        """Local ports of node (x, y)."""
        return dict(self.local_ports).get((x, y), 1)

    def endpoints(self) -> list[tuple[int, int, int]]:
        """(x, y, port) of every local port, in the order of `Mesh.send`: port 0 of all nodes by rows, then the rest."""
        first = [(x, y, 0) for y in range(self.rows) for x in range(self.columns)]
        return first + [(x, y, p) for x, y, _ in first for p in range(1, self.ports_at(x, y))]

    def endpoint(self, x: int, y: int, port: int = 0) -> int:
        """Index of a local port in `Mesh.send` and `Mesh.receive`."""
        return self.endpoints().index((x, y, port))

    def key(self) -> str:
        """Text that tells apart the routers of different configurations; part of module names."""
        urgent = "".join(map(str, self.urgent))
        return (
            f"{self.columns}x{self.rows}_p{Shape.cast(self.payload).width}_n{self.port_width}_c{self.classes}"
            f"v{self.channels}d{self.depth}" + (f"_u{urgent}l{self.urgent_limit}" if urgent else "")
            + ("_lists" if self.lists else "") + ("_k" if self.counters else "")
        )  # fmt: skip
