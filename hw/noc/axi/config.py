"""What the two AXI4 bridges of a network agree on: widths, the address map, the packets."""

from __future__ import annotations

from dataclasses import dataclass

from amaranth.hdl import Const, Module, Mux, Shape, Signal, Value
from amaranth.lib import data

from hw.axi import Axi4Signature, Burst, Response
from hw.noc.config import MeshConfig
from hw.noc.flit import endpoint_layout, flit_layout, header_layout, to_endpoint

__all__ = ["BEATS", "AxiNetworkConfig", "Region", "answer_layout", "beat_layout", "head_layout", "make_flit"]

BEATS = 16  # most beats of a packet: FIXED and WRAP bursts have no more, INCR bursts are split
PAGE = 4096  # no burst crosses a multiple of this


@dataclass(frozen=True)
class Region:
    """Addresses from `base` to `base + size - 1` belong to the target at local port `port` of node (x, y)."""

    base: int
    size: int
    x: int
    y: int
    port: int = 0


@dataclass(frozen=True)
class AxiNetworkConfig:
    """Parameters of the AXI4 bridges on one mesh.

    Parameters
    ----------
    mesh : MeshConfig
        Two classes at least; its payload has at least `payload_width` bits.
    regions : tuple of Region
        The address map, in multiples of 4 KiB and without overlap. All other addresses get DECERR.
    address_width, data_width, id_width : int
        Of the managers. A target sees IDs of `target_id_width` bits: the manager's place above its ID.
    slots : int
        Reads, and writes, that a manager's bridge has under way at a time (of at most `BEATS` beats each for reads).
        2 to 16.
    pending : int
        Reads, and writes, that a target's bridge has under way at its target. 1 to 64.
    timeout : int
        Cycles without an answer after which a transaction is given up; above the longest that a target takes.
    """

    mesh: MeshConfig
    regions: tuple[Region, ...]
    address_width: int = 32
    data_width: int = 64
    id_width: int = 4
    slots: int = 4
    pending: int = 8
    timeout: int = 4096

    def __post_init__(self) -> None:
        Axi4Signature(self.address_width, self.data_width, self.target_id_width)  # checks the widths
        for name, allowed in (("slots", range(2, 17)), ("pending", range(1, 65)), ("timeout", range(1, 1 << 24))):
            if getattr(self, name) not in allowed:
                found = getattr(self, name)
                raise ValueError(f"{name} must be an integer from {allowed[0]} to {allowed[-1]}, not {found!r}")
        if self.mesh.classes < 2:
            raise ValueError(f"AXI needs two traffic classes, requests and responses, not {self.mesh.classes}")
        width = Shape.cast(self.mesh.payload).width
        if width < self.payload_width:
            raise ValueError(f"AXI needs a payload of {self.payload_width} bits or more, not {width}")
        self._check_regions()

    def _check_regions(self) -> None:
        end = 0
        for region in sorted(self.regions, key=lambda region: region.base):
            if region.base % PAGE or region.size % PAGE or region.size <= 0:
                raise ValueError(f"a region must be in multiples of 4 KiB, not {region}")
            if region.base < end or region.base + region.size > 1 << self.address_width:
                raise ValueError(f"regions must not overlap and must fit {self.address_width} address bits: {region}")
            if (region.x, region.y, region.port) not in self.mesh.endpoints():
                raise ValueError(f"there is no endpoint at {region}")
            end = region.base + region.size
        if not self.regions:
            raise ValueError("regions must not be empty")

    @property
    def slot_width(self) -> int:
        return (self.slots - 1).bit_length()

    @property
    def source_width(self) -> int:
        """Bits of a manager's place: x, y, port."""
        return self.mesh.x_width + self.mesh.y_width + self.mesh.port_width

    @property
    def target_id_width(self) -> int:
        return self.source_width + self.id_width

    @property
    def payload_width(self) -> int:
        """Payload bits that the packets need."""
        return max(layout(self).as_shape().width for layout in (head_layout, beat_layout, answer_layout))

    def manager_signature(self) -> Axi4Signature:
        return Axi4Signature(self.address_width, self.data_width, self.id_width)

    def target_signature(self) -> Axi4Signature:
        return Axi4Signature(self.address_width, self.data_width, self.target_id_width)


def head_layout(config: AxiNetworkConfig) -> data.StructLayout:
    """Payload of the first flit of a request: kind `READ` (the only flit), or `WRITE` (beats follow).

    `slot` names the transaction at the manager's bridge and comes back with every answer.
    """
    fields = {"addr": config.address_width, "id": config.id_width, "len": 4, "size": 3, "burst": Burst}
    return data.StructLayout({**fields, "slot": config.slot_width})


def beat_layout(config: AxiNetworkConfig) -> data.StructLayout:
    """Payload of a flit of write data, kind `DATA`; the header's `last` is WLAST."""
    return data.StructLayout({"data": config.data_width, "strb": config.data_width // 8})


def answer_layout(config: AxiNetworkConfig) -> data.StructLayout:
    """Payload of an answer, a packet of one flit: kind `READ` for each beat, or `WRITE` for a whole write.

    `beat`: carries `data`; `done`: nothing more comes for this transaction. A read that ends before all of its beats
    came has failed with `resp`, or with SLVERR where the last flit had a beat.
    """
    fields = {"slot": config.slot_width, "resp": Response, "beat": 1, "done": 1, "data": config.data_width}
    return data.StructLayout(fields)


def make_flit(
    m: Module, config: AxiNetworkConfig, name: str, goal: data.View, kind: Value, last: Value, payload: Value
) -> Signal:
    """A flit to the endpoint `goal` (x, y, port)."""
    flit = Signal(flit_layout(config.mesh), name=name)
    header = Signal(header_layout(config.mesh), name=f"{name}_header")
    m.d.comb += [
        *to_endpoint(header.destination, goal.x, goal.y, goal.port),
        Value.cast(header.kind).eq(kind),
        header.last.eq(last),
        flit.header.eq(header),
        Value.cast(flit.payload).eq(payload),
    ]
    return flit


def decode(m: Module, config: AxiNetworkConfig, name: str, burst: data.View) -> tuple[data.View, Signal]:
    """Endpoint of a burst's address, and the response that its address and form alone decide (OKAY: send it)."""
    goal, status = Signal(endpoint_layout(config.mesh), name=f"{name}_goal"), Signal(Response, name=f"{name}_status")
    known: Value = Const(0)
    for region in config.regions:
        inside = (burst.addr >= region.base) & (burst.addr < region.base + region.size)
        known = known | inside
        with m.If(inside):
            m.d.comb += [goal.x.eq(region.x), goal.y.eq(region.y), goal.port.eq(region.port)]
    widest = (config.data_width // 8 - 1).bit_length()
    kind = Value.cast(burst.burst)
    illegal = (burst.size > widest) | (kind == 3) | ((kind != Burst.INCR.value) & (burst.len >= BEATS))
    m.d.comb += status.eq(Mux(~known, Response.DECERR, Mux(illegal, Response.SLVERR, Response.OKAY)))
    return goal, status
