"""The KV cache's way from memory to the array: what to read, in which order, and how it becomes blocks."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, unsigned
from amaranth.lib import data, enum, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.fifo import StreamFifo
from hw.tile.isa import Block, WeightRange
from hw.vector.float32 import NAN
from hw.vector.transpose import Transposer

__all__ = ["LEAF", "AttentionCommand", "KvFetcher", "KvUnpacker", "LeafOrder", "Part", "ValueScales", "broadcast"]

LEAF = 128
SQUARES = LEAF // 32
"""Blocks of positions in a leaf."""
PAGES = 256


class AttentionCommand(data.Struct):
    """Attention of `rows` query rows of one key head over its leaves `first_leaf` .. `last_leaf`.

    Row r stands at position `position` + r // `group` and sees the positions up to its own, at most `window` of them
    (0: all). `key_blocks`: blocks of a key; `value_groups`: blocks of a value. The quantised rows are activation blocks
    from `query_base` on. Leaf j lies at the granule that entry `table` + j of the page table names. With `latent` the
    values are the keys' first blocks; with `sink` the sink logits of `sink_slot` in the vector memory take part.
    """

    rows: unsigned(8)
    group: unsigned(8)
    position: unsigned(17)
    window: unsigned(17)
    first_leaf: unsigned(10)
    last_leaf: unsigned(10)
    key_blocks: unsigned(6)
    value_groups: unsigned(6)
    query_base: unsigned(16)
    table: unsigned(8)
    latent: unsigned(1)
    sink: unsigned(1)
    sink_slot: unsigned(1)


class Part(enum.Enum, shape=1):
    """Which part of a leaf."""

    KEYS = 0
    VALUES = 1


class _Item(data.Struct):
    part: Part
    leaf: unsigned(10)


class LeafOrder(wiring.Component):
    """The order of everything: K(f), K(f+1), V(f), K(f+2), V(f+1), ... V(l): scores run one leaf ahead of values.

    It has a queue of commands, so that what uses it goes on to the next command while others finish this one.

    Interface attributes
    --------------------
    commands: in order; command: the one whose parts are given.
    o: parts, in order.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "commands": In(stream.Signature(AttentionCommand)),
                "command": Out(AttentionCommand),
                "o": Out(stream.Signature(_Item)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.queue = queue = StreamFifo(AttentionCommand, 2)
        wiring.connect(m, wiring.flipped(self.commands), queue.i)
        running, values = Signal(), Signal()
        next_keys, next_values = Signal(11), Signal(11)
        first, last = self.command.first_leaf, self.command.last_leaf
        m.d.comb += [
            self.command.eq(queue.o.payload),
            self.o.valid.eq(running),
            self.o.payload.part.eq(values),
            self.o.payload.leaf.eq(Mux(values, next_values, next_keys)),
        ]
        with m.If(~running & queue.o.valid):
            m.d.sync += [running.eq(1), values.eq(0), next_keys.eq(first), next_values.eq(first)]
        with m.Elif(running & self.o.ready):
            with m.If(values):
                m.d.sync += [next_values.eq(next_values + 1), values.eq(next_keys > last)]
                with m.If(next_values == last):
                    m.d.sync += running.eq(0)
                    m.d.comb += queue.o.ready.eq(1)
            with m.Else():
                only_one_ahead = (next_keys == first) & (first != last)
                m.d.sync += [next_keys.eq(next_keys + 1), values.eq(~only_one_ahead)]
        return m


def broadcast(m: Module, source: stream.Interface, targets: list[stream.Interface]) -> None:
    """Give every item of `source` to all `targets`, when all can take it."""
    every = Signal(name="all_ready")
    m.d.comb += [every.eq(Cat(target.ready for target in targets).all()), source.ready.eq(every)]
    m.d.comb += [target.payload.eq(source.payload) for target in targets]
    m.d.comb += [target.valid.eq(source.valid & every) for target in targets]


class KvFetcher(wiring.Component):
    """Turns the leaves of a command into ranges of memory.

    A leaf of one key head is `4 + 132 * key_blocks + 128 * value_groups` granules at its page's address: four granules
    of value scales (a byte for each position); for each 32 positions and each key block a granule of 32 scales and 32
    granules of elements; then, unless `latent`, for each 32 channels and each 32 positions 32 granules of values, each
    one position's 32 channels.

    Interface attributes
    --------------------
    commands: in order.
    write_enable, write_address, write_data: an entry of the page table.
    o: ranges, in the order of `LeafOrder`.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "commands": In(stream.Signature(AttentionCommand)),
                "write_enable": In(1),
                "write_address": In(range(PAGES)),
                "write_data": In(32),
                "o": Out(stream.Signature(WeightRange)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.order = order = LeafOrder()
        wiring.connect(m, wiring.flipped(self.commands), order.commands)
        command = order.command
        m.submodules.table = table = memory.Memory(shape=32, depth=PAGES, init=[])
        write, read = table.write_port(), table.read_port(domain="comb")
        m.d.comb += [
            write.en.eq(self.write_enable),
            write.addr.eq(self.write_address),
            write.data.eq(self.write_data),
            read.addr.eq(command.table + order.o.payload.leaf),
        ]
        square, group, frame = Signal(2), Signal(6), Signal(8)  # of latent values: frame = square * key_blocks + group
        piece_last = Signal()
        keys = Signal(16)
        m.d.comb += [
            keys.eq(command.key_blocks * (33 * SQUARES)),
            frame.eq(square * command.key_blocks + group),
            piece_last.eq((square == SQUARES - 1) & (group == command.value_groups - 1)),
            self.o.valid.eq(order.o.valid),
            self.o.payload.address.eq(read.data),
            self.o.payload.length.eq(SQUARES + keys),
            order.o.ready.eq(self.o.ready),
        ]
        with m.If(order.o.payload.part == Part.VALUES):
            m.d.comb += [
                self.o.payload.address.eq(read.data + SQUARES + keys),
                self.o.payload.length.eq(command.value_groups * LEAF),
            ]
            with m.If(command.latent):
                m.d.comb += [
                    self.o.payload.address.eq(read.data + SQUARES + 1 + frame * 33),
                    self.o.payload.length.eq(32),
                    order.o.ready.eq(self.o.ready & piece_last),
                ]
                with m.If(self.o.valid & self.o.ready):
                    m.d.sync += square.eq(square + 1)
                    with m.If(square == SQUARES - 1):
                        m.d.sync += group.eq(Mux(piece_last, 0, group + 1))
        return m


class KvUnpacker(wiring.Component):
    """Granules of leaves to blocks for the array: keys as they are, values through the transposer.

    Interface attributes
    --------------------
    commands: in order.
    granules: what the ranges of `KvFetcher` hold.
    blocks: for the array, in the order of its jobs.
    scales_enable, scales_address, scales_data: the value scales of 32 positions; the address is leaf parity and square.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "commands": In(stream.Signature(AttentionCommand)),
                "granules": In(stream.Signature(256)),
                "blocks": Out(stream.Signature(Block)),
                "scales_enable": Out(1),
                "scales_address": Out(3),
                "scales_data": Out(256),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.transposer = transposer = Transposer()
        # Keys that come while the last values are still in the transposer, so that the memory does not wait.
        m.submodules.keys = keys = StreamFifo(Block, 64)
        m.submodules.taking = taking = LeafOrder()
        m.submodules.giving = giving = LeafOrder()
        broadcast(m, self.commands, [taking.commands, giving.commands])
        self._take(m, taking, keys, transposer)
        self._give(m, giving, keys, transposer)
        return m

    def _take(self, m: Module, order: LeafOrder, keys: StreamFifo, transposer: Transposer) -> None:
        """Granules of keys into the queue, of values into the transposer."""
        command = order.command
        scales = Signal(data.ArrayLayout(8, 32))
        head, index = Signal(3), Signal(6)  # granules of value scales seen; place in a frame (0: its scales)
        done = Signal(15)  # frames of keys, or granules of values
        m.d.comb += [
            self.scales_address.eq((order.o.payload.leaf[0] << 2) | head[:2]),
            self.scales_data.eq(self.granules.payload),
            transposer.i.payload.eq(self.granules.payload),
            keys.i.payload.elements.as_value().eq(self.granules.payload),
            keys.i.payload.scale.eq(scales[(index - 1)[:5]]),
        ]
        taken = Signal()
        m.d.comb += taken.eq(self.granules.valid & self.granules.ready)
        with m.If(order.o.valid & (order.o.payload.part == Part.VALUES)):
            m.d.comb += [transposer.i.valid.eq(self.granules.valid), self.granules.ready.eq(transposer.i.ready)]
            with m.If(taken):
                m.d.sync += done.eq(done + 1)
                with m.If(done + 1 == command.value_groups * LEAF):
                    m.d.sync += done.eq(0)
                    m.d.comb += order.o.ready.eq(1)
        with m.Elif(order.o.valid & (head != SQUARES)):
            m.d.comb += [self.granules.ready.eq(1), self.scales_enable.eq(taken)]
            with m.If(taken):
                m.d.sync += head.eq(head + 1)
        with m.Elif(order.o.valid & (index == 0)):
            m.d.comb += self.granules.ready.eq(1)
            with m.If(taken):
                m.d.sync += [scales.eq(self.granules.payload), index.eq(1)]
        with m.Elif(order.o.valid):
            m.d.comb += [keys.i.valid.eq(self.granules.valid), self.granules.ready.eq(keys.i.ready)]
            with m.If(taken):
                m.d.sync += index.eq(index + 1)
                with m.If(index == 32):
                    m.d.sync += [index.eq(0), done.eq(done + 1)]
                    with m.If(done + 1 == command.key_blocks * SQUARES):
                        m.d.sync += [done.eq(0), head.eq(0)]
                        m.d.comb += order.o.ready.eq(1)

    def _give(self, m: Module, order: LeafOrder, keys: StreamFifo, transposer: Transposer) -> None:
        """Blocks in the order of the array's jobs."""
        command = order.command
        count, wanted = Signal(15), Signal(15)
        m.d.comb += wanted.eq(Mux(order.o.payload.part == Part.KEYS, command.key_blocks, command.value_groups) * LEAF)
        for part, source in ((Part.KEYS, keys.o), (Part.VALUES, transposer.o)):
            with m.If(order.o.valid & (order.o.payload.part == part)):
                m.d.comb += [
                    self.blocks.valid.eq(source.valid),
                    self.blocks.payload.eq(source.payload),
                    source.ready.eq(self.blocks.ready),
                ]
        with m.If(self.blocks.valid & self.blocks.ready):
            m.d.sync += count.eq(count + 1)
            with m.If(count + 1 == wanted):
                m.d.sync += count.eq(0)
                m.d.comb += order.o.ready.eq(1)


class ValueScales(wiring.Component):
    """Keeps the value scales of two leaves and gives them as FP32 beats: the row of one leaf, `rows` times.

    Interface attributes
    --------------------
    write_enable, write_address, write_data: 32 scales; leaf parity and square.
    start, parity, rows: a pulse: give this leaf's scales for `rows` rows.
    o: beats of eight scales.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "write_enable": In(1),
                "write_address": In(3),
                "write_data": In(256),
                "start": In(1),
                "parity": In(1),
                "rows": In(8),
                "o": Out(stream.Signature(data.ArrayLayout(unsigned(32), 8))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.storage = storage = memory.Memory(shape=256, depth=8, init=[])
        write, read = storage.write_port(), storage.read_port(domain="comb")
        beat, left, leaf = Signal(4), Signal(8), Signal()
        m.d.comb += [
            write.en.eq(self.write_enable),
            write.addr.eq(self.write_address),
            write.data.eq(self.write_data),
            read.addr.eq((leaf << 2) | beat[2:]),
            self.o.valid.eq(left != 0),
        ]
        eight = read.data.word_select(beat[:2], 64)
        for lane in range(8):
            scale = Signal(8, name=f"scale_{lane}")
            element = self.o.payload[lane]
            m.d.comb += [scale.eq(eight[8 * lane : 8 * lane + 8]), element.eq(scale << 23)]
            with m.If(scale == 0):
                m.d.comb += element.eq(Const(1 << 22, 32))  # 2**-127 is subnormal
            with m.Elif(scale == 255):
                m.d.comb += element.eq(NAN)
        with m.If(self.start):
            m.d.sync += [beat.eq(0), left.eq(self.rows), leaf.eq(self.parity)]
        with m.Elif(self.o.valid & self.o.ready):
            m.d.sync += beat.eq(beat + 1)
            with m.If(beat == 15):
                m.d.sync += left.eq(left - 1)
        return m
