"""The attention engine on an array: what a tile has of attention, without its program and its network."""

from amaranth.hdl import Module, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.tile.array import Array
from hw.tile.collect import WeightCollector
from hw.tile.config import LANES
from hw.tile.isa import Block, WeightRange
from hw.tile.issue import IssueStalls
from hw.vector.append import AppendCommand, KvAppender, MemoryWrite
from hw.vector.attention import AttentionEngine, VectorBusy
from hw.vector.engine import result_layout
from hw.vector.leaves import PAGES, AttentionCommand, AttentionSize
from hw.vector.slice_control import SinkLogit

__all__ = ["ActivationWrite", "AttentionTile"]


class ActivationWrite(data.Struct):
    """A block for the array's activation memories."""

    row: unsigned(6)
    address: unsigned(16)
    block: Block


class AttentionTile(wiring.Component):
    """`AttentionEngine`, the tile's weight collector and the tile's `Array`, connected; beside them a `KvAppender`.

    Parameters
    ----------
    size: as for `AttentionEngine`.

    Interface attributes
    --------------------
    command, pages_enable, pages_address, pages_data, sink_enable, sink, ranges, granules, output, busy, vector, error:
        as there.
    append, append_values, writes, appending: the appender's command, values, writes and busy.
    query: quantised query rows for the activation memories; waits while the engine writes softmax weights.
    issuing, block_dots, stalls: the array's, for counting.
    unsupported: the array met a format that is not in the build.
    """

    def __init__(self, size: AttentionSize):
        self.size = size
        super().__init__(
            {
                "command": In(stream.Signature(AttentionCommand)),
                "pages_enable": In(1),
                "pages_address": In(range(PAGES)),
                "pages_data": In(32),
                "sink_enable": In(1),
                "sink": In(SinkLogit),
                "append": In(stream.Signature(AppendCommand)),
                "append_values": In(stream.Signature(data.ArrayLayout(32, LANES))),
                "writes": Out(stream.Signature(MemoryWrite)),
                "appending": Out(1),
                "query": In(stream.Signature(ActivationWrite)),
                "ranges": Out(stream.Signature(WeightRange)),
                "granules": In(stream.Signature(256)),
                "output": Out(stream.Signature(result_layout(LANES))),
                "busy": Out(1),
                "vector": Out(VectorBusy),
                "error": Out(1),
                "issuing": Out(1),
                "block_dots": Out(unsigned(16)),
                "stalls": Out(IssueStalls),
                "unsupported": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.engine = engine = AttentionEngine(self.size)
        m.submodules.collector = collector = WeightCollector(self.size.tile.columns, self.size.at_once)
        m.submodules.array = array = Array(self.size.tile)
        m.submodules.appender = appender = KvAppender(self.size)
        for name, port in (("append", "command"), ("append_values", "values")):
            wiring.connect(m, wiring.flipped(getattr(self, name)), getattr(appender, port))
        wiring.connect(m, appender.writes, wiring.flipped(self.writes))
        for name in ("command", "granules"):
            wiring.connect(m, wiring.flipped(getattr(self, name)), getattr(engine, name))
        for name in ("ranges", "output"):
            wiring.connect(m, getattr(engine, name), wiring.flipped(getattr(self, name)))
        wiring.connect(m, engine.jobs, array.jobs)
        wiring.connect(m, engine.blocks, collector.blocks)
        wiring.connect(m, collector.sets, array.sets)
        wiring.connect(m, array.local, engine.array)
        write = self.query.payload
        m.d.comb += [
            *(getattr(part, name).eq(getattr(self, name)) for part in (engine, appender) for name in
              ("pages_enable", "pages_address", "pages_data")),
            engine.sink_enable.eq(self.sink_enable),
            engine.sink.eq(self.sink),
            self.appending.eq(appender.busy),
            self.query.ready.eq(~array.local.write_enable),
            array.write_enable.eq(self.query.valid & self.query.ready),
            array.write_row.eq(write.row),
            array.write_address.eq(write.address),
            array.write_data.eq(write.block),
            *(getattr(self, name).eq(getattr(engine, name)) for name in ("busy", "vector", "error")),
            *(getattr(self, name).eq(getattr(array, name)) for name in
              ("issuing", "block_dots", "stalls", "unsupported")),
        ]  # fmt: skip
        return m
