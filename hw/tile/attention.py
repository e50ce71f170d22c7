"""The tile's attention: the engine under ATTEND, the KV cache under APPEND, sinks."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.axi import Axi4Signature, Burst, Response
from hw.emit import once
from hw.fifo import StreamFifo
from hw.tile.array import LocalSignature
from hw.tile.config import BLOCK_GRANULES, LANES, TileConfig
from hw.tile.isa import AppendInstruction, AttendInstruction, SinkInstruction, WeightRange
from hw.tile.issue import Job
from hw.tile.unpack import blocks_layout
from hw.vector.append import KvAppender, MemoryWrite
from hw.vector.attention import AttentionEngine
from hw.vector.leaves import PAGES, AttentionSize
from hw.vector.slice_control import SinkLogit
from hw.vector.unit import Fetch, load_layout

__all__ = ["MEMORY_AXI", "AppendPath", "AttentionPath", "MemoryWriter", "SinkPath", "attention_size"]

MEMORY_AXI = Axi4Signature(address_width=40, data_width=256, id_width=4)
"""The tile's port for single granules of its memory."""


def attention_size(config: TileConfig) -> AttentionSize:
    """The build of the engine. Raises ValueError for a tile that cannot have it."""
    levels = config.attention_leaves.bit_length() - 1
    groups, buffer = config.attention_channels // 32, config.attention_leaf_buffer
    return AttentionSize(config, config.attention_rows, groups, levels, leaf_buffer=buffer)


