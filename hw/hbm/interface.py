"""Ports of the HBM controller: streams, device port, counters."""

from amaranth.hdl import unsigned
from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import In, Out

from .config import HbmConfig

__all__ = [
    "ColumnCommand", "ColumnOp", "Counters", "DevicePort", "ErrorRecord", "GranuleRequest", "Hint", "Request",
    "Response", "RowCommand", "RowOp", "StreamDescriptor", "WriteData",
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


class Hint(enum.Enum, shape=2):
    """What a range of addresses is, for the scheduler: it decides how rows are kept and where refresh goes, never the
    data.
    """

    NONE = 0
    """Not known: streams are recognised by their addresses."""
    WEIGHTS = 1
    """Part of a long sequential stream, which goes on in the next range: followed until it is silent, whatever comes
    between."""
    PAGE = 2
    """A piece by itself, such as a page of the KV cache: followed to its end, where its banks are given up at once."""


def StreamDescriptor(config: HbmConfig) -> data.StructLayout:
    """`length` granules (at least 1) from granule `address` on, to be read in order; both `address_bits` wide."""
    return data.StructLayout(
        {"address": unsigned(config.address_bits), "length": unsigned(config.address_bits), "hint": Hint}
    )


def Request(config: HbmConfig) -> data.StructLayout:
    """One granule: `write`, granule `address`, `tag` (comes back with a read's data), `hint`; `last` of its range."""
    return data.StructLayout(
        {"write": unsigned(1), "address": unsigned(config.address_bits), "tag": unsigned(config.tag_bits),
         "hint": Hint, "last": unsigned(1)}
    )  # fmt: skip


def GranuleRequest(config: HbmConfig) -> data.StructLayout:
    """What a source of reads and writes offers: `write`, granule `address`."""
    return data.StructLayout({"write": unsigned(1), "address": unsigned(config.address_bits)})


def ErrorRecord(config: HbmConfig) -> data.StructLayout:
    """An ECC error: granule `address`, `uncorrectable` (else it was corrected), found by the `scrub`ber."""
    return data.StructLayout(
        {"address": unsigned(config.address_bits), "uncorrectable": unsigned(1), "scrub": unsigned(1)}
    )


class WriteData(data.Struct):
    """Data of a write request; bit k of `strobe` enables byte k."""

    data: GRANULE_BITS
    strobe: GRANULE_BITS // 8


def Response(config: HbmConfig) -> data.StructLayout:
    """Data of a read: `tag` of its request, `data`, `error` (uncorrectable), `corrected`, `place` (device bits of the
    granule: {row, bank, column})."""
    return data.StructLayout(
        {"tag": unsigned(config.tag_bits), "data": unsigned(GRANULE_BITS), "error": unsigned(1),
         "corrected": unsigned(1), "place": unsigned(config.address_bits)}
    )  # fmt: skip


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
