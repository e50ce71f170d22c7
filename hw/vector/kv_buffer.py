"""The KV cache's way to the array where latent leaves are read once: their values are kept as the keys go by.

An absorbed MLA key of 576 channels has its value of 512 in it. Reading both costs nearly twice the memory's time, and
a block a cycle nearly twice the array's; so values come from a buffer, and blocks two at a time.
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from golden.formats import E8M0_BIAS
from hw.fifo import StreamFifo
from hw.tile.unpack import blocks_layout
from hw.vector.kv import SCALES, numbers, unpacker_signature
from hw.vector.leaves import LEAF, SQUARES, AttentionSize, LeafItem, Part, broadcast
from hw.vector.transpose import rotate

__all__ = ["BufferedUnpacker", "PairTransposer"]

SIDE, PAIRS = 32, 16
"""Positions and channels of a square; pairs of them."""
LEAF_PAIRS = LEAF // 2
KEYS_AHEAD = 512
"""Pairs of key blocks that the memory can be ahead of the array, while the array does values."""


class BufferedUnpacker(wiring.Component):
    """As `KvUnpacker`, but two blocks at once, and latent leaves come once: granules of keys alone.

    Three processes follow the same items, each at its own time: one takes granules, one feeds values to the transposer
    (from the granules, or of a latent leaf from the buffer), one gives blocks. A latent leaf's value is written into
    the buffer as the blocks of its keys are given, so the buffer holds two leaves: keys of the one after the next are
    given behind the values of the first.

    Parameters
    ----------
    size: the build, of which the longest value counts.

    Interface attributes
    --------------------
    items, granules, scales_enable, scales_address, scales_data: as those of `KvUnpacker`.
    blocks: for the array, in the order of its jobs; always two.
    """

    def __init__(self, size: AttentionSize):
        self.size = size
        super().__init__(unpacker_signature(2))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.transposer = transposer = PairTransposer()
        m.submodules.keys = keys = StreamFifo(data.ArrayLayout(data.StructLayout({"elements": 256, "scale": 8}), 2),
                                              KEYS_AHEAD)  # fmt: skip
        m.submodules.buffer = buffer = memory.Memory(shape=512, depth=2 * LEAF_PAIRS * self._groups, init=[])
        queues = {name: StreamFifo(LeafItem, 4) for name in ("taking", "feeding", "giving")}
        for name, queue in queues.items():
            m.submodules[name] = queue
        broadcast(m, self.items, [queue.i for queue in queues.values()])
        values = stream.Signature(512).create(path=("values",))
        kept, fed = Signal(), Signal()  # pulses: a latent leaf is in the buffer, and has been read
        self._take(m, queues["taking"].o, keys.i, values)
        self._feed(m, queues["feeding"].o, values, buffer.read_port(), transposer.i, kept, fed)
        self._give(m, queues["giving"].o, keys.o, transposer.o, buffer.write_port(), kept)
        return m

    @property
    def _groups(self) -> int:
        """Groups of channels that the buffer has room for: a power of two."""
        return 1 << (self.size.max_value_groups - 1).bit_length()

    def _take(self, m: Module, order: stream.Interface, keys: stream.Interface, values: stream.Interface) -> None:
        """Granules, in pairs, of keys into their queue and of values to whoever feeds them; scales to their places."""
        command, granules = order.payload.command, self.granules
        scales, first = Signal(data.ArrayLayout(8, 32)), Signal(256)
        head, index = Signal(3), Signal(6)  # granules of value scales seen; place in a frame (0: its scales)
        done, second = Signal(15), Signal()  # frames of keys, or pairs of values; a pair's first granule is there
        taken, granule = Signal(), numbers(m, granules.payload, command.element)
        m.d.comb += [
            taken.eq(granules.valid & granules.ready),
            self.scales_address.eq(Cat(head[:2], order.payload.sequence[: SCALES.bit_length() - 1])),
            self.scales_data.eq(granules.payload),
            values.payload.eq(Cat(first, granule)),
            keys.payload[0].elements.eq(first),
            keys.payload[1].elements.eq(granule),
            keys.payload[0].scale.eq(scales[(index - 2)[:5]]),
            keys.payload[1].scale.eq(scales[(index - 1)[:5]]),
        ]
        pair = Signal()  # the granule on offer is an element granule
        with m.If(taken & pair):
            m.d.sync += [first.eq(granule), second.eq(~second)]
        with m.If(order.valid & (order.payload.part == Part.VALUES)):
            m.d.comb += [
                pair.eq(~command.latent),
                values.valid.eq(granules.valid & second & pair),
                granules.ready.eq((~second | values.ready) & pair),
                order.ready.eq(command.latent | (taken & second & (done + 1 == command.value_groups * LEAF_PAIRS))),
            ]
            with m.If(taken & second):
                m.d.sync += done.eq(Mux(order.ready, 0, done + 1))
        with m.Elif(order.valid & (head != SQUARES)):
            m.d.comb += [granules.ready.eq(1), self.scales_enable.eq(taken)]
            with m.If(taken):
                m.d.sync += head.eq(head + 1)
        with m.Elif(order.valid & (index == 0)):
            m.d.comb += granules.ready.eq(1)
            with m.If(taken):
                m.d.sync += [scales.eq(granules.payload), index.eq(1)]
        with m.Elif(order.valid):
            m.d.comb += [
                pair.eq(1),
                keys.valid.eq(granules.valid & second),
                granules.ready.eq(~second | keys.ready),
            ]
            with m.If(taken):
                m.d.sync += index.eq(Mux(index == SIDE, 0, index + 1))
                with m.If(index == SIDE):
                    m.d.comb += order.ready.eq(done + 1 == command.key_blocks * SQUARES)
                    m.d.sync += done.eq(Mux(order.ready, 0, done + 1))
                    with m.If(order.ready):
                        m.d.sync += head.eq(0)

    def _feed(
        self, m: Module, order: stream.Interface, values: stream.Interface, read: memory.ReadPort,
        target: stream.Interface, kept: Signal, fed: Signal,
    ) -> None:  # fmt: skip
        """Values of one leaf after the other into the transposer."""
        command, of_values = order.payload.command, order.payload.part == Part.VALUES
        m.submodules.fetched = fetched = StreamFifo(512, 4)
        count, leaves, arriving, step, last = Signal(11), Signal(2), Signal(), Signal(), Signal()
        buffered = fetched.o.valid | arriving
        m.d.comb += [
            last.eq(count + 1 == command.value_groups * LEAF_PAIRS),
            step.eq(order.valid & of_values & command.latent & (leaves != 0) & (fetched.level + arriving < 4)),
            fed.eq(step & last),
            read.addr.eq(Cat(count[: len(read.addr) - 1], order.payload.sequence[0])),
            fetched.i.valid.eq(arriving),
            fetched.i.payload.eq(read.data),
            target.payload.eq(values.payload),
            order.ready.eq(~of_values | fed),
        ]
        m.d.sync += [arriving.eq(step), leaves.eq(leaves + kept - fed)]
        with m.If(buffered):
            m.d.comb += [
                target.payload.eq(fetched.o.payload),
                target.valid.eq(fetched.o.valid),
                fetched.o.ready.eq(target.ready),
            ]
        with m.Elif(order.valid & of_values & ~command.latent):
            m.d.comb += [target.valid.eq(values.valid), values.ready.eq(target.ready)]
            with m.If(values.valid & values.ready):
                m.d.comb += order.ready.eq(last)
        with m.If(step | (values.valid & values.ready)):
            m.d.sync += count.eq(Mux(last, 0, count + 1))

    def _give(
        self, m: Module, order: stream.Interface, keys: stream.Interface, values: stream.Interface,
        write: memory.WritePort, kept: Signal,
    ) -> None:  # fmt: skip
        """Blocks in the order of the array's jobs; the values among a latent leaf's keys into the buffer."""
        command, item = order.payload.command, order.payload
        pair, block, square = Signal(4), Signal(6), Signal(2)  # of keys
        count, wanted, given = Signal(12), Signal(12), Signal()
        of_values, group_bits = item.part == Part.VALUES, (self._groups - 1).bit_length()
        blocks = self.blocks.payload
        m.d.comb += [
            given.eq(self.blocks.valid & self.blocks.ready),
            wanted.eq(Mux(of_values, command.value_groups, command.key_blocks) * LEAF_PAIRS),
            blocks.two.eq(1),
            write.data.eq(Cat(keys.payload[0].elements, keys.payload[1].elements)),
            write.addr.eq(Cat(pair, square, block[:group_bits], item.sequence[0])),
            write.en.eq(given & ~of_values & command.latent & (block < command.value_groups)),
            order.ready.eq(given & (count + 1 == wanted)),
            kept.eq(order.ready & ~of_values & command.latent),
        ]
        with m.If(order.valid & of_values):
            m.d.comb += [
                blocks.block.eq(values.payload.block),
                self.blocks.valid.eq(values.valid),
                values.ready.eq(self.blocks.ready),
            ]
        with m.Elif(order.valid):
            m.d.comb += [self.blocks.valid.eq(keys.valid), keys.ready.eq(self.blocks.ready)]
            for index in range(2):
                m.d.comb += [
                    blocks.block[index].elements.as_value().eq(keys.payload[index].elements),
                    blocks.block[index].scale.eq(keys.payload[index].scale),
                ]
        with m.If(given):
            m.d.sync += count.eq(Mux(order.ready, 0, count + 1))
            with m.If(~of_values):
                m.d.sync += pair.eq(pair + 1)
                with m.If(pair == PAIRS - 1):
                    m.d.sync += block.eq(block + 1)
                    with m.If(block + 1 == command.key_blocks):
                        m.d.sync += [block.eq(0), square.eq(square + 1)]


class PairTransposer(wiring.Component):
    """As `Transposer`, two granules (positions) and two blocks (channels) a cycle.

    Even and odd positions have 32 byte-wide memories each. Byte c of pair p of positions lies in memory
    (c + 2 * p) mod 32, so that a pair of columns touches every memory once too.

    Interface attributes
    --------------------
    i: two granules; o: two blocks, from the cycle after a square's 16th pair on.
    """

    def __init__(self) -> None:
        super().__init__({"i": In(stream.Signature(512)), "o": Out(stream.Signature(blocks_layout(2)))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        fill, read = Signal(range(2 * PAIRS)), Signal(range(2 * PAIRS))  # the top bit names the square
        full, taken, given = Signal(2), Signal(), Signal()
        m.d.comb += [
            self.i.ready.eq(~full.bit_select(fill[-1], 1)),
            self.o.valid.eq(full.bit_select(read[-1], 1)),
            self.o.payload.two.eq(1),
            taken.eq(self.i.valid & self.i.ready),
            given.eq(self.o.valid & self.o.ready),
            *(block.scale.eq(E8M0_BIAS) for block in self.o.payload.block),
        ]
        for parity in range(2):
            for channel, column in enumerate(self._columns(m, parity, fill, read, taken)):
                elements = self.o.payload.block[channel].elements
                m.d.comb += [elements[2 * p + parity].eq(column.word_select(p, 8)) for p in range(PAIRS)]
        with m.If(taken):
            m.d.sync += fill.eq(fill + 1)
        with m.If(given):
            m.d.sync += read.eq(read + 1)
        for square in range(2):
            with m.If(taken & (fill[-1] == square) & (fill[:-1] == PAIRS - 1)):
                m.d.sync += full[square].eq(1)
            with m.Elif(given & (read[-1] == square) & (read[:-1] == PAIRS - 1)):
                m.d.sync += full[square].eq(0)
        return m

    def _columns(self, m: Module, parity: int, fill: Signal, read: Signal, taken: Signal) -> list[Signal]:
        """The positions of one parity: of the even and of the odd channel of the pair that is read."""
        row, position, channel = self.i.payload.word_select(parity, 256), fill[:-1], read[:-1]
        skewed = rotate(m, row, Cat(Const(0, 1), position), f"skew_{parity}")
        found = [Signal(128, name=f"found_{parity}_{odd}") for odd in range(2)]
        for bank in range(SIDE):
            storage = memory.Memory(shape=8, depth=2 * PAIRS, init=[])
            m.submodules[f"bank_{parity}_{bank}"] = storage
            write, port = storage.write_port(), storage.read_port(domain="comb")
            place = Signal(4, name=f"place_{parity}_{bank}")
            m.d.comb += [
                write.addr.eq(fill),
                write.data.eq(skewed.word_select(bank, 8)),
                write.en.eq(taken),
                place.eq(Const(bank // 2, 4) - channel),
                port.addr.eq(Cat(place, read[-1])),
                found[bank % 2].word_select(bank // 2, 8).eq(port.data),
            ]
        # Pair p of channel pair c is in memory c + p of its parity: rotate back by c.
        back = Signal(4, name=f"back_{parity}")
        m.d.comb += back.eq(-channel)
        return [rotate(m, column, back, f"unskew_{parity}_{odd}") for odd, column in enumerate(found)]
