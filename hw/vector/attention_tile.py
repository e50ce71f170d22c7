"""The attention engine on an array: what a tile has of attention, without its program and its network."""

from amaranth.hdl import Module, Mux, Signal, unsigned
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.tile.array import Array
from hw.tile.collect import WeightCollector
from hw.tile.config import LANES, TileConfig
from hw.tile.isa import WeightRange
from hw.tile.issue import IssueStalls
from hw.vector.attention import ActivationWrite, AttentionEngine
from hw.vector.engine import result_layout
from hw.vector.kv import PAGES, AttentionCommand
from hw.vector.unit import load_layout

__all__ = ["AttentionTile"]


class AttentionTile(wiring.Component):
    """`AttentionEngine`, the tile's weight collector and the tile's `Array`, connected.

    Parameters
    ----------
    config, max_rows, max_value_groups, levels: as for `AttentionEngine`.

    Interface attributes
    --------------------
    command, pages_enable, pages_address, pages_data, load, ranges, granules, output, busy, error: as there.
    query: quantised query rows for the activation memories; waits while the engine writes softmax weights.
    issuing, block_dots, stalls: the array's, for counting.
    unsupported: the array met a format that is not in the build.
    """

    def __init__(self, config: TileConfig, max_rows: int, max_value_groups: int, levels: int = 7):
        self.config = config
        self.engine = AttentionEngine(config, max_rows, max_value_groups, levels)
        super().__init__(
            {
                "command": In(stream.Signature(AttentionCommand)),
                "pages_enable": In(1),
                "pages_address": In(range(PAGES)),
                "pages_data": In(32),
                "load": In(stream.Signature(load_layout(LANES))),
                "query": In(stream.Signature(ActivationWrite)),
                "ranges": Out(stream.Signature(WeightRange)),
                "granules": In(stream.Signature(256)),
                "output": Out(stream.Signature(result_layout(LANES))),
                "busy": Out(1),
                "error": Out(1),
                "issuing": Out(1),
                "block_dots": Out(unsigned(16)),
                "stalls": Out(IssueStalls),
                "unsupported": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.engine = engine = self.engine
        m.submodules.collector = collector = WeightCollector(self.config.columns)
        m.submodules.array = array = Array(self.config)
        for name in ("command", "load", "granules"):
            wiring.connect(m, wiring.flipped(getattr(self, name)), getattr(engine, name))
        for name in ("ranges", "output"):
            wiring.connect(m, getattr(engine, name), wiring.flipped(getattr(self, name)))
        wiring.connect(m, engine.jobs, array.jobs)
        m.d.comb += [
            collector.blocks.payload.block[0].eq(engine.blocks.payload),
            collector.blocks.valid.eq(engine.blocks.valid),
            engine.blocks.ready.eq(collector.blocks.ready),
        ]
        wiring.connect(m, collector.sets, array.sets)
        wiring.connect(m, array.o, engine.results)
        m.d.comb += [
            engine.pages_enable.eq(self.pages_enable),
            engine.pages_address.eq(self.pages_address),
            engine.pages_data.eq(self.pages_data),
            self.query.ready.eq(~engine.activations.valid),
            array.write_enable.eq(engine.activations.valid | self.query.valid),
            self.busy.eq(engine.busy),
            self.error.eq(engine.error),
            self.issuing.eq(array.issuing),
            self.block_dots.eq(array.block_dots),
            self.stalls.eq(array.stalls),
            self.unsupported.eq(array.unsupported),
        ]
        write = Signal(ActivationWrite)
        m.d.comb += write.eq(Mux(engine.activations.valid, engine.activations.payload, self.query.payload))
        m.d.comb += [
            array.write_row.eq(write.row),
            array.write_address.eq(write.address),
            array.write_data.eq(write.block),
        ]
        return m
