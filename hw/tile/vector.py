"""The tile's vector side: the vector unit with its memory, and the way of that memory's rows to the network."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.emit import once
from hw.numerics.formats import FormatSet
from hw.numerics.quantise import Quantise
from hw.tile.attention import AppendPath, SinkPath
from hw.tile.config import BLOCK_GRANULES, LANES, TileConfig
from hw.tile.drain import Outgoing
from hw.tile.isa import ROW_BITS, AppendInstruction, Memory, MoveInstruction, Opcode, SinkInstruction
from hw.vector.append import MemoryWrite
from hw.vector.leaves import PAGES
from hw.vector.slice_control import SinkLogit
from hw.vector.unit import Fetch, UnitCommand, VectorUnit, load_layout

__all__ = ["MAX_LENGTH", "VectorPath"]

MAX_LENGTH = 8192
"""Longest row that a VECTOR can reduce."""


class Mover(wiring.Component):
    """QUANTISE and SEND: reads rows of the vector memory and sends them as activation blocks or as granules.

    A granule a cycle; a block leaves `Quantise`'s latency after its last granule.

    Parameters
    ----------
    config: the tile; it has a vector unit.

    Interface attributes
    --------------------
    move: what to do; taken in the cycle in which its last remote write is taken.
    address, data: a read port of the vector memory: data one cycle after the address.
    o: the remote writes, rows ascending, in each row from its start on.
    """

    def __init__(self, config: TileConfig):
        self.config = config
        super().__init__(
            {
                "move": In(stream.Signature(MoveInstruction)),
                "address": Out(16),
                "data": In(data.ArrayLayout(32, LANES)),
                "o": Out(stream.Signature(Outgoing)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        move, out, write = self.move.payload, self.o.payload, self.o.payload.write
        m.submodules.fetch = fetch = once(Fetch(LANES), f"vector_fetch_{LANES}")
        m.submodules.quantise = quantise = Quantise(FormatSet(self.config.quantised_formats), LANES)
        blocks = move.opcode == Opcode.QUANTISE
        fetched = Signal()
        m.d.comb += [
            self.address.eq(fetch.address),
            fetch.data.eq(self.data),
            fetch.command.valid.eq(self.move.valid & ~fetched),
            fetch.command.payload.address.eq(move.source),
            fetch.command.payload.stride.eq(move.source_stride),
            fetch.command.payload.rows.eq(move.rows),
            fetch.command.payload.beats.eq(Mux(blocks, move.length * BLOCK_GRANULES, move.length)),
            quantise.i.payload.values.eq(fetch.o.payload),
            quantise.i.payload.format.eq(move.element),
            quantise.i.valid.eq(fetch.o.valid & blocks),
            fetch.o.ready.eq(Mux(blocks, quantise.i.ready, self.o.ready)),
        ]
        beat, gathered = Signal(range(BLOCK_GRANULES)), Signal((BLOCK_GRANULES - 1) * 8 * LANES)
        codes, whole = quantise.o.payload.codes.as_value(), beat == BLOCK_GRANULES - 1
        m.d.comb += quantise.o.ready.eq(~whole | self.o.ready)
        with m.If(quantise.o.valid & quantise.o.ready):
            m.d.sync += [beat.eq(beat + 1), gathered.eq(Cat(gathered[len(codes) :], codes))]

        address = self._walk(m, blocks, fetch, fetched)
        m.d.comb += [
            out.destination.eq(move.destination),
            write.address.eq(address),
            write.counter.eq(move.counter),
            self.o.valid.eq(Mux(blocks, quantise.o.valid & whole, fetch.o.valid)),
        ]
        with m.If(blocks):
            m.d.comb += [
                write.memory.eq(Memory.ACTIVATIONS),
                write.data.elements.as_value().eq(Cat(gathered, codes)),
                write.data.scale.eq(quantise.o.payload.scale),
            ]
        with m.Else():
            m.d.comb += [
                write.memory.eq(Memory.RESULTS),
                write.data.elements.as_value().eq(fetch.o.payload.as_value()),
            ]
        return m

    def _walk(self, m: Module, blocks: Signal, fetch: Fetch, fetched: Signal) -> Signal:
        """The address of the write on offer; the move is done with its last one."""
        move, config = self.move.payload, self.config
        row, index, line = Signal(13), Signal(12), Signal(22)
        array_row, address = Signal(range(max(2, config.rows))), Signal(22)
        sent, row_last, last = Signal(), Signal(), Signal()
        place = move.target + line + index
        m.d.comb += [
            address.eq(Mux(blocks, (place << ROW_BITS) | array_row, place)),
            sent.eq(self.o.valid & self.o.ready),
            row_last.eq(index + 1 == move.length),
            last.eq(row_last & (row + 1 == move.rows)),
            self.move.ready.eq(sent & last),
        ]
        with m.If(fetch.command.valid & fetch.command.ready):
            m.d.sync += fetched.eq(1)
        with m.If(sent):
            m.d.sync += index.eq(index + 1)
            with m.If(row_last):
                m.d.sync += [index.eq(0), row.eq(row + 1), array_row.eq(array_row + 1)]
                wrap = array_row == config.rows - 1
                with m.If(wrap):
                    m.d.sync += array_row.eq(0)
                with m.If(~blocks | wrap):
                    m.d.sync += line.eq(line + move.target_stride)
            with m.If(last):
                m.d.sync += [row.eq(0), array_row.eq(0), line.eq(0), fetched.eq(0)]
        return address


class VectorPath(wiring.Component):
    """The vector unit with its memory, and a `Mover` on one of the memory's read ports.

    Parameters
    ----------
    config: the tile; it has a vector unit.

    Interface attributes
    --------------------
    command, load: as those of `VectorUnit`; move, o: as those of `Mover`. A move begins when the unit is idle. No
        output depends on `o.ready` within a cycle but `move.ready`.
    idle: no command runs and all results are in the memory.
    append, pages_enable, pages_address, pages_data, writes: as those of `AppendPath`, where the tile has attention;
        sinks, sink_enable, sink: as `command` and the others of `SinkPath`.
    """

    def __init__(self, config: TileConfig):
        self.config = config
        ports = {
            "command": In(stream.Signature(UnitCommand)),
            "move": In(stream.Signature(MoveInstruction)),
            "load": In(stream.Signature(load_layout(LANES))),
            "o": Out(stream.Signature(Outgoing)),
            "idle": Out(1),
        }
        if config.attention_rows:
            ports |= {
                "append": In(stream.Signature(AppendInstruction)),
                "pages_enable": In(1),
                "pages_address": In(range(PAGES)),
                "pages_data": In(32),
                "writes": Out(stream.Signature(MemoryWrite)),
                "sinks": In(stream.Signature(SinkInstruction)),
                "sink_enable": Out(1),
                "sink": Out(SinkLogit),
            }
        super().__init__(ports)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.unit = unit = VectorUnit(LANES, self.config.vector_depth, MAX_LENGTH)
        m.submodules.mover = mover = Mover(self.config)
        wiring.connect(m, wiring.flipped(self.command), unit.command)
        wiring.connect(m, wiring.flipped(self.load), unit.load)
        wiring.connect(m, mover.o, wiring.flipped(self.o))
        m.d.comb += [
            mover.move.payload.eq(self.move.payload),
            mover.move.valid.eq(self.move.valid & unit.idle),
            self.move.ready.eq(mover.move.ready),
            unit.read.eq(mover.address),
            mover.data.eq(unit.data),
            self.idle.eq(unit.idle),
        ]
        if self.config.attention_rows:
            self._attention(m, unit)
        return m

    def _attention(self, m: Module, unit: VectorUnit) -> None:
        """APPEND and SINK, which read the memory too; one of all its readers runs at a time."""
        m.submodules.append_path = append = AppendPath(self.config)
        m.submodules.sink_path = sink = SinkPath(self.config)
        wiring.connect(m, append.writes, wiring.flipped(self.writes))
        m.d.comb += [
            *(getattr(append, name).eq(getattr(self, name)) for name in
              ("pages_enable", "pages_address", "pages_data")),
            self.sink_enable.eq(sink.sink_enable),
            self.sink.eq(sink.sink),
        ]  # fmt: skip
        for path, given, taken in ((append, self.append, append.append), (sink, self.sinks, sink.command)):
            m.d.comb += [
                taken.payload.eq(given.payload),
                taken.valid.eq(given.valid & unit.idle),
                given.ready.eq(taken.ready & unit.idle),
                path.data.eq(unit.data),
            ]
            with m.If(given.valid):
                m.d.comb += unit.read.eq(path.address)
