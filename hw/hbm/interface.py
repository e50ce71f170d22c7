"""Ports of the HBM controller: streams, device port, counters."""

from amaranth.hdl import unsigned
from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import In, Out

from .config import HbmConfig

__all__ = [
    "ColumnCommand", "ColumnOp", "Counters", "DevicePort", "Request", "Response", "RowCommand", "RowOp",
    "StreamDescriptor", "WriteData",
]  # fmt: skip

GRANULE_BITS = 256
CHECK_BITS = 32


class RowOp(enum.Enum, shape=3):
    """Command in the row slot."""

    NOP = 0
    ACT = 1
    PRE = 2
    PREA = 3
    REFPB = 4
    REFAB = 5


class ColumnOp(enum.Enum, shape=2):
    """Command in the column slot."""

    NOP = 0
    RD = 1
    WR = 2


def RowCommand(config: HbmConfig) -> data.StructLayout:
    """Row slot: `op`, `bank` ({sid, group, bank}), `row` (ACT only)."""
    return data.StructLayout({"op": RowOp, "bank": unsigned(config.bank_bits), "row": unsigned(config.row_bits)})


def ColumnCommand(config: HbmConfig) -> data.StructLayout:
    """Column slot: `op`, `bank`, `column`."""
    return data.StructLayout(
        {"op": ColumnOp, "bank": unsigned(config.bank_bits), "column": unsigned(config.column_bits)}
    )


def StreamDescriptor(config: HbmConfig) -> data.StructLayout:
    """`length` granules (at least 1) from granule `address` on, to be read in order; both `address_bits` wide."""
    return data.StructLayout({"address": unsigned(config.address_bits), "length": unsigned(config.address_bits)})


def Request(config: HbmConfig) -> data.StructLayout:
    """One granule: `write`, granule `address`, `tag` (comes back with a read's data)."""
    return data.StructLayout(
        {"write": unsigned(1), "address": unsigned(config.address_bits), "tag": unsigned(config.tag_bits)}
    )


class WriteData(data.Struct):
    """Data of a write request; bit k of `strobe` enables byte k."""

    data: GRANULE_BITS
    strobe: GRANULE_BITS // 8


def Response(config: HbmConfig) -> data.StructLayout:
    """Data of a read: `tag` of its request, `data`, `error` (uncorrectable)."""
    return data.StructLayout({"tag": unsigned(config.tag_bits), "data": unsigned(GRANULE_BITS), "error": unsigned(1)})


class DevicePort(wiring.Signature):
    """The pins of a pseudo-channel, as a controller drives them.

    Interface attributes
    --------------------
    row, column : Out
        The two command slots, both sampled by the device at every rising edge.
    write_data, write_check : Out
        Data and check bits of a write; sampled CWL clocks after its command.
    read_valid, read_data, read_check : In
        Data of a read; to be sampled CL + BL clocks after its command.
    """

    def __init__(self, config: HbmConfig):
        super().__init__(
            {
                "row": Out(RowCommand(config)),
                "column": Out(ColumnCommand(config)),
                "write_data": Out(GRANULE_BITS),
                "write_check": Out(CHECK_BITS),
                "read_valid": In(1),
                "read_data": In(GRANULE_BITS),
                "read_check": In(CHECK_BITS),
            }
        )


class Counters(data.Struct):
    """Events since reset, saturating.

    `busy` clocks in which the data bus carried data; `reads`, `writes` column commands; `activates`, `precharges`,
    `refreshes` row commands; `row_hits` column commands beyond the first after their ACT; `turnarounds` changes of
    the bus direction; `corrected`, `uncorrectable` granules with ECC errors; `stalled` clocks in which requests
    waited and no column command was issued.
    """

    cycles: 32
    busy: 32
    reads: 32
    writes: 32
    activates: 32
    precharges: 32
    refreshes: 32
    row_hits: 32
    turnarounds: 32
    stalled: 32
    corrected: 32
    uncorrectable: 32
