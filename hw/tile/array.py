"""The array: rows of block-dot units under one issue engine, with its weights and its results."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.emit import once
from hw.numerics.accumulate import FusedAccumulate
from hw.numerics.decode import Decode
from hw.numerics.formats import FormatSet
from hw.numerics.pipeline import Pipeline
from hw.tile.config import TileConfig
from hw.tile.drain import DrainEngine, Outgoing
from hw.tile.isa import Block, Counters
from hw.tile.issue import BANKS, IssueEngine, IssueStalls, Job, accumulator_address_width, group_layout
from hw.tile.row import ArrayRow

__all__ = ["Array", "LocalSignature"]

_TO_DECODER = 2
"""Cycles from an issue to its undecoded operands: the issue register, the activation memory."""


class LocalSignature(wiring.Signature):
    """What a neighbour of the array uses: all rows' sums at once, and a block into every row's memory at once.

    Interface attributes
    --------------------
    groups: finished groups of `local` jobs; taken when all of it was read.
    read: accumulator address; values: the sums there of every row, one cycle later.
    released: bit b: bank b has been read (one cycle).
    write_enable, write_address, write_data: a block for each row; goes before the array's other write port, which
        must not be used in this cycle.
    """

    def __init__(self, config: TileConfig):
        super().__init__(
            {
                "groups": Out(stream.Signature(group_layout())),
                "read": In(accumulator_address_width(config)),
                "values": Out(data.ArrayLayout(data.ArrayLayout(32, config.columns), config.rows)),
                "released": In(BANKS),
                "write_enable": In(1),
                "write_address": In(range(config.activation_depth)),
                "write_data": In(data.ArrayLayout(Block, config.rows)),
            }
        )


class Array(wiring.Component):
    """`rows` x `columns` block-dot units that run matrix products back to back.

    Parameters
    ----------
    config: the tile.

    Interface attributes
    --------------------
    jobs: matrix products, in order; their activations are in the memory.
    sets: weight blocks, `columns` at a time, in the order of the jobs' loop nests.
    write_enable, write_row, write_address, write_data: an activation block into a row's memory.
    counters: the tile's counters, of which each finished group keeps a snapshot for its record.
    o: results and records.
    local: see `LocalSignature`.
    stalls, block_dots, issuing: for the counters.
    busy: a job is under way or results wait to be sent.
    unsupported: a block's format is not in the build (its results are NaN).
    """

    def __init__(self, config: TileConfig):
        self.config = config
        self.formats = FormatSet(config.formats)
        self._rows = [ArrayRow(config, self.formats) for _ in range(config.rows)]
        self.operand_latency = _TO_DECODER + self._rows[0].decode_latency
        super().__init__(
            {
                "jobs": In(stream.Signature(Job)),
                "sets": In(stream.Signature(data.ArrayLayout(Block, config.columns))),
                "write_enable": In(1),
                "write_row": In(range(max(2, config.rows))),
                "write_address": In(range(config.activation_depth)),
                "write_data": In(Block),
                "counters": In(Counters),
                "o": Out(stream.Signature(Outgoing)),
                "local": Out(LocalSignature(config)),
                "stalls": Out(IssueStalls),
                "block_dots": Out(range(config.rows * config.columns + 1)),
                "issuing": Out(1),
                "busy": Out(1),
                "unsupported": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        dot_latency, accumulate_latency = self._rows[0].dot_latency, FusedAccumulate.latency
        to_result = self.operand_latency + dot_latency + accumulate_latency
        m.submodules.engine = engine = IssueEngine(config, gap=accumulate_latency + 2, latency=to_result)
        m.submodules.drain = drain = DrainEngine(config)
        wiring.connect(m, wiring.flipped(self.jobs), engine.jobs)
        wiring.connect(m, wiring.flipped(self.o), drain.o)
        m.d.comb += [
            engine.weights.valid.eq(self.sets.valid),
            self.sets.ready.eq(engine.weights.ready),
            engine.released.eq(drain.released | self.local.released),
            self.stalls.eq(engine.stalls),
            self.block_dots.eq(engine.block_dots),
            self.issuing.eq(engine.weights.valid & ~engine.stalls.as_value().any()),
            self.busy.eq(engine.busy | drain.busy),
        ]
        self._finished(m, engine, drain)
        self._snapshots(m, engine, drain)
        self._connect_rows(m, engine, drain, dot_latency, accumulate_latency)
        return m

    def _finished(self, m: Module, engine: IssueEngine, drain: DrainEngine) -> None:
        """Finished groups to the drain engine or to the local port."""
        groups = engine.groups
        for side, target in enumerate((drain.groups, self.local.groups)):
            m.d.comb += [
                target.payload.eq(groups.payload),
                target.valid.eq(groups.valid & (groups.payload.job.local == side)),
            ]
        m.d.comb += groups.ready.eq(Mux(groups.payload.job.local, self.local.groups.ready, drain.groups.ready))

    def _snapshots(self, m: Module, engine: IssueEngine, drain: DrainEngine) -> None:
        for bank in range(BANKS):
            with m.If(engine.finished.valid & (engine.finished.payload.bank == bank)):
                m.d.sync += drain.snapshots[bank].eq(self.counters)

    def _connect_rows(self, m: Module, engine, drain, dot_latency: int, accumulate_latency: int) -> None:
        config, issue, operand_latency = self.config, engine.issue, self.operand_latency
        pipeline = Pipeline(m, 1)
        # The weight set of an issue is on `sets` one cycle before the registered issue.
        codes = pipeline.register(self.sets.payload, "weight_codes", _TO_DECODER)
        format = pipeline.register(issue.weight_format, "weight_format", _TO_DECODER - 1)
        weights = Signal(data.ArrayLayout(self.formats.operand, config.columns))
        unsupported = []
        for column in range(config.columns):
            m.submodules[f"decode_{column}"] = decode = Decode(self.formats, side="b")
            m.d.comb += [
                decode.codes.eq(codes[column].elements),
                decode.scale.eq(codes[column].scale[: self.formats.scale_bits]),
                decode.format.eq(format),
                weights[column].eq(decode.operand),
            ]
            unsupported.append(decode.unsupported)

        rows = []
        for index, component in enumerate(self._rows):
            row = once(component, f"array_row_{config.key}")
            m.submodules[f"row_{index}"] = row
            rows.append(row)
        read_delay = operand_latency - 1 + dot_latency - 1  # from the registered issue
        control = Signal.like(rows[0].accumulate)
        accumulator = pipeline.register(issue.accumulator, "read_address", read_delay)
        in_flight = Signal(read_delay + 1 + accumulate_latency)
        m.d.sync += in_flight.eq(Cat(issue.valid, in_flight))
        m.d.comb += [
            control.read.eq(accumulator),
            control.first.eq(pipeline.register(issue.first, "first", read_delay + 1)),
            control.write.eq(pipeline.register(accumulator, "write_address", 1 + accumulate_latency)),
            control.write_enable.eq(in_flight[-1]),
        ]
        for index, row in enumerate(rows):
            m.d.comb += [
                row.write_enable.eq(self.local.write_enable | (self.write_enable & (self.write_row == index))),
                row.write_address.eq(Mux(self.local.write_enable, self.local.write_address, self.write_address)),
                row.write_data.eq(Mux(self.local.write_enable, self.local.write_data[index], self.write_data)),
                row.address.eq(issue.activation),
                row.format.eq(issue.activation_format),
                row.weights.eq(weights),
                row.accumulate.eq(control),
                row.drain.eq(Mux(engine.groups.payload.job.local, self.local.read, drain.read)),
                self.local.values[index].eq(row.values),
            ]
            unsupported.append(row.unsupported)
        with m.Switch(drain.row):
            for index, row in enumerate(rows):
                with m.Case(index):
                    m.d.comb += drain.values.eq(row.values)
        m.d.comb += self.unsupported.eq(in_flight[operand_latency - 2] & Cat(unsupported).any())