class AttentionPath(wiring.Component):
    """The attention engine as an instruction: its rows go to the vector memory.

    Parameters
    ----------
    config: the tile; it has an attention engine.

    Interface attributes
    --------------------
    attend: what to do; taken when its last row has been taken.
    pages_enable, pages_address, pages_data: an entry of the page table.
    sink_enable, sink: a sink logit.
    ranges, granules, jobs, blocks, array: as those of `AttentionEngine`.
    rows: granules for the vector memory.
    error: the command that has been taken was refused; valid with `attend.ready`.
    """

    def __init__(self, config: TileConfig):
        self.config = config
        super().__init__(
            {
                "attend": In(stream.Signature(AttendInstruction)),
                "pages_enable": In(1),
                "pages_address": In(range(PAGES)),
                "pages_data": In(32),
                "sink_enable": In(1),
                "sink": In(SinkLogit),
                "ranges": Out(stream.Signature(WeightRange)),
                "granules": In(stream.Signature(256)),
                "jobs": Out(stream.Signature(Job)),
                "blocks": Out(stream.Signature(blocks_layout(attention_size(config).at_once))),
                "array": In(LocalSignature(config)),
                "rows": Out(stream.Signature(load_layout(LANES))),
                "error": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.engine = engine = AttentionEngine(attention_size(self.config))
        for name in ("ranges", "granules", "jobs", "blocks"):
            wiring.connect(m, wiring.flipped(getattr(self, name)), getattr(engine, name))
        wiring.connect(m, wiring.flipped(self.array), engine.array)
        attend, begun, count = self.attend, Signal(), Signal(16)
        m.d.comb += [
            engine.pages_enable.eq(self.pages_enable),
            engine.pages_address.eq(self.pages_address),
            engine.pages_data.eq(self.pages_data),
            engine.sink_enable.eq(self.sink_enable),
            engine.sink.eq(self.sink),
            engine.command.payload.eq(attend.payload.command),
            engine.command.valid.eq(attend.valid & ~begun),
            attend.ready.eq(begun & ~engine.busy),
            self.rows.valid.eq(engine.output.valid),
            self.rows.payload.address.eq(attend.payload.result + count),
            self.rows.payload.elements.eq(engine.output.payload.elements),
            engine.output.ready.eq(self.rows.ready),
            self.error.eq(engine.error),
        ]
        with m.If(engine.command.valid & engine.command.ready):
            m.d.sync += begun.eq(1)
        with m.If(engine.output.valid & engine.output.ready):
            m.d.sync += count.eq(count + 1)
        with m.If(attend.valid & attend.ready):
            m.d.sync += [begun.eq(0), count.eq(0)]
        return m


class AppendPath(wiring.Component):
    """Rows of the vector memory through the appender.

    Parameters
    ----------
    config: the tile; it has an attention engine.

    Interface attributes
    --------------------
    append: what to do; taken when its last write has been taken.
    pages_enable, pages_address, pages_data: an entry of the page table.
    address, data: a read port of the vector memory: data one cycle after the address.
    writes: granules for the tile's memory.
    """

    def __init__(self, config: TileConfig):
        self.config = config
        super().__init__(
            {
                "append": In(stream.Signature(AppendInstruction)),
                "pages_enable": In(1),
                "pages_address": In(range(PAGES)),
                "pages_data": In(32),
                "address": Out(16),
                "data": In(data.ArrayLayout(32, LANES)),
                "writes": Out(stream.Signature(MemoryWrite)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.appender = appender = KvAppender(attention_size(self.config))
        m.submodules.fetch = fetch = once(Fetch(LANES), f"vector_fetch_{LANES}")
        wiring.connect(m, wiring.flipped(self.writes), appender.writes)
        wiring.connect(m, fetch.o, appender.values)
        append, token, row, fetched = self.append.payload, self.append.payload.token, Signal(13), Signal()
        wanted = fetch.command.payload
        m.d.comb += [
            appender.pages_enable.eq(self.pages_enable),
            appender.pages_address.eq(self.pages_address),
            appender.pages_data.eq(self.pages_data),
            self.address.eq(fetch.address),
            fetch.data.eq(self.data),
            fetch.command.valid.eq(self.append.valid & ~fetched),
            wanted.address.eq(append.source),
            wanted.stride.eq(append.source_stride),
            wanted.rows.eq(append.rows),
            wanted.beats.eq((token.key_blocks + token.value_groups) * BLOCK_GRANULES),
            appender.command.payload.eq(token),
            appender.command.payload.position.eq(token.position + row),
            appender.command.valid.eq(self.append.valid & (row != append.rows)),
            self.append.ready.eq((row == append.rows) & ~appender.busy),
        ]
        with m.If(token.latent):
            m.d.comb += wanted.beats.eq(token.key_blocks * BLOCK_GRANULES)
        with m.If(fetch.command.valid & fetch.command.ready):
            m.d.sync += fetched.eq(1)
        with m.If(appender.command.valid & appender.command.ready):
            m.d.sync += row.eq(row + 1)
        with m.If(self.append.valid & self.append.ready):
            m.d.sync += [row.eq(0), fetched.eq(0)]
        return m


class SinkPath(wiring.Component):
    """Sink logits from the vector memory to the attention engine, one a cycle.

    Parameters
    ----------
    config: the tile; it has an attention engine.

    Interface attributes
    --------------------
    command: what to do; taken when its last logit has been written.
    address, data: a read port of the vector memory: data one cycle after the address.
    sink_enable, sink: a sink logit.
    """

    def __init__(self, config: TileConfig):
        self.config = config
        super().__init__(
            {
                "command": In(stream.Signature(SinkInstruction)),
                "address": Out(16),
                "data": In(data.ArrayLayout(32, LANES)),
                "sink_enable": Out(1),
                "sink": Out(SinkLogit),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        command, lanes = self.command.payload, LANES.bit_length() - 1
        head, row, step = Signal(8), Signal(8), Signal()  # of the logit that is read
        place, lane = Signal(SinkLogit), Signal(lanes)  # of the one that is written
        m.d.comb += [
            step.eq(self.command.valid & (row != command.rows)),
            self.address.eq(command.source + head[lanes:]),
            self.sink.eq(place),
            self.sink.logit.eq(self.data[lane]),
            self.command.ready.eq((row == command.rows) & ~self.sink_enable),
        ]
        m.d.sync += [self.sink_enable.eq(step), lane.eq(head[:lanes])]
        with m.If(step):
            m.d.sync += [head.eq(Mux(head + 1 == command.group, 0, head + 1)), row.eq(row + 1)]
            m.d.sync += [place.slot.eq(command.slot), place.slice.eq(place.slice + 1)]
            with m.If(row == 0):
                m.d.sync += [place.slice.eq(0), place.pass_.eq(0)]
            with m.Elif(place.slice == self.config.rows - 1):
                m.d.sync += [place.slice.eq(0), place.pass_.eq(place.pass_ + 1)]
        with m.If(self.command.valid & self.command.ready):
            m.d.sync += [row.eq(0), head.eq(0)]
        return m


class MemoryWriter(wiring.Component):
    """Single granules over AXI4, one a burst, all under one ID.

    Interface attributes
    --------------------
    i: granules with their byte strobes; a queue stands between them and the memory.
    axi: the memory.
    idle: every write has been answered.
    failed: the answer in this cycle is an error.
    """

    def __init__(self) -> None:
        ports = {"i": In(stream.Signature(MemoryWrite)), "axi": Out(MEMORY_AXI), "idle": Out(1), "failed": Out(1)}
        super().__init__(ports)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.queue = queue = StreamFifo(MemoryWrite, 4)
        wiring.connect(m, wiring.flipped(self.i), queue.i)
        waiting = queue.o
        axi, write = self.axi, waiting.payload
        open_, sent_address, sent_data = Signal(8), Signal(), Signal()
        done, room = Signal(), Signal()
        m.d.comb += [
            room.eq(open_ != 255),
            axi.awaddr.eq(write.address << 5),
            axi.awsize.eq(5),
            axi.awburst.eq(Burst.INCR),
            axi.awvalid.eq(waiting.valid & room & ~sent_address),
            axi.wdata.eq(write.data),
            axi.wstrb.eq(write.strobe),
            axi.wlast.eq(1),
            axi.wvalid.eq(waiting.valid & room & ~sent_data),
            axi.bready.eq(1),
            axi.rready.eq(1),
            done.eq(waiting.valid & room & (sent_address | axi.awready) & (sent_data | axi.wready)),
            waiting.ready.eq(done),
            self.failed.eq(axi.bvalid & (axi.bresp != Response.OKAY)),
            self.idle.eq((open_ == 0) & ~waiting.valid & ~self.i.valid),
        ]
        m.d.sync += [
            sent_address.eq(~done & (sent_address | (axi.awvalid & axi.awready))),
            sent_data.eq(~done & (sent_data | (axi.wvalid & axi.wready))),
            open_.eq(open_ + done - axi.bvalid),
        ]
        return m
