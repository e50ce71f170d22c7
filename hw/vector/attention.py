"""Attention on a tile's array: scores, softmax, values and merges of leaves, all at the same time."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.emit import once
from hw.fifo import StreamFifo
from hw.numerics.formats import ElementFormat
from hw.tile.array import LocalSignature
from hw.tile.config import BLOCK_GRANULES, LANES
from hw.tile.isa import Block, WeightRange
from hw.tile.issue import Job
from hw.tile.unpack import blocks_layout
from hw.vector.engine import result_layout
from hw.vector.kv import SCALES, KvFetcher, KvUnpacker, ValueScales
from hw.vector.kv_buffer import BufferedUnpacker
from hw.vector.leaves import (
    LANDINGS,
    LEAF,
    PAGES,
    SQUARES,
    AttentionCommand,
    AttentionSize,
    LeafItem,
    LeafOrder,
    Part,
    broadcast,
)
from hw.vector.merge import MergeSequencer
from hw.vector.receive import Receiver
from hw.vector.schedule import SliceScheduler
from hw.vector.slice import AttentionSlice
from hw.vector.slice_control import Kind, SinkLogit

__all__ = ["AttentionEngine", "OutputSender", "VectorBusy"]


class VectorBusy(data.Struct):
    """What the slices do in this cycle: softmax, merges, or nothing."""

    softmax: unsigned(1)
    merge: unsigned(1)


class AttentionEngine(wiring.Component):
    """Everything of attention but the array: `golden.attention.attention` of one key head and one chunk of rows.

    For every leaf the array makes scores (a job with the keys as weights), the slices their softmax, the quantiser the
    weights, the array the output (a job with the transposed values as weights), and the slices merge it. Jobs of
    scores run one leaf ahead (`LeafOrder`), so the array has work while a softmax is under way, and a merge can wait
    for `LANDINGS` leaves. All of that runs on over the border of commands.

    Parameters
    ----------
    size: the build.

    Interface attributes
    --------------------
    command: queued. Until a command's output has been sent, its query rows, page table entries and sink logits stay;
        the next one's go elsewhere.
    pages_enable, pages_address, pages_data: an entry of the page table.
    sink_enable, sink: a sink logit.
    ranges, granules: what to read of the KV cache, and what was read, in order.
    jobs, blocks: the array's jobs, its weight blocks.
    array: the array's local port.
    output: rows of the result in FP32, a beat of eight channels at a time; see `AttentionCommand.partial`.
    busy: a command runs or waits; vector: what the slices do.
    error: the last command taken was refused: no rows, no blocks, no leaf, more of one than the build holds, a sink
        in a partial one, or a format that is not in the build. It does nothing; the next one runs.
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
                "ranges": Out(stream.Signature(WeightRange)),
                "granules": In(stream.Signature(256)),
                "jobs": Out(stream.Signature(Job)),
                "blocks": Out(stream.Signature(blocks_layout(size.at_once))),
                "array": In(LocalSignature(size.tile)),
                "output": Out(stream.Signature(result_layout(LANES))),
                "busy": Out(1),
                "vector": Out(VectorBusy),
                "error": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.order = order = LeafOrder()
        m.submodules.fetcher = fetcher = KvFetcher(self.size.leaf_buffer)
        m.submodules.unpacker = unpacker = BufferedUnpacker(self.size) if self.size.leaf_buffer else KvUnpacker()
        # Behind V(j - SCALES) come 2 * SCALES - 3 parts up to K(j): while it waits for its softmax, K(j) is not read.
        m.submodules.issuing = issuing = StreamFifo(LeafItem, 2 * SCALES - 4)
        m.submodules.receiver = receiver = Receiver(self.size)
        m.submodules.merge = merge = MergeSequencer(self.size)
        m.submodules.sender = sender = OutputSender(self.size)
        wiring.connect(m, wiring.flipped(self.ranges), fetcher.o)
        wiring.connect(m, wiring.flipped(self.granules), unpacker.granules)
        wiring.connect(m, wiring.flipped(self.blocks), unpacker.blocks)
        wiring.connect(m, wiring.flipped(self.output), sender.o)
        wiring.connect(m, self._accepted(m, sender), order.commands)
        broadcast(m, order.o, [fetcher.items, unpacker.items, issuing.i, receiver.items])
        m.d.comb += [
            fetcher.write_enable.eq(self.pages_enable),
            fetcher.write_address.eq(self.pages_address),
            fetcher.write_data.eq(self.pages_data),
            receiver.groups.payload.eq(self.array.groups.payload),
            receiver.groups.valid.eq(self.array.groups.valid),
            self.array.groups.ready.eq(receiver.groups.ready),
            self.array.read.eq(receiver.read),
            self.array.released.eq(receiver.released),
            merge.output_free.eq(~sender.busy),
            sender.start.eq(merge.finished),
            sender.rows.eq(merge.item.command.rows),
            sender.beats.eq(merge.item.command.value_groups * BLOCK_GRANULES + merge.item.command.partial),
        ]
        wiring.connect(m, receiver.outputs, merge.items)
        weights_ready = self._slices(m, unpacker, receiver, merge, sender)
        self._issue(m, issuing.o, weights_ready, merge.released)
        return m

    def _accepted(self, m: Module, sender: "OutputSender") -> stream.Interface:
        """The commands that can be done; the others are taken. `error` says which the last one was."""
        command, size = self.command.payload, self.size
        accepted = stream.Signature(AttentionCommand).create(path=("accepted",))
        refused, known, under_way = Signal(), Signal(), Signal(5)
        m.d.comb += [
            known.eq(Cat(command.element == ElementFormat[name] for name in size.formats).any()),
            refused.eq(
                (command.rows == 0)
                | (command.rows > size.max_rows)
                | (command.group == 0)
                | (command.key_blocks == 0)
                | (command.value_groups == 0)
                | (command.value_groups > size.max_value_groups)
                | (command.latent & (command.value_groups > command.key_blocks))
                | (command.first_leaf > command.last_leaf)
                | (command.last_leaf >> size.levels != 0)
                | (command.partial & command.sink)
                | ~known
            ),
            accepted.payload.eq(command),
            accepted.valid.eq(self.command.valid & ~refused),
            self.command.ready.eq(accepted.ready | refused),
            self.busy.eq(self.command.valid | (under_way != 0)),
        ]
        m.d.sync += under_way.eq(under_way + (accepted.valid & accepted.ready) - sender.done)
        with m.If(self.command.valid & self.command.ready):
            m.d.sync += self.error.eq(refused)
        return accepted

    def _slices(
        self, m: Module, unpacker: KvUnpacker | BufferedUnpacker, receiver: Receiver, merge: MergeSequencer, sender
    ) -> Signal:
        """One slice for each array row, and what they have in common. Returns a pulse: a leaf's weights are written."""
        size = self.size
        slices = [AttentionSlice(size) for _ in range(size.tile.rows)]
        m.submodules.scheduler = scheduler = SliceScheduler(size, slices[0].reducer.latency)
        m.submodules.scales = scales = ValueScales(size.lanes)
        m.submodules.softmax = softmax = StreamFifo(LeafItem, 2)
        m.submodules.writing = writing = StreamFifo(LeafItem, 4)
        broadcast(m, receiver.scores, [softmax.i, writing.i])
        wiring.connect(m, merge.operations, scheduler.merge)
        work, item = scheduler.softmax, softmax.o.payload
        m.d.comb += [
            work.valid.eq(softmax.o.valid),
            softmax.o.ready.eq(work.ready),
            work.payload.kind.eq(Kind.WEIGHTS),
            work.payload.passes.eq(self._passes(item.command)),
            work.payload.beats.eq(LEAF // size.lanes),
            work.payload.left.index.eq(item.sequence),
            work.payload.element.eq(item.command.element),
            merge.merged.eq(scheduler.merged),
            self.vector.as_value().eq(scheduler.busy),
            scales.write_enable.eq(unpacker.scales_enable),
            scales.write_address.eq(unpacker.scales_address),
            scales.write_data.eq(unpacker.scales_data),
            scales.leaf.eq(scheduler.issue.left.index),
            scales.beat.eq(scheduler.issue.beat),
        ]
        for index, component in enumerate(slices):
            slices[index] = part = once(component, f"attention_slice_{size.key}")
            m.submodules[f"slice_{index}"] = part
            m.d.comb += [
                part.index.eq(index),
                part.values.eq(self.array.values[index]),
                part.arrival.eq(receiver.arrival),
                *(getattr(part, name).eq(getattr(scheduler, name)) for name in
                  ("issue", "operate", "middle", "late", "summed")),
                part.scales.eq(scales.scales),
                part.sink_enable.eq(self.sink_enable),
                part.sink.eq(self.sink),
                part.row_address.eq(sender.address),
            ]  # fmt: skip
            block = Signal(Block, name=f"block_{index}")
            m.d.sync += block.eq(part.block)
            m.d.comb += self.array.write_data[index].eq(block)
        with m.Switch(sender.slice):
            for index, part in enumerate(slices):
                with m.Case(index):
                    m.d.comb += sender.data.eq(part.row)
        block_valid = Signal()
        m.d.sync += block_valid.eq(slices[0].block_valid)
        return self._write(m, block_valid, writing.o)

    def _passes(self, command: AttentionCommand) -> Value:
        return (command.rows + self.size.tile.rows - 1) // self.size.tile.rows

    def _write(self, m: Module, block_valid: Value, leaf: stream.Interface) -> Signal:
        """Blocks of softmax weights into all rows' memories. Returns a pulse with the last one of a leaf."""
        size, item = self.size, leaf.payload
        block, pass_, done = Signal(2), Signal(8), Signal()
        m.d.comb += [
            self.array.write_enable.eq(block_valid),
            self.array.write_address.eq(
                size.weights_base + Mux(item.sequence[0], SQUARES * size.passes, 0) + pass_ * SQUARES + block
            ),
            done.eq(block_valid & (block == SQUARES - 1) & (pass_ + 1 == self._passes(item.command))),
            leaf.ready.eq(done),
        ]
        with m.If(block_valid):
            m.d.sync += block.eq(block + 1)
            with m.If(block == SQUARES - 1):
                m.d.sync += pass_.eq(Mux(done, 0, pass_ + 1))
        return done

    def _issue(self, m: Module, leaf: stream.Interface, weights_ready: Signal, released: Value) -> None:
        """Jobs for the array; one of values when its softmax weights are written and its output has a place."""
        tile, size = self.size.tile, self.size
        m.submodules.job_queue = queue = StreamFifo(Job, 2)
        wiring.connect(m, wiring.flipped(self.jobs), queue.o)
        waiting, landed = Signal(3), Signal(range(LANDINGS + 1))  # leaves: weights written; outputs that have a place
        job, item = queue.i.payload, leaf.payload
        command, values, taken = item.command, item.part == Part.VALUES, Signal()
        m.d.comb += [
            queue.i.valid.eq(leaf.valid & (~values | ((waiting != 0) & (landed != LANDINGS)))),
            leaf.ready.eq(queue.i.ready & queue.i.valid),
            taken.eq(leaf.ready & values),
            job.local.eq(1),
            job.activation_format.eq(command.element),
            job.weight_format.eq(command.element),
            job.slots.eq(32 // tile.columns),
            job.rows.eq(command.rows),
            job.passes.eq(self._passes(command)),
        ]
        with m.If(values):
            m.d.comb += [
                job.k_blocks.eq(SQUARES),
                job.slot_columns.eq(command.value_groups * (32 // tile.columns)),
                job.activation_base.eq(size.weights_base + Mux(item.sequence[0], SQUARES * size.passes, 0)),
            ]
        with m.Else():
            m.d.comb += [
                job.k_blocks.eq(command.key_blocks),
                job.slot_columns.eq(LEAF // tile.columns),
                job.activation_base.eq(command.query_base),
            ]
        m.d.sync += [waiting.eq(waiting + weights_ready - taken), landed.eq(landed + taken - released)]


class OutputSender(wiring.Component):
    """Sends finished rows out of the slices, one after the other.

    Interface attributes
    --------------------
    start, rows, beats: a pulse: so many rows of so many beats are there.
    slice, address: what to read (a slice gives it one cycle later; `slice` is delayed with it); data: what was read.
    o: the rows.
    busy: they are being read; done: a pulse with the last beat that is sent.
    """

    def __init__(self, size: AttentionSize):
        self.size = size
        super().__init__(
            {
                "start": In(1),
                "rows": In(8),
                "beats": In(7),
                "slice": Out(range(size.tile.rows)),
                "address": Out(range(size.passes * size.row_granules)),
                "data": In(data.ArrayLayout(32, LANES)),
                "o": Out(stream.Signature(result_layout(LANES))),
                "busy": Out(1),
                "done": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        size = self.size
        m.submodules.queue = queue = StreamFifo(data.StructLayout({"elements": 32 * LANES, "last": 1}), 4)
        row, beat, line, slice_ = Signal(8), Signal(7), Signal(16), Signal.like(self.slice)
        rows, beats, step, arriving, last = Signal(8), Signal(7), Signal(), Signal(), Signal()
        end = Signal()
        m.d.comb += [
            step.eq(self.busy & (queue.level + arriving < 4)),
            end.eq((beat + 1 == beats) & (row + 1 == rows)),
            self.address.eq(line + beat),
            queue.i.valid.eq(arriving),
            queue.i.payload.elements.eq(self.data.as_value()),
            queue.i.payload.last.eq(last),
            self.o.valid.eq(queue.o.valid),
            queue.o.ready.eq(self.o.ready),
            self.o.payload.elements.as_value().eq(queue.o.payload.elements),
            self.o.payload.keep.eq((1 << LANES) - 1),
            self.done.eq(queue.o.valid & queue.o.ready & queue.o.payload.last),
        ]
        m.d.sync += [arriving.eq(step), last.eq(end), self.slice.eq(slice_)]
        with m.If(self.start):
            m.d.sync += [self.busy.eq(1), rows.eq(self.rows), beats.eq(self.beats)]
        with m.If(step):
            m.d.sync += beat.eq(beat + 1)
            with m.If(beat + 1 == beats):
                m.d.sync += [beat.eq(0), row.eq(row + 1), slice_.eq(slice_ + 1)]
                with m.If(slice_ == size.tile.rows - 1):
                    m.d.sync += [slice_.eq(0), line.eq(line + size.row_granules)]
            with m.If(end):
                m.d.sync += [row.eq(0), slice_.eq(0), line.eq(0), self.busy.eq(0)]
        return m
