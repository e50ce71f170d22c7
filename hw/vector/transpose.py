"""32 x 32 transposer: values stored by position become blocks along the positions."""

from amaranth.hdl import Cat, Const, Module, Signal, Value
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out

from golden.formats import E8M0_BIAS
from hw.tile.isa import Block

__all__ = ["Transposer", "rotate"]

SIDE = 32


class Transposer(wiring.Component):
    """Every 32 granules (position t, 32 channels) become 32 blocks (channel c, 32 positions) with a scale of one.

    One granule and one block a cycle at once: two squares in 32 byte-wide memories. Byte c of position t lies in
    memory (c + t) mod 32, so that a row and a column of the square each touch every memory once.

    Interface attributes
    --------------------
    i: granules, 32 positions after each other.
    o: their blocks, channels ascending, from the cycle after the 32nd granule on.
    """

    def __init__(self) -> None:
        super().__init__({"i": In(stream.Signature(256)), "o": Out(stream.Signature(Block))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        fill, read = Signal(range(2 * SIDE)), Signal(range(2 * SIDE))  # the top bit names the square
        full = Signal(2)
        position, channel = fill[:-1], read[:-1]
        m.d.comb += [
            self.i.ready.eq(~full.bit_select(fill[-1], 1)),
            self.o.valid.eq(full.bit_select(read[-1], 1)),
            self.o.payload.scale.eq(E8M0_BIAS),
        ]
        taken, given = Signal(), Signal()
        m.d.comb += [taken.eq(self.i.valid & self.i.ready), given.eq(self.o.valid & self.o.ready)]
        skewed, column = Signal(256), Signal(256)
        # Byte c goes to memory (c + t) mod 32: a rotation by t; reading, memory b holds position (b - c) mod 32.
        m.d.comb += skewed.eq(rotate(m, self.i.payload, position, "skew"))
        for bank in range(SIDE):
            storage = memory.Memory(shape=8, depth=2 * SIDE, init=[])
            m.submodules[f"bank_{bank}"] = storage
            write, port = storage.write_port(), storage.read_port(domain="comb")
            place = Signal(5, name=f"place_{bank}")
            m.d.comb += [
                write.addr.eq(fill),
                write.data.eq(skewed.word_select(bank, 8)),
                write.en.eq(taken),
                place.eq(Const(bank, 6) - channel),
                port.addr.eq(Cat(place, read[-1])),
                column.word_select(bank, 8).eq(port.data),
            ]
        # Position t is in memory (c + t) mod 32: rotate back by c.
        back = Signal(5)
        m.d.comb += [back.eq(-channel), self.o.payload.elements.as_value().eq(rotate(m, column, back, "unskew"))]
        with m.If(taken):
            m.d.sync += fill.eq(fill + 1)
        with m.If(given):
            m.d.sync += read.eq(read + 1)
        for square in range(2):
            with m.If(taken & (fill[-1] == square) & (position == SIDE - 1)):
                m.d.sync += full[square].eq(1)
            with m.Elif(given & (read[-1] == square) & (channel == SIDE - 1)):
                m.d.sync += full[square].eq(0)
        return m


def rotate(m: Module, value: Value, places: Value, name: str) -> Signal:
    """`value` with every byte moved up by `places` bytes, around the end; bytes are a power of two."""
    for index in range((len(value) // 8).bit_length() - 1):
        bits = 8 << index
        stage = Signal(len(value), name=f"{name}_{index}")
        with m.If(places[index]):
            m.d.comb += stage.eq(Cat(value[-bits:], value[:-bits]))
        with m.Else():
            m.d.comb += stage.eq(value)
        value = stage
    return value
