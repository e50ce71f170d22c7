"""The device under test: a quantiser fed from a file or from its stream, and checked in hardware."""

from __future__ import annotations

from amaranth.hdl import Cat, ClockSignal, Instance, Module, ResetSignal, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw.numerics.formats import FormatSet
from hw.numerics.quantise import Quantise

LANES = 8
BEATS = 32 // LANES
RECORD = data.StructLayout(
    {
        "values": data.ArrayLayout(data.ArrayLayout(32, LANES), BEATS),
        "codes": data.ArrayLayout(8 * LANES, BEATS),
        "scale": 8,
        "format": 8,
        "padding": 16,
    }
)
RECORD_BYTES = RECORD.size // 8


class QuantiseBench(wiring.Component):
    """Interface attributes
    --------------------
    open: start reading `vectors.bin`; while `playing`, the streams of the quantiser belong to the file.
    stall: hold the input and the output, each in about half of the cycles.
    count, mismatches, first_index: beats checked, wrong beats, the first of them.
    done: the file was read and everything in it is checked.
    i_*, o_*: the quantiser's streams, when nothing is playing.
    """

    def __init__(self, formats: FormatSet):
        self._quantise = Quantise(formats, LANES)
        streams = self._quantise.signature.members
        super().__init__(
            {
                "open": In(1),
                "stall": In(1),
                "playing": In(1),
                "count": Out(32),
                "mismatches": Out(32),
                "first_index": Out(32),
                "done": Out(1),
                "i": streams["i"],
                "o": streams["o"],
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.quantise = quantise = self._quantise
        lfsr = Signal(16, init=1)
        m.d.sync += lfsr.eq(Cat(lfsr[1:], lfsr[0] ^ lfsr[2] ^ lfsr[3] ^ lfsr[5]))
        hold_in, hold_out = self.stall & lfsr[0], self.stall & lfsr[7]

        # Two readers of one file: one feeds, the other holds what is expected.
        feed, feeding, fed = self._reader(m, "feed")
        check, checking, checked = self._reader(m, "check")
        beat_in, beat_out = Signal(range(BEATS)), Signal(range(BEATS))
        take = Signal()
        with m.If(self.playing):
            m.d.comb += [
                quantise.i.valid.eq(feeding & ~hold_in),
                quantise.i.p.values.eq(feed.values[beat_in]),
                quantise.i.p.format.eq(feed.format),
                quantise.o.ready.eq(checking & ~hold_out),
                take.eq(quantise.o.valid & quantise.o.ready),
            ]
        with m.Else():
            m.d.comb += [
                quantise.i.valid.eq(self.i.valid),
                quantise.i.payload.eq(self.i.payload),
                self.i.ready.eq(quantise.i.ready),
                self.o.valid.eq(quantise.o.valid),
                self.o.payload.eq(quantise.o.payload),
                quantise.o.ready.eq(self.o.ready),
            ]
        given = quantise.i.valid & quantise.i.ready & self.playing
        m.d.comb += [
            fed.eq(~feeding | (given & (beat_in == BEATS - 1))),
            checked.eq(~checking | (take & (beat_out == BEATS - 1))),
        ]
        with m.If(given):
            m.d.sync += beat_in.eq(beat_in + 1)
        with m.If(take):
            m.d.sync += [beat_out.eq(beat_out + 1), self.count.eq(self.count + 1)]
            with m.If(
                Cat(quantise.o.p.codes.as_value(), quantise.o.p.scale) != Cat(check.codes[beat_out], check.scale)
            ):
                m.d.sync += self.mismatches.eq(self.mismatches + 1)
                with m.If(self.mismatches == 0):
                    m.d.sync += self.first_index.eq(self.count)
        with m.If(self.open):
            m.d.sync += [self.count.eq(0), self.mismatches.eq(0)]
        return m

    def _reader(self, m: Module, name: str) -> tuple[data.View, Signal, Signal]:
        """A record of the file, whether it is there, and the signal that asks for the next one."""
        record, valid, step, ended = Signal(RECORD, name=name), Signal(), Signal(), Signal()
        m.submodules[name] = Instance(
            "vector_source",
            p_BYTES=RECORD_BYTES,
            i_clk=ClockSignal(),
            i_rst=ResetSignal(),
            i_open=self.open,
            i_enable=step,
            o_record=record.as_value(),
            o_valid=valid,
            o_ended=ended,
        )
        if name == "check":
            m.d.comb += self.done.eq(ended)
        return record, valid, step
