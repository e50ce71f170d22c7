"""The KV cache's way from memory to the array: what to read, and how it becomes blocks."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.fifo import StreamFifo
from hw.numerics.formats import ElementFormat
from hw.tile.isa import Block, WeightRange
from hw.tile.unpack import blocks_layout
from hw.vector.float32 import NAN
from hw.vector.leaves import LEAF, PAGES, SQUARES, LeafItem, Part, broadcast
from hw.vector.transpose import Transposer

__all__ = ["SCALES", "KvFetcher", "KvUnpacker", "ValueScales", "numbers", "unpacker_signature"]

SCALES = 4
"""Leaves whose value scales are kept: from the one whose softmax is next to the last one that can be read (the parts of
leaves that can wait for the array bound it, `hw.vector.attention`)."""
_LEAF_BITS = SCALES.bit_length() - 1
_SCALES_BITS = _LEAF_BITS + SQUARES.bit_length() - 1


class KvFetcher(wiring.Component):
    """Turns parts of leaves into ranges of memory.

    A leaf of one key head is `4 + 132 * key_blocks + 128 * value_groups` granules at its page's address: four granules
    of value scales (a byte for each position); for each 32 positions and each key block a granule of 32 scales and 32
    granules of elements; then, unless `latent`, for each 32 channels and each 32 positions 32 granules of values, each
    one position's 32 channels.

    Parameters
    ----------
    latent_once: the values of latent leaves are not read: `hw.vector.kv_buffer.BufferedUnpacker` keeps them.

    Interface attributes
    --------------------
    items: parts of leaves, in order.
    write_enable, write_address, write_data: an entry of the page table.
    o: ranges, in the order of the items.
    """

    def __init__(self, latent_once: bool = False) -> None:
        self.latent_once = latent_once
        super().__init__(
            {
                "items": In(stream.Signature(LeafItem)),
                "write_enable": In(1),
                "write_address": In(range(PAGES)),
                "write_data": In(32),
                "o": Out(stream.Signature(WeightRange)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.items = items = StreamFifo(LeafItem, 4)
        wiring.connect(m, wiring.flipped(self.items), items.i)
        order, command = items.o, items.o.payload.command
        m.submodules.table = table = memory.Memory(shape=32, depth=PAGES, init=[])
        write, read = table.write_port(), table.read_port(domain="comb")
        m.d.comb += [
            write.en.eq(self.write_enable),
            write.addr.eq(self.write_address),
            write.data.eq(self.write_data),
            read.addr.eq(command.table + order.payload.leaf),
        ]
        square, group, frame = Signal(2), Signal(6), Signal(8)  # of latent values: frame = square * key_blocks + group
        piece_last = Signal()
        keys = Signal(16)
        m.d.comb += [
            keys.eq(command.key_blocks * (33 * SQUARES)),
            frame.eq(square * command.key_blocks + group),
            piece_last.eq((square == SQUARES - 1) & (group == command.value_groups - 1)),
            self.o.valid.eq(order.valid),
            self.o.payload.address.eq(read.data),
            self.o.payload.length.eq(SQUARES + keys),
            order.ready.eq(self.o.ready),
        ]
        with m.If(order.payload.part == Part.VALUES):
            m.d.comb += [
                self.o.payload.address.eq(read.data + SQUARES + keys),
                self.o.payload.length.eq(command.value_groups * LEAF),
            ]
            with m.If(command.latent & self.latent_once):
                m.d.comb += [self.o.valid.eq(0), order.ready.eq(1)]
            with m.Elif(command.latent):
                m.d.comb += [
                    self.o.payload.address.eq(read.data + SQUARES + 1 + frame * 33),
                    self.o.payload.length.eq(32),
                    order.ready.eq(self.o.ready & piece_last),
                ]
                with m.If(self.o.valid & self.o.ready):
                    m.d.sync += square.eq(square + 1)
                    with m.If(square == SQUARES - 1):
                        m.d.sync += group.eq(Mux(piece_last, 0, group + 1))
        return m


def unpacker_signature(at_once: int) -> wiring.Signature:
    """Ports of an unpacker that gives so many blocks a cycle, see `KvUnpacker`."""
    return wiring.Signature(
        {
            "items": In(stream.Signature(LeafItem)),
            "granules": In(stream.Signature(256)),
            "blocks": Out(stream.Signature(blocks_layout(at_once))),
            "scales_enable": Out(1),
            "scales_address": Out(_SCALES_BITS),
            "scales_data": Out(256),
        }
    )


class KvUnpacker(wiring.Component):
    """Granules of leaves to blocks for the array: keys as they are, values through the transposer.

    Interface attributes
    --------------------
    items: parts of leaves, in order.
    granules: what the ranges of `KvFetcher` hold.
    blocks: for the array, in the order of its jobs.
    scales_enable, scales_address, scales_data: the value scales of 32 positions, for `ValueScales`.
    """

    def __init__(self) -> None:
        super().__init__(unpacker_signature(1))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.transposer = transposer = Transposer()
        # Keys that come while the last values are still in the transposer, so that the memory does not wait.
        m.submodules.keys = keys = StreamFifo(Block, 64)
        m.submodules.taking = taking = StreamFifo(LeafItem, 4)
        m.submodules.giving = giving = StreamFifo(LeafItem, 4)
        broadcast(m, self.items, [taking.i, giving.i])
        self._take(m, taking.o, keys, transposer)
        self._give(m, giving.o, keys, transposer)
        return m

    def _take(self, m: Module, order: stream.Interface, keys: StreamFifo, transposer: Transposer) -> None:
        """Granules of keys into the queue, of values into the transposer."""
        command = order.payload.command
        scales = Signal(data.ArrayLayout(8, 32))
        head, index = Signal(3), Signal(6)  # granules of value scales seen; place in a frame (0: its scales)
        done = Signal(15)  # frames of keys, or granules of values
        m.d.comb += [
            self.scales_address.eq(Cat(head[:2], order.payload.sequence[:_LEAF_BITS])),
            self.scales_data.eq(self.granules.payload),
            transposer.i.payload.eq(numbers(m, self.granules.payload, command.element)),
            keys.i.payload.elements.as_value().eq(self.granules.payload),
            keys.i.payload.scale.eq(scales[(index - 1)[:5]]),
        ]
        taken = Signal()
        m.d.comb += taken.eq(self.granules.valid & self.granules.ready)
        with m.If(order.valid & (order.payload.part == Part.VALUES)):
            m.d.comb += [transposer.i.valid.eq(self.granules.valid), self.granules.ready.eq(transposer.i.ready)]
            with m.If(taken):
                m.d.sync += done.eq(done + 1)
                with m.If(done + 1 == command.value_groups * LEAF):
                    m.d.sync += done.eq(0)
                    m.d.comb += order.ready.eq(1)
        with m.Elif(order.valid & (head != SQUARES)):
            m.d.comb += [self.granules.ready.eq(1), self.scales_enable.eq(taken)]
            with m.If(taken):
                m.d.sync += head.eq(head + 1)
        with m.Elif(order.valid & (index == 0)):
            m.d.comb += self.granules.ready.eq(1)
            with m.If(taken):
                m.d.sync += [scales.eq(self.granules.payload), index.eq(1)]
        with m.Elif(order.valid):
            m.d.comb += [keys.i.valid.eq(self.granules.valid), self.granules.ready.eq(keys.i.ready)]
            with m.If(taken):
                m.d.sync += index.eq(index + 1)
                with m.If(index == 32):
                    m.d.sync += [index.eq(0), done.eq(done + 1)]
                    with m.If(done + 1 == command.key_blocks * SQUARES):
                        m.d.sync += [done.eq(0), head.eq(0)]
                        m.d.comb += order.ready.eq(1)

    def _give(self, m: Module, order: stream.Interface, keys: StreamFifo, transposer: Transposer) -> None:
        """Blocks in the order of the array's jobs."""
        command = order.payload.command
        count, wanted = Signal(15), Signal(15)
        m.d.comb += wanted.eq(Mux(order.payload.part == Part.KEYS, command.key_blocks, command.value_groups) * LEAF)
        for part, source in ((Part.KEYS, keys.o), (Part.VALUES, transposer.o)):
            with m.If(order.valid & (order.payload.part == part)):
                m.d.comb += [
                    self.blocks.valid.eq(source.valid),
                    self.blocks.payload.block[0].eq(source.payload),
                    source.ready.eq(self.blocks.ready),
                ]
        with m.If(self.blocks.valid & self.blocks.ready):
            m.d.sync += count.eq(count + 1)
            with m.If(count + 1 == wanted):
                m.d.sync += count.eq(0)
                m.d.comb += order.ready.eq(1)


