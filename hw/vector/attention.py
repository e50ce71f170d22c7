"""Attention on a tile's array: scores, softmax, values and merges of a command's leaves, overlapped."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.fifo import StreamFifo
from hw.numerics.formats import ElementFormat, FormatSet
from hw.numerics.quantise import Quantise
from hw.tile.config import LANES, TileConfig
from hw.tile.drain import Outgoing
from hw.tile.isa import Block, WeightRange
from hw.tile.issue import Job
from hw.vector.engine import result_layout
from hw.vector.kv import LEAF, PAGES, AttentionCommand, KvFetcher, KvUnpacker, LeafOrder, Part, ValueScales, broadcast
from hw.vector.merge import AttentionProgram, MemoryMap
from hw.vector.unit import VectorUnit, load_layout

__all__ = ["ActivationWrite", "AttentionEngine"]

FORMAT = "MXINT8"


class ActivationWrite(data.Struct):
    """A block for the array's activation memories."""

    row: unsigned(6)
    address: unsigned(16)
    block: Block


class AttentionEngine(wiring.Component):
    """Everything of attention but the array: `golden.attention.attention` of one key head and one chunk of rows.

    For every leaf the array makes scores (a job with the keys as weights), the vector unit its softmax, the quantiser
    the weights, the array the output (a job with the transposed values as weights), and the vector unit merges it. Jobs
    of scores run one leaf ahead, so that the array has work while a softmax is under way.

    Parameters
    ----------
    config: the tile; 32 must be a multiple of its columns, and `slots` at least 32 / columns.
    max_rows: most query rows of a command, at most rows * passes.
    max_value_groups: most 32-channel groups of a value.
    levels: levels of the merge tree: up to 2**levels leaves.

    Interface attributes
    --------------------
    command: queued, so that the scores of the next begin behind the last values of this one. Until a command's output
        has been sent, its query rows, page table entries and sink logits stay; the next one's go elsewhere.
    pages_enable, pages_address, pages_data: entries of the page table.
    load: beats into the vector memory, between the array's results: the sink logits (`MemoryMap.sinks`).
    ranges, granules: what to read of the KV cache, and what was read, in order.
    jobs, blocks, results: the array's jobs, its weight blocks, and what it sends.
    activations: blocks of softmax weights for the array's activation memories, from `weights_base` on; never refused.
    output: rows of the result in FP32, a beat of eight channels at a time.
    busy: a command runs or waits.
    error: a command was refused since reset: no rows, no blocks, no leaf, or more of one than the build holds. It is
        taken and does nothing; the next one runs.
    """

    def __init__(self, config: TileConfig, max_rows: int, max_value_groups: int, levels: int = 7):
        if 32 % config.columns or config.slots < 32 // config.columns:
            shown = f"{config.columns} columns and {config.slots} slots"
            raise ValueError(f"Attention needs columns that divide 32, and 32 / columns slots, not {shown}")
        most = config.rows * config.passes
        if not 1 <= max_rows <= most:
            raise ValueError(f"max_rows must be from 1 to rows * passes = {most}, not {max_rows}")
        if FORMAT not in config.formats:
            raise ValueError(f"Attention needs {FORMAT} among the tile's formats, not only {', '.join(config.formats)}")
        self.config = config
        self.map = MemoryMap(max_rows, max_value_groups, levels)
        self.weights_base = config.activation_depth - 2 * 4 * -(-max_rows // config.rows)
        if self.weights_base < 0:
            raise ValueError(f"activation_depth {config.activation_depth} does not hold the weights of {max_rows} rows")
        super().__init__(
            {
                "command": In(stream.Signature(AttentionCommand)),
                "pages_enable": In(1),
                "pages_address": In(range(PAGES)),
                "pages_data": In(32),
                "load": In(stream.Signature(load_layout(LANES))),
                "ranges": Out(stream.Signature(WeightRange)),
                "granules": In(stream.Signature(256)),
                "jobs": Out(stream.Signature(Job)),
                "blocks": Out(stream.Signature(Block)),
                "results": In(stream.Signature(Outgoing)),
                "activations": Out(stream.Signature(ActivationWrite, always_ready=True)),
                "output": Out(stream.Signature(result_layout(LANES))),
                "busy": Out(1),
                "error": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.fetcher = fetcher = KvFetcher()
        m.submodules.unpacker = unpacker = KvUnpacker()
        m.submodules.scales = scales = ValueScales()
        m.submodules.unit = unit = VectorUnit(LANES, self.map.depth, LEAF)
        m.submodules.program = program = AttentionProgram(self.map)
        wiring.connect(m, wiring.flipped(self.ranges), fetcher.o)
        wiring.connect(m, wiring.flipped(self.granules), unpacker.granules)
        wiring.connect(m, wiring.flipped(self.blocks), unpacker.blocks)
        wiring.connect(m, program.to_unit, unit.command)
        wiring.connect(m, scales.o, unit.b)

        m.submodules.issuing = issuing = LeafOrder()
        m.submodules.receiving = receiving = LeafOrder()
        users = [part.commands for part in (fetcher, unpacker, issuing, receiving, program)]
        broadcast(m, self._accepted(m), users)
        m.d.comb += [
            self.busy.eq(self.command.valid | program.busy),
            fetcher.write_enable.eq(self.pages_enable),
            fetcher.write_address.eq(self.pages_address),
            fetcher.write_data.eq(self.pages_data),
            scales.write_enable.eq(unpacker.scales_enable),
            scales.write_address.eq(unpacker.scales_address),
            scales.write_data.eq(unpacker.scales_data),
            scales.start.eq(program.scales_start),
            scales.parity.eq(program.leaf[0]),
            scales.rows.eq(program.command.rows),
            program.unit_done.eq(unit.done),
            program.unit_idle.eq(unit.idle),
        ]
        weights_ready = self._quantise(m, unit, program)
        self._issue(m, issuing, weights_ready)
        self._receive(m, receiving, unit, program)
        return m

    def _accepted(self, m: Module) -> stream.Interface:
        """The commands that can be done; the others are taken and set `error`."""
        command, map = self.command.payload, self.map
        accepted = stream.Signature(AttentionCommand).create(path=("accepted",))
        refused = Signal()
        m.d.comb += [
            refused.eq(
                (command.rows == 0)
                | (command.rows > map.max_rows)
                | (command.group == 0)
                | (command.key_blocks == 0)
                | (command.value_groups == 0)
                | (command.value_groups > map.max_value_groups)
                | (command.latent & (command.value_groups > command.key_blocks))
                | (command.first_leaf > command.last_leaf)
                | (command.last_leaf >> map.levels != 0)
            ),
            accepted.payload.eq(command),
            accepted.valid.eq(self.command.valid & ~refused),
            self.command.ready.eq(accepted.ready | refused),
        ]
        with m.If(self.command.valid & refused):
            m.d.sync += self.error.eq(1)
        return accepted

    def _quantise(self, m: Module, unit: VectorUnit, program: AttentionProgram) -> Signal:
        """Softmax weights through the quantiser to the activation memories; final rows to the output.

        Returns a pulse when the last block of a leaf was written.
        """
        config, rows = self.config, program.command.rows
        m.submodules.quantise = quantise = Quantise(FormatSet((FORMAT,)), LANES)
        m.d.comb += [
            quantise.i.payload.values.eq(unit.result.payload.elements),
            quantise.i.payload.format.eq(ElementFormat[FORMAT]),
            self.output.payload.eq(unit.result.payload),
        ]
        with m.If(program.finishing):
            m.d.comb += [self.output.valid.eq(unit.result.valid), unit.result.ready.eq(self.output.ready)]
        with m.Else():
            m.d.comb += [quantise.i.valid.eq(unit.result.valid), unit.result.ready.eq(quantise.i.ready)]

        beat, block, row, line, parity = Signal(2), Signal(2), Signal(8), Signal(16), Signal()
        array_row, done = Signal(range(max(2, config.rows))), Signal()
        gathered = Signal(3 * 64)
        write = self.activations.payload
        m.d.comb += [
            quantise.o.ready.eq(1),
            self.activations.valid.eq(quantise.o.valid & (beat == 3)),
            write.row.eq(array_row),
            write.address.eq(self.weights_base + Mux(parity, 4 * self.passes, 0) + line + block),
            write.block.elements.as_value().eq(Cat(gathered, quantise.o.payload.codes.as_value())),
            write.block.scale.eq(quantise.o.payload.scale),
            done.eq(self.activations.valid & (block == 3) & (row + 1 == rows)),
        ]
        with m.If(quantise.o.valid):
            m.d.sync += [beat.eq(beat + 1), gathered.eq(Cat(gathered[64:], quantise.o.payload.codes.as_value()))]
        with m.If(self.activations.valid):
            m.d.sync += block.eq(block + 1)
            with m.If(block == 3):
                m.d.sync += [row.eq(row + 1), array_row.eq(array_row + 1)]
                with m.If(array_row == config.rows - 1):
                    m.d.sync += [array_row.eq(0), line.eq(line + 4)]
        with m.If(done):
            m.d.sync += [row.eq(0), array_row.eq(0), line.eq(0), parity.eq(~parity)]
        return done

    @property
    def passes(self) -> int:
        """Passes of the array over the most rows."""
        return -(-self.map.max_rows // self.config.rows)

    def _issue(self, m: Module, order: LeafOrder, weights_ready: Value) -> None:
        """Jobs for the array in the order of the leaves; one of values when its softmax weights are written."""
        config, command = self.config, order.command
        m.submodules.job_queue = queue = StreamFifo(Job, 2)
        wiring.connect(m, wiring.flipped(self.jobs), queue.o)
        waiting, parity = Signal(2), Signal()  # leaves whose weights are ready; which half of their memory is next
        job, item = queue.i.payload, order.o.payload
        values = item.part == Part.VALUES
        passes = Signal(7)
        for count in range(1, self.passes + 1):
            with m.If(command.rows > (count - 1) * config.rows):
                m.d.comb += passes.eq(count)
        taken = Signal()
        m.d.comb += [
            queue.i.valid.eq(order.o.valid & (~values | (waiting != 0))),
            order.o.ready.eq(queue.i.ready & queue.i.valid),
            taken.eq(order.o.ready & order.o.valid & values),
            job.activation_format.eq(ElementFormat[FORMAT]),
            job.weight_format.eq(ElementFormat[FORMAT]),
            job.slots.eq(32 // config.columns),
            job.rows.eq(command.rows),
            job.passes.eq(passes),
        ]
        with m.If(values):
            m.d.comb += [
                job.k_blocks.eq(LEAF // 32),
                job.slot_columns.eq(command.value_groups * (32 // config.columns)),
                job.activation_base.eq(self.weights_base + Mux(parity, 4 * self.passes, 0)),
                job.result_address.eq(self.map.output(item.leaf[:2])),
                job.result_stride.eq(command.value_groups * (32 // LANES)),
            ]
        with m.Else():
            m.d.comb += [
                job.k_blocks.eq(command.key_blocks),
                job.slot_columns.eq(LEAF // config.columns),
                job.activation_base.eq(command.query_base),
                job.result_address.eq(self.map.scores(item.leaf[0])),
                job.result_stride.eq(LEAF // LANES),
            ]
        m.d.sync += waiting.eq(waiting + weights_ready - taken)
        with m.If(taken):
            m.d.sync += parity.eq(~parity)

    def _receive(self, m: Module, order: LeafOrder, unit: VectorUnit, program: AttentionProgram) -> None:
        """The array's results into the vector memory; tells the program when a leaf's part is complete."""
        command = order.command
        seen, beats = Signal(16), Signal(16)
        values = order.o.payload.part == Part.VALUES
        write = self.results.payload.write
        m.d.comb += beats.eq(Mux(values, command.value_groups * (32 // LANES), LEAF // LANES) * command.rows)
        with m.If(self.results.valid):
            m.d.comb += [
                unit.load.valid.eq(1),
                unit.load.payload.address.eq(write.address),
                unit.load.payload.elements.eq(write.data.elements.as_value()),
                self.results.ready.eq(unit.load.ready),
            ]
        with m.Else():
            m.d.comb += [
                unit.load.valid.eq(self.load.valid),
                unit.load.payload.eq(self.load.payload),
                self.load.ready.eq(unit.load.ready),
            ]
        with m.If(self.results.valid & self.results.ready):
            m.d.sync += seen.eq(seen + 1)
            with m.If(seen + 1 == beats):
                m.d.sync += seen.eq(0)
                m.d.comb += [order.o.ready.eq(1), program.scores_ready.eq(~values), program.output_ready.eq(values)]
