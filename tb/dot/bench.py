"""The device under test: two decoders, a dot unit and an accumulate, fed and checked at one block a cycle.

Records come from a file (`vector_source.sv`) or from the ports (`direct`); each holds its expected result, which is
compared here, so that millions of blocks need no Python.
"""

from __future__ import annotations

from amaranth.hdl import Cat, ClockSignal, Instance, Module, Mux, ResetSignal, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw.emit import once
from hw.numerics.accumulate import FusedAccumulate
from hw.numerics.decode import Decode
from hw.numerics.dot import DotUnit
from hw.numerics.formats import FormatSet
from hw.numerics.pipeline import Pipeline

CODES = data.ArrayLayout(8, 32)
RECORD = data.StructLayout(
    {
        "a_codes": CODES,
        "b_codes": CODES,
        "a_scale": 32,
        "b_scale": 32,
        "a_format": 8,
        "b_format": 8,
        "padding": 16,
        "accumulator": 32,
        "expected": 32,
    }
)
RECORD_BYTES = RECORD.size // 8


class DotBench(wiring.Component):
    """Interface attributes
    --------------------
    open: start reading `vectors.bin`.
    stall: hold the pipelines in about half of the cycles.
    direct: take `record` (with `record_valid`) instead of the file.
    count, refused, mismatches: records checked, records that a decoder refused, wrong results.
    first_index, first_found: the first wrong result.
    done: the file was read and everything in it is checked.
    result, result_valid: what leaves the pipeline.
    """

    def __init__(self, formats: FormatSet):
        self.formats = formats
        super().__init__(
            {
                "open": In(1),
                "stall": In(1),
                "direct": In(1),
                "record": In(RECORD),
                "record_valid": In(1),
                "count": Out(32),
                "refused": Out(32),
                "mismatches": Out(32),
                "first_index": Out(32),
                "first_found": Out(32),
                "done": Out(1),
                "result": Out(32),
                "result_valid": Out(1),
                "enabled": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        lfsr = Signal(16, init=1)
        m.d.sync += lfsr.eq(Cat(lfsr[1:], lfsr[0] ^ lfsr[2] ^ lfsr[3] ^ lfsr[5]))
        enable = Signal()
        m.d.comb += [enable.eq(~self.stall | lfsr[0]), self.enabled.eq(enable)]

        raw, read, ended = Signal(RECORD), Signal(), Signal()
        m.submodules.source = Instance(
            "vector_source",
            p_BYTES=RECORD_BYTES,
            i_clk=ClockSignal(),
            i_rst=ResetSignal(),
            i_open=self.open,
            i_enable=enable,
            o_record=raw.as_value(),
            o_valid=read,
            o_ended=ended,
        )
        record = Signal(RECORD)
        valid = Mux(self.direct, self.record_valid, read)
        m.d.comb += record.eq(Mux(self.direct, self.record.as_value(), raw.as_value()))

        a, b, dot = Decode(self.formats, "a"), Decode(self.formats, "b"), DotUnit(self.formats)
        accumulate = FusedAccumulate(self.formats)
        first, before = a.latency, a.latency + dot.latency
        latency = before + accumulate.latency
        m.submodules.a = a = once(a, "decode_a")
        m.submodules.b = b = once(b, "decode_b")
        m.submodules.dot = dot = once(dot, "dot_unit")
        m.submodules.accumulate = accumulate = once(accumulate, "fused_accumulate")
        pipeline = Pipeline(m, enable)
        for decode, codes, scale, format in (
            (a, record.a_codes, record.a_scale, record.a_format),
            (b, record.b_codes, record.b_scale, record.b_format),
        ):
            m.d.comb += [
                decode.codes.eq(codes),
                decode.scale.eq(scale),
                decode.enable.eq(enable),
                decode.format.eq(format),
            ]
        m.d.comb += [
            dot.a.eq(a.operand),
            dot.b.eq(b.operand),
            dot.enable.eq(enable),
            accumulate.sum.eq(dot.sum),
            accumulate.enable.eq(enable),
            accumulate.accumulator.eq(pipeline.register(record.accumulator, "accumulator", before)),
            self.result.eq(accumulate.result),
        ]
        self._check(
            m,
            pipeline,
            enable,
            record,
            valid,
            ended,
            latency,
            pipeline.register(a.unsupported | b.unsupported, "refusal", latency - first),
        )
        return m

    def _check(self, m, pipeline, enable, record, valid, ended, latency, unsupported) -> None:
        expected = pipeline.register(record.expected, "expected", latency)
        left = Signal(latency + 1)  # valid bits, the newest at the bottom
        with m.If(enable):
            m.d.sync += left.eq(Cat(valid, left)[: len(left)])
        m.d.comb += self.result_valid.eq(left[latency - 1])
        m.d.comb += self.done.eq(ended & ~left.any())
        with m.If(enable & self.result_valid):
            m.d.sync += [self.count.eq(self.count + 1), self.refused.eq(self.refused + unsupported)]
            with m.If(self.result != expected):
                m.d.sync += self.mismatches.eq(self.mismatches + 1)
                with m.If(self.mismatches == 0):
                    m.d.sync += [self.first_index.eq(self.count), self.first_found.eq(self.result)]
        with m.If(self.open):
            m.d.sync += [self.count.eq(0), self.mismatches.eq(0), self.refused.eq(0), left.eq(0)]