def numbers(m: Module, granule: Value, element: Value) -> Value:
    """A granule of values, with 0 in the place of codes that are no numbers.

    None was ever stored (a quantiser saturates, and a broken token has codes 0), but memory that was never written can
    hold one; its weight of zero would not make it harmless.
    """
    bytes_ = []
    for index in range(32):
        code, none = granule[8 * index : 8 * index + 8], Signal(name=f"none_{index}")
        with m.If(element == ElementFormat.E4M3):
            m.d.comb += none.eq(code[:7] == 0x7F)
        with m.Elif(element == ElementFormat.E5M2):
            m.d.comb += none.eq(code[2:7] == 0x1F)
        bytes_.append(Mux(none, 0, code))
    return Cat(bytes_)


class ValueScales(wiring.Component):
    """Keeps the value scales of `SCALES` leaves and gives them as FP32.

    Parameters
    ----------
    lanes: scales that are given at once.

    Interface attributes
    --------------------
    write_enable, write_address, write_data: 32 scales; the leaf's number modulo `SCALES`, and the square.
    leaf, beat: which leaf (as before), and which `lanes` of its 128 scales.
    scales: these, one cycle later: 2**(byte - 127), NaN for 255.
    """

    def __init__(self, lanes: int):
        self.lanes = lanes
        super().__init__(
            {
                "write_enable": In(1),
                "write_address": In(_SCALES_BITS),
                "write_data": In(256),
                "leaf": In(range(SCALES)),
                "beat": In(range(LEAF // lanes)),
                "scales": Out(data.ArrayLayout(unsigned(32), lanes)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.storage = storage = memory.Memory(shape=256, depth=SCALES * SQUARES, init=[])
        write, read = storage.write_port(), storage.read_port()
        bits = (32 // self.lanes).bit_length() - 1
        beat = Signal(bits)
        m.d.sync += beat.eq(self.beat[:bits])
        m.d.comb += [
            write.en.eq(self.write_enable),
            write.addr.eq(self.write_address),
            write.data.eq(self.write_data),
            read.addr.eq(Cat(self.beat[bits:], self.leaf)),
        ]
        codes = read.data.word_select(beat, 8 * self.lanes)
        for lane in range(self.lanes):
            code, scale = Signal(8, name=f"code_{lane}"), self.scales[lane]
            m.d.comb += [code.eq(codes[8 * lane : 8 * lane + 8]), scale.eq(code << 23)]
            with m.If(code == 0):
                m.d.comb += scale.eq(Const(1 << 22, 32))  # 2**-127 is subnormal
            with m.Elif(code == 255):
                m.d.comb += scale.eq(NAN)
        return m
