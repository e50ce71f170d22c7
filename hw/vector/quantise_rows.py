"""FP32 rows to quantised activation blocks in the order of the array's memories."""

from amaranth.hdl import Cat, Module, Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.fifo import StreamFifo
from hw.numerics.formats import ElementFormat, FormatSet
from hw.numerics.quantise import Quantise
from hw.tile.config import LANES
from hw.tile.isa import Block

__all__ = ["ActivationWrite", "QuantiseRows", "RowsCommand"]

BEATS = 32 // LANES
"""Beats of a block."""


class ActivationWrite(data.Struct):
    """A block for the array's activation memories."""

    row: unsigned(6)
    address: unsigned(16)
    block: Block


class RowsCommand(data.Struct):
    """`rows` rows of `blocks` blocks: row m's block k goes to block `base` + (m // array rows) * `blocks` + k of array
    row m % array rows, where MATMUL and AttentionCommand look for it."""

    rows: unsigned(13)
    blocks: unsigned(12)
    base: unsigned(16)
    element: ElementFormat


class QuantiseRows(wiring.Component):
    """Rows of FP32 beats to blocks with their places: the way from the vector unit to the array. A beat a cycle.

    Parameters
    ----------
    formats: names of formats with E8M0 scales.
    array_rows: rows of the array that the blocks are for.

    Interface attributes
    --------------------
    command: in order; a command with no rows or no blocks is taken and does nothing.
    values: the rows' elements in order, eight a beat.
    o: their blocks, in order. Golden function: `golden.quantise.quantise`.
    busy: a command's blocks have not all been taken.
    """

    def __init__(self, formats: tuple[str, ...], array_rows: int):
        if not isinstance(array_rows, int) or not 1 <= array_rows <= 64:
            raise ValueError(f"array_rows must be an integer from 1 to 64, not {array_rows!r}")
        self.formats, self.array_rows = FormatSet(formats), array_rows
        super().__init__(
            {
                "command": In(stream.Signature(RowsCommand)),
                "values": In(stream.Signature(data.ArrayLayout(32, LANES))),
                "o": Out(stream.Signature(ActivationWrite)),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.quantise = quantise = Quantise(self.formats, LANES)
        m.submodules.placing = placing = StreamFifo(RowsCommand, 4)
        self._take(m, quantise.i, placing.i)
        self._give(m, quantise.o, placing.o)
        m.d.comb += self.busy.eq(self.command.valid | placing.o.valid)
        return m

    def _take(self, m: Module, quantise: stream.Interface, placing: stream.Interface) -> None:
        """Beats into the quantiser; a command is known to the other side before its first beat."""
        command, known = self.command.payload, Signal()
        row, beat = Signal(13), Signal(15)
        row_end, end, nothing = Signal(), Signal(), Signal()
        m.d.comb += [
            nothing.eq((command.rows == 0) | (command.blocks == 0)),
            placing.payload.eq(command),
            placing.valid.eq(self.command.valid & ~known & ~nothing),
            quantise.payload.values.eq(self.values.payload),
            quantise.payload.format.eq(command.element),
            quantise.valid.eq(self.values.valid & self.command.valid & known),
            self.values.ready.eq(quantise.ready & self.command.valid & known),
            row_end.eq(beat + 1 == command.blocks * BEATS),
            end.eq(self.values.valid & self.values.ready & row_end & (row + 1 == command.rows)),
            self.command.ready.eq(end | nothing),
        ]
        with m.If(placing.valid & placing.ready):
            m.d.sync += known.eq(1)
        with m.If(self.values.valid & self.values.ready):
            m.d.sync += beat.eq(beat + 1)
            with m.If(row_end):
                m.d.sync += [beat.eq(0), row.eq(row + 1)]
            with m.If(end):
                m.d.sync += [row.eq(0), known.eq(0)]

    def _give(self, m: Module, codes: stream.Interface, placing: stream.Interface) -> None:
        """Codes gathered to blocks, and where each goes."""
        command, write = placing.payload, self.o.payload
        beat, block, row, array_row, line = Signal(2), Signal(12), Signal(13), Signal(6), Signal(16)
        gathered = Signal(32 * 8 - 8 * LANES)
        complete, block_end = beat == BEATS - 1, block + 1 == command.blocks
        m.d.comb += [
            self.o.valid.eq(codes.valid & complete),
            codes.ready.eq(~complete | self.o.ready),
            write.row.eq(array_row),
            write.address.eq(command.base + line + block),
            write.block.elements.as_value().eq(Cat(gathered, codes.payload.codes.as_value())),
            write.block.scale.eq(codes.payload.scale),
            placing.ready.eq(self.o.valid & self.o.ready & block_end & (row + 1 == command.rows)),
        ]
        with m.If(codes.valid & codes.ready):
            m.d.sync += [beat.eq(beat + 1), gathered.eq(Cat(gathered, codes.payload.codes.as_value())[8 * LANES :])]
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += block.eq(block + 1)
            with m.If(block_end):
                m.d.sync += [block.eq(0), row.eq(row + 1), array_row.eq(array_row + 1)]
                with m.If(array_row == self.array_rows - 1):
                    m.d.sync += [array_row.eq(0), line.eq(line + command.blocks)]
            with m.If(placing.ready):
                m.d.sync += [row.eq(0), array_row.eq(0), line.eq(0)]
