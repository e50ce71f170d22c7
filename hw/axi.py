"""AXI4 and AXI4-Lite as interface signatures (AMBA AXI and ACE protocol specification, ARM IHI 0022H)."""

from __future__ import annotations

from amaranth.hdl import unsigned
from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import In, Out

__all__ = [
    "Axi4LiteSignature", "Axi4Signature", "Burst", "Response", "burst_layout", "read_beat_layout",
    "write_answer_layout", "write_beat_layout",
]  # fmt: skip


class Response(enum.Enum, shape=2):
    """BRESP and RRESP."""

    OKAY = 0
    EXOKAY = 1
    SLVERR = 2
    DECERR = 3


class Burst(enum.Enum, shape=2):
    """AWBURST and ARBURST."""

    FIXED = 0
    INCR = 1
    WRAP = 2


def burst_layout(address_bits: int, id_bits: int) -> data.StructLayout:
    """An accepted AW or AR."""
    return data.StructLayout(
        {"id": unsigned(id_bits), "addr": unsigned(address_bits), "len": unsigned(8), "size": unsigned(3),
         "burst": Burst}
    )  # fmt: skip


def write_beat_layout(data_bits: int) -> data.StructLayout:
    """A beat on the W channel."""
    return data.StructLayout({"data": data_bits, "strb": data_bits // 8, "last": 1})


def write_answer_layout(id_bits: int) -> data.StructLayout:
    """An answer on the B channel."""
    return data.StructLayout({"id": id_bits, "resp": Response})


def read_beat_layout(data_bits: int, id_bits: int) -> data.StructLayout:
    """A beat on the R channel."""
    return data.StructLayout({"id": id_bits, "data": data_bits, "resp": Response, "last": 1})


def _check_width(what: str, width: int, allowed: range | tuple[int, ...]) -> None:
    if width not in allowed:
        raise ValueError(f"AXI {what} width must be one of {list(allowed)}, not {width!r}")


class Axi4Signature(wiring.Signature):
    """The five channels of AXI4, seen from the manager (`Out` is driven by the manager).

    Parameters
    ----------
    address_width: bits of AWADDR and ARADDR, 1 to 64.
    data_width: bits of WDATA and RDATA, a power of two from 8 to 1024.
    id_width: bits of the IDs, 1 to 32.

    Interface attributes
    --------------------
    Members carry the standard's names in lower case (`awid`, `awaddr`, ...), so that a port `s_axi` becomes
    `s_axi__awaddr` in Verilog. Each channel transfers in a cycle in which its `valid` and `ready` are both 1.
    """

    def __init__(self, address_width: int, data_width: int, id_width: int):
        _check_width("address", address_width, range(1, 65))
        _check_width("data", data_width, (8, 16, 32, 64, 128, 256, 512, 1024))
        _check_width("ID", id_width, range(1, 33))
        self.address_width, self.data_width, self.id_width = address_width, data_width, id_width
        address = {"id": id_width, "addr": address_width, "len": 8, "size": 3, "burst": Burst}
        members: dict[str, wiring.Member] = {}
        for channel in ("aw", "ar"):
            members |= {f"{channel}{name}": Out(shape) for name, shape in address.items()}
            members |= {f"{channel}valid": Out(1), f"{channel}ready": In(1)}
        members |= {"wdata": Out(data_width), "wstrb": Out(data_width // 8), "wlast": Out(1)}
        members |= {"wvalid": Out(1), "wready": In(1)}
        members |= {"bid": In(id_width), "bresp": In(Response), "bvalid": In(1), "bready": Out(1)}
        members |= {"rid": In(id_width), "rdata": In(data_width), "rresp": In(Response), "rlast": In(1)}
        members |= {"rvalid": In(1), "rready": Out(1)}
        super().__init__(members)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Axi4Signature) and self.members == other.members


class Axi4LiteSignature(wiring.Signature):
    """AXI4-Lite with 32-bit data, seen from the manager; names as in `Axi4Signature`.

    Parameters
    ----------
    address_width: bits of AWADDR and ARADDR, 1 to 64.
    """

    def __init__(self, address_width: int):
        _check_width("address", address_width, range(1, 65))
        self.address_width = address_width
        members: dict[str, wiring.Member] = {}
        for channel in ("aw", "ar"):
            members |= {f"{channel}addr": Out(address_width), f"{channel}valid": Out(1), f"{channel}ready": In(1)}
        members |= {"wdata": Out(32), "wstrb": Out(4), "wvalid": Out(1), "wready": In(1)}
        members |= {"bresp": In(Response), "bvalid": In(1), "bready": Out(1)}
        members |= {"rdata": In(32), "rresp": In(Response), "rvalid": In(1), "rready": Out(1)}
        super().__init__(members)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Axi4LiteSignature) and self.members == other.members
