"""The host's registers: one table for the hardware, the driver and docs/registers.md."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from amaranth.lib import data

from hw.hbm.interface import Counters as HbmCounters
from hw.tile.isa import COUNTERS

__all__ = [
    "COUNTER_BASE", "COUNTER_STRIDE", "HBM_COUNTERS", "HBM_COUNTER_OFFSET", "IDENTITY", "REGISTERS", "TILE_COUNTERS",
    "Error", "Register", "Window",
]  # fmt: skip

IDENTITY = 0x53455252  # "SERR"


@dataclass(frozen=True)
class Register:
    """One 32-bit register: byte offset, access (`ro`, `rw`, `w1`: write one to act), meaning."""

    name: str
    offset: int
    access: str
    meaning: str


REGISTERS = {
    register.name: register
    for register in (
        Register("identity", 0x00, "ro", "0x53455252"),
        Register("tiles", 0x04, "ro", "number of tiles"),
        Register("running", 0x0C, "ro", "bit t: tile t runs"),
        Register("done", 0x10, "ro", "bit t: tile t has ended its program"),
        Register("error", 0x14, "ro", "what went wrong since reset, see Error; cleared by writing 1 to `clear`"),
        Register("signals", 0x18, "ro", "signals received since `clear`"),
        Register("tag", 0x1C, "ro", "tag of the last signal"),
        Register("threshold", 0x20, "rw", "the interrupt is raised while `signals` is at least this; 0: never"),
        Register("clear", 0x24, "w1", "bit 0: signals and error to zero"),
        Register("results", 0x28, "ro", "granules written to the result memory since `clear`"),
        Register("tile_error", 0x2C, "ro", "two bits a tile (the first 16): hw.tile.isa.TileError"),
    )
}

COUNTER_BASE = 0x1000
"""Counters of tile t: COUNTER_BASE + t * COUNTER_STRIDE + 4 * index; its HBM's at HBM_COUNTER_OFFSET from there."""
COUNTER_STRIDE = 0x100
HBM_COUNTER_OFFSET = 0x80
TILE_COUNTERS = COUNTERS
HBM_COUNTERS = tuple(name for name, _ in data.Layout.cast(HbmCounters))


class Error(IntEnum):
    """Bits of the register `error`."""

    TILE = 0
    """A tile refused its program: see `tile_error`."""
    DESTINATION = 1
    """The network dropped a flit with an impossible destination."""
    RESULT_ADDRESS = 2
    """A result was for a granule beyond the result memory, and was dropped."""
    WRITE = 3
    """A remote write came to a place that has no use for it (a result to a tile, an instruction to the host)."""


class Window(IntEnum):
    """Bits 31:28 of an address on the data port. Beats are 32 bytes, whole; anything else is answered with SLVERR."""

    RESULTS = 0
    """Read: granule g at byte 32*g."""
    ACTIVATIONS = 1
    """Write: block with remote-write address a at byte 64*a: its elements, at +32 its scale; goes to every tile."""
    PROGRAMS = 2
    """Write: instruction i of tile t at byte (t << 20) + 32*i."""
    START = 3
    """Write: a beat at byte t << 20 starts tile t's program, behind the instructions that were written before."""
    VECTORS = 4
    """Write: granule g of every tile's vector memory at byte 32*g. Blocks and granules count on arrival counter 0."""
