"""Appending to the KV cache: a token's key and value quantised and written to where the attention engine reads them."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, enum, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from golden.formats import E8M0_NAN
from hw.emit import once
from hw.fifo import StreamFifo
from hw.numerics.formats import ElementFormat, FormatSet
from hw.numerics.quantise import QuantiseLane, largest_of
from hw.tile.config import BLOCK_GRANULES, LANES
from hw.vector.leaves import LEAF, PAGES, SQUARES, AttentionSize, broadcast
from hw.vector.pipeline import delay

__all__ = ["AppendCommand", "KvAppender", "MemoryWrite"]

"""Beats of a block."""


class AppendCommand(data.Struct):
    """One token of one key head: its position, and the sizes and the page table entry of `AttentionCommand`."""

    position: unsigned(17)
    key_blocks: unsigned(6)
    value_groups: unsigned(6)
    table: unsigned(8)
    latent: unsigned(1)
    element: ElementFormat


class MemoryWrite(data.Struct):
    """A granule for the memory; `strobe` has a bit for each byte that is written."""

    address: unsigned(32)
    data: unsigned(256)
    strobe: unsigned(32)


class Run(enum.Enum, shape=2):
    """What blocks under one scale are."""

    KEY = 0
    VALUE = 1
    LATENT = 2
    """The part of a key that is the value too."""


class _Run(data.Struct):
    """Blocks that share a scale: `first` of its key or value, how many."""

    command: AppendCommand
    kind: Run
    first: unsigned(6)
    blocks: unsigned(6)
    scale: unsigned(8)


class KvAppender(wiring.Component):
    """Quantises as `golden.attention.PagedCache.append` does: keys in blocks of 32, a value under one scale.

    A beat a cycle as long as the writes are taken; a head of 64 is 16 beats and 7 writes: a granule for each 32
    elements, a byte for each scale. Of a latent key the first `value_groups` blocks share a scale, which is the
    value's.

    Parameters
    ----------
    size: the build, of which formats and the longest value count.

    Interface attributes
    --------------------
    command: tokens, in order.
    pages_enable, pages_address, pages_data: an entry of the page table.
    values: FP32 beats: the key, after RoPE, then the value (not with `latent`), for each command.
    writes: to the memory. Of one token in any order; tokens in order.
    busy: a token's writes have not all been taken. Attention that reads it must wait for that, and for the memory.
    """

    def __init__(self, size: AttentionSize):
        self.size = size
        self.formats = FormatSet(size.formats)
        super().__init__(
            {
                "command": In(stream.Signature(AppendCommand)),
                "pages_enable": In(1),
                "pages_address": In(range(PAGES)),
                "pages_data": In(32),
                "values": In(stream.Signature(data.ArrayLayout(32, LANES))),
                "writes": Out(stream.Signature(MemoryWrite)),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        beat = data.ArrayLayout(32, LANES)
        m.submodules.waiting = waiting = StreamFifo(beat, 2 * BLOCK_GRANULES * self.size.max_value_groups)
        m.submodules.quantising = quantising = StreamFifo(_Run, 4)
        m.submodules.emitting = emitting = StreamFifo(_Run, 8)
        m.submodules.granules = granules = StreamFifo(unsigned(256), 4)
        runs = stream.Signature(_Run).create(path=("runs",))
        self._collect(m, waiting.i, runs)
        broadcast(m, runs, [quantising.i, emitting.i])
        self._quantise(m, waiting.o, quantising.o, granules)
        self._emit(m, emitting.o, granules.o)
        m.d.comb += self.busy.eq(self.command.valid | emitting.o.valid)
        return m

    def _collect(self, m: Module, waiting: stream.Interface, runs: stream.Interface) -> None:
        """Beats in, and with the last one of a run its scale."""
        command = self.command.payload
        of_value, block, run_block, beat = Signal(), Signal(6), Signal(6), Signal(range(BLOCK_GRANULES))
        run = runs.payload
        latent_part = command.latent & (block < command.value_groups)
        beat_last, run_last, part_last = Signal(), Signal(), Signal()
        take, top, so_far = Signal(), Signal(8), Signal(8)
        m.d.comb += [
            run.command.eq(command),
            run.kind.eq(Mux(of_value, Run.VALUE, Mux(latent_part, Run.LATENT, Run.KEY))),
            run.blocks.eq(Mux(of_value | latent_part, command.value_groups, 1)),
            run.first.eq(block - run_block),
            beat_last.eq(beat == BLOCK_GRANULES - 1),
            run_last.eq(beat_last & (run_block + 1 == run.blocks)),
            part_last.eq(beat_last & (block + 1 == Mux(of_value, command.value_groups, command.key_blocks))),
            self.values.ready.eq(self.command.valid & waiting.ready & (runs.ready | ~run_last)),
            take.eq(self.values.valid & self.values.ready),
            waiting.valid.eq(take),
            waiting.payload.eq(self.values.payload),
            runs.valid.eq(self.values.valid & self.command.valid & waiting.ready & run_last),
            top.eq(largest_of([so_far, *(value[23:31] for value in self.values.payload)])),
            self.command.ready.eq(take & part_last & (of_value | command.latent)),
        ]
        with m.If(take):
            m.d.sync += [beat.eq(beat + 1), so_far.eq(Mux(run_last, 0, top))]
            with m.If(beat_last):
                m.d.sync += [block.eq(block + 1), run_block.eq(Mux(run_last, 0, run_block + 1))]
            with m.If(part_last):
                m.d.sync += [block.eq(0), of_value.eq(~of_value & ~command.latent)]
        m.d.comb += run.scale.eq(E8M0_NAN)
        with m.If(top != 0xFF):
            with m.Switch(command.element):
                for entry in self.formats.formats:
                    with m.Case(ElementFormat[entry.name]):
                        largest = entry.element.max_exponent
                        m.d.comb += run.scale.eq(Mux(top < largest, 0, top - largest))

    def _quantise(self, m: Module, beats: stream.Interface, runs: stream.Interface, granules: StreamFifo) -> None:
        """Codes of a run under its scale, gathered to granules."""
        run, count = runs.payload, Signal(9)
        step, issue, last = Signal(), Signal(), Signal()
        valid, scale = Signal(QuantiseLane.latency), Signal(8)
        m.d.comb += [
            step.eq(granules.i.ready),
            issue.eq(step & runs.valid & beats.valid),
            last.eq(count + 1 == run.blocks * BLOCK_GRANULES),
            beats.ready.eq(issue),
            runs.ready.eq(issue & last),
            scale.eq(delay(m, step, run.scale, QuantiseLane.latency, "late_scale")),
        ]
        with m.If(issue):
            m.d.sync += count.eq(Mux(last, 0, count + 1))
        with m.If(step):
            m.d.sync += valid.eq(Cat(issue, valid)[: len(valid)])
        codes, gathered, place = Signal(8 * LANES), Signal(256), Signal(range(BLOCK_GRANULES))
        name = "_".join(["quantise_lane", *self.formats.names]).lower()
        for index in range(LANES):
            m.submodules[f"lane_{index}"] = lane = once(QuantiseLane(self.formats), name)
            m.d.comb += [
                lane.value.eq(beats.payload[index]),
                lane.scale.eq(run.scale),
                lane.format.eq(run.command.element),
                lane.enable.eq(step),
                codes[8 * index : 8 * index + 8].eq(Mux(scale == E8M0_NAN, 0, lane.code)),
            ]
        with m.If(valid[-1] & step):
            m.d.sync += [gathered.eq(Cat(gathered[8 * LANES :], codes)), place.eq(place + 1)]
        m.d.comb += [
            granules.i.valid.eq(valid[-1] & (place == BLOCK_GRANULES - 1)),
            granules.i.payload.eq(Cat(gathered[8 * LANES :], codes)),
        ]

    def _emit(self, m: Module, runs: stream.Interface, granules: stream.Interface) -> None:
        """A write for each granule and for each scale byte."""
        run, write = runs.payload, self.writes.payload
        command, block = run.command, Signal(6)
        m.submodules.table = table = memory.Memory(shape=32, depth=PAGES, init=[])
        enter, page = table.write_port(), table.read_port(domain="comb")
        square, place = command.position[5:7], command.position[:5]
        frame, values, of_value = Signal(32), Signal(32), run.kind == Run.VALUE
        number = run.first + block
        last = block + 1 == run.blocks
        m.d.comb += [
            enter.en.eq(self.pages_enable),
            enter.addr.eq(self.pages_address),
            enter.data.eq(self.pages_data),
            page.addr.eq(command.table + command.position[7:]),
            frame.eq(page.data + SQUARES + (square * command.key_blocks + number) * 33),
            values.eq(page.data + SQUARES + command.key_blocks * (33 * SQUARES) + number * LEAF),
        ]
        with m.FSM():
            with m.State("GRANULE"):
                self._offer(m, Mux(of_value, values + command.position[:7], frame + 1 + place), granules.payload)
                m.d.comb += [self.writes.valid.eq(granules.valid & runs.valid), write.strobe.eq((1 << 32) - 1)]
                with m.If(self.writes.valid & self.writes.ready):
                    m.d.comb += granules.ready.eq(1)
                    m.next = "SCALE"
                    with m.If(of_value & ~last):
                        m.d.sync += block.eq(block + 1)
                        m.next = "GRANULE"
            with m.State("SCALE"):
                self._offer(m, Mux(of_value, page.data + square, frame), run.scale.replicate(32))
                m.d.comb += [self.writes.valid.eq(1), write.strobe.eq(1 << place)]
                with m.If(self.writes.ready):
                    m.d.sync += block.eq(Mux(last, 0, block + 1))
                    m.d.comb += runs.ready.eq(last & (run.kind != Run.LATENT))
                    m.next = "GRANULE"
                    with m.If(last & (run.kind == Run.LATENT)):
                        m.next = "LATENT_SCALE"
            with m.State("LATENT_SCALE"):
                self._offer(m, page.data + square, run.scale.replicate(32))
                m.d.comb += [self.writes.valid.eq(1), write.strobe.eq(1 << place), runs.ready.eq(self.writes.ready)]
                with m.If(self.writes.ready):
                    m.next = "GRANULE"

    def _offer(self, m: Module, address: Value, value: Value) -> None:
        m.d.comb += [self.writes.payload.address.eq(address), self.writes.payload.data.eq(value)]
