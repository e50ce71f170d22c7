"""AXI4 in front of the scheduler: bursts to granule reads and writes, and back.

INCR, WRAP and FIXED bursts, any size up to the bus, any alignment; beats in one granule share its read or its write.
An address beyond the memory is answered with DECERR; data that ECC cannot correct, or a size wider than the bus, with
SLVERR. Sources: ARM IHI 0022H, sections A3.4 (bursts) and A5.3 (ordering).
"""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.axi import Burst, Response, burst_layout, read_beat_layout, write_answer_layout, write_beat_layout
from hw.fifo import StreamFifo

from .config import HbmConfig
from .interface import GRANULE_BITS, GranuleRequest
from .stream import StreamReader

__all__ = ["AxiReadEngine", "AxiWriteEngine"]

PAGE_BITS = 12  # no burst crosses a 4 KiB boundary, so only these address bits change within one
GRANULE_SHIFT = 5


def _total(burst: data.View) -> Value:
    """Bytes of a burst, less one."""
    return (((burst.len + 1) << burst.size) - 1)[:PAGE_BITS]


def _next(offset: Value, burst: data.View) -> Value:
    """Address of the beat after the one at `offset` (both within the 4 KiB page)."""
    size = (1 << burst.size)[:8]
    following = ((offset & ~(size - 1)) + size)[:PAGE_BITS]
    total = _total(burst)
    wrapped = (offset & ~total) | (following & total)
    return Mux(burst.burst == Burst.FIXED, offset, Mux(burst.burst == Burst.WRAP, wrapped, following))[:PAGE_BITS]


def _status(burst: data.View, config: HbmConfig) -> Value:
    """Response that the address alone decides."""
    beyond = (burst.addr >> (config.address_bits + GRANULE_SHIFT)).any()
    return Mux(beyond, Response.DECERR, Mux(burst.size > GRANULE_SHIFT, Response.SLVERR, Response.OKAY))


class AxiReadEngine(wiring.Component):
    """Serves read bursts in order. Several of these, chosen by ID, are what reorders between IDs.

    Interface attributes
    --------------------
    ar : In
        Stream of `burst_layout`.
    r : Out
        Stream of `read_beat_layout`.
    read, slot, fill, fill_slot, fill_data, fill_error :
        As in `StreamReader`.
    """

    def __init__(self, config: HbmConfig, address_bits: int, id_bits: int, depth: int = 16):
        self._config = config
        self._layout = burst_layout(address_bits, id_bits)
        self._reader = StreamReader(config, depth, 2)
        passed = ("read", "slot", "fill", "fill_slot", "fill_data", "fill_error")
        super().__init__({
            "ar": In(stream.Signature(self._layout)),
            "r": Out(stream.Signature(read_beat_layout(GRANULE_BITS, id_bits))), "busy": Out(1),
            **{name: self._reader.signature.members[name] for name in passed},
        })  # fmt: skip

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.reader = reader = self._reader
        m.submodules.bursts = bursts = StreamFifo(self._layout, 4)
        m.d.comb += [
            self.read.valid.eq(reader.read.valid), self.read.payload.eq(reader.read.payload),
            reader.read.ready.eq(self.read.ready), self.slot.eq(reader.slot), reader.fill.eq(self.fill),
            reader.fill_slot.eq(self.fill_slot), reader.fill_data.eq(self.fill_data),
            reader.fill_error.eq(self.fill_error), self.busy.eq(bursts.o.valid),
        ]  # fmt: skip
        self._request(m, reader, bursts)
        self._respond(m, reader, bursts)
        return m

    def _request(self, m: Module, reader: StreamReader, bursts: StreamFifo) -> None:
        """One descriptor for the granules of a burst, a second for what follows a wrap."""
        burst, wanted = self.ar.payload, reader.descriptor.payload
        second = Signal()  # the part after the wrap is due
        total, offset = Signal(PAGE_BITS), Signal(PAGE_BITS)
        end, base = Signal(PAGE_BITS), Signal(PAGE_BITS)
        wraps, good, accept = Signal(), Signal(), Signal()
        page = burst.addr[PAGE_BITS:] << (PAGE_BITS - GRANULE_SHIFT)
        m.d.comb += [
            offset.eq(burst.addr[:PAGE_BITS]),
            total.eq(_total(burst)),
            base.eq(Mux(burst.burst == Burst.WRAP, offset & ~total, offset & ~((1 << burst.size) - 1))),
            end.eq(Mux(burst.burst == Burst.FIXED, offset, base + total)),
            wraps.eq((burst.burst == Burst.WRAP) & (base != offset) & (total >= 1 << GRANULE_SHIFT)),
            good.eq(_status(burst, self._config) == Response.OKAY),
            reader.descriptor.valid.eq(self.ar.valid & good & bursts.i.ready),
            accept.eq(self.ar.valid & bursts.i.ready & (~good | (reader.descriptor.ready & (~wraps | second)))),
            self.ar.ready.eq(accept),
            bursts.i.valid.eq(accept),
            bursts.i.payload.eq(burst),
        ]
        first, last, start = (value >> GRANULE_SHIFT for value in (offset, end, base))
        m.d.comb += [
            wanted.address.eq(page + Mux(second, start, first)),
            wanted.length.eq(Mux(second, ((offset - 1) >> GRANULE_SHIFT) - start, last - first)[:8] + 1),
        ]
        with m.If(reader.descriptor.valid & reader.descriptor.ready):
            m.d.sync += second.eq(wraps & ~second)

    def _respond(self, m: Module, reader: StreamReader, bursts: StreamFifo) -> None:
        """Beats of the oldest burst; its granule leaves when the next beat is in another one."""
        burst, r = bursts.o.payload, self.r.payload
        beat, moved = Signal(8), Signal(PAGE_BITS)
        offset, following, status = Signal(PAGE_BITS), Signal(PAGE_BITS), Signal(Response)
        good, last = Signal(), Signal()
        m.d.comb += [
            offset.eq(Mux(beat == 0, burst.addr[:PAGE_BITS], moved)),
            following.eq(_next(offset, burst)),
            status.eq(_status(burst, self._config)),
            good.eq(status == Response.OKAY),
            last.eq(beat == burst.len),
            self.r.valid.eq(bursts.o.valid & (reader.data.valid | ~good)),
            r.id.eq(burst.id),
            r.data.eq(Mux(good, reader.data.payload, 0)),
            r.resp.eq(Mux(good & reader.error, Response.SLVERR, status)),
            r.last.eq(last),
            bursts.o.ready.eq(self.r.valid & self.r.ready & last),
            reader.data.ready.eq(
                self.r.valid & self.r.ready & good
                & (last | ((offset >> GRANULE_SHIFT) != (following >> GRANULE_SHIFT)))
            ),
        ]  # fmt: skip
        with m.If(self.r.valid & self.r.ready):
            m.d.sync += [moved.eq(following), beat.eq(Mux(last, 0, beat + 1))]


class AxiWriteEngine(wiring.Component):
    """Serves write bursts in order. Bytes for one granule gather, then go as one write; a granule that is not written
    whole is read first. A burst is answered when its last granule is in the scheduler, behind which every later
    request to that granule stays.

    Interface attributes
    --------------------
    aw, w, b : In, In, Out
        Streams of `burst_layout`, `write_beat_layout`, `write_answer_layout`.
    request : Out
        Stream of `GranuleRequest`; `request_data` with it.
    fill, fill_data, fill_error : In
        Data of the read.
    """

    def __init__(self, config: HbmConfig, address_bits: int, id_bits: int):
        self._config = config
        self._layout = burst_layout(address_bits, id_bits)
        super().__init__({
            "aw": In(stream.Signature(self._layout)),
            "w": In(stream.Signature(write_beat_layout(GRANULE_BITS))),
            "b": Out(stream.Signature(write_answer_layout(id_bits))),
            "request": Out(stream.Signature(GranuleRequest(config))),
            "request_data": Out(GRANULE_BITS),
            "fill": In(1), "fill_data": In(GRANULE_BITS), "fill_error": In(1), "busy": Out(1),
        })  # fmt: skip

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.bursts = bursts = StreamFifo(self._layout, 4)
        m.d.comb += [
            bursts.i.payload.eq(self.aw.payload),
            bursts.i.valid.eq(self.aw.valid),
            self.aw.ready.eq(bursts.i.ready),
        ]
        burst, w, request = bursts.o.payload, self.w.payload, self.request.payload
        gathered, enabled = Signal(GRANULE_BITS), Signal(GRANULE_BITS // 8)
        granule = Signal(self._config.address_bits)
        first, moved, offset, following = Signal(init=1), Signal(PAGE_BITS), Signal(PAGE_BITS), Signal(PAGE_BITS)
        status, failed = Signal(Response), Signal()
        take, leaves = Signal(), Signal()
        bytes_of = Cat(bit.replicate(8) for bit in w.strb)
        page = burst.addr[PAGE_BITS:] << (PAGE_BITS - GRANULE_SHIFT)
        m.d.comb += [
            offset.eq(Mux(first, burst.addr[:PAGE_BITS], moved)),
            following.eq(_next(offset, burst)),
            status.eq(_status(burst, self._config)),
            leaves.eq(w.last | ((offset >> GRANULE_SHIFT) != (following >> GRANULE_SHIFT))),
            self.request_data.eq(gathered),
            request.address.eq(granule),
            self.busy.eq(bursts.o.valid),
        ]
        with m.FSM():
            with m.State("GATHER"):
                m.d.comb += [self.w.ready.eq(bursts.o.valid), take.eq(self.w.valid & self.w.ready)]
                with m.If(take):
                    m.d.sync += [
                        gathered.eq((gathered & ~bytes_of) | (w.data & bytes_of)),
                        enabled.eq(enabled | w.strb),
                        granule.eq(page + (offset >> GRANULE_SHIFT)),
                        first.eq(w.last),
                        moved.eq(following),
                    ]
                    ended = Signal()
                    m.d.sync += ended.eq(w.last)
                    with m.If(leaves):
                        with m.If((status != Response.OKAY) | ~(enabled | w.strb).any()):
                            m.next = "DONE"
                        with m.Elif((enabled | w.strb).all()):
                            m.next = "WRITE"
                        with m.Else():
                            m.next = "READ"
            with m.State("READ"):
                m.d.comb += self.request.valid.eq(1)
                with m.If(self.request.ready):
                    m.next = "MERGE"
            with m.State("MERGE"):
                with m.If(self.fill):
                    keep = Cat(bit.replicate(8) for bit in enabled)
                    m.d.sync += [
                        gathered.eq((gathered & keep) | (self.fill_data & ~keep)),
                        failed.eq(failed | self.fill_error),
                    ]
                    # Data that could not be corrected must not get fresh check bits.
                    m.next = "WRITE"
                    with m.If(self.fill_error):
                        m.next = "DONE"
            with m.State("WRITE"):
                m.d.comb += [self.request.valid.eq(1), request.write.eq(1)]
                with m.If(self.request.ready):
                    m.d.sync += enabled.eq(0)
                    m.next = "GATHER"
                    with m.If(ended):
                        m.next = "DONE"
            with m.State("DONE"):
                m.d.comb += [
                    self.b.valid.eq(ended),
                    self.b.payload.id.eq(burst.id),
                    self.b.payload.resp.eq(Mux(failed, Response.SLVERR, status)),
                    bursts.o.ready.eq(ended & self.b.ready),
                ]
                with m.If(~ended | self.b.ready):
                    m.d.sync += enabled.eq(0)
                    m.next = "GATHER"
                    with m.If(ended):
                        m.d.sync += failed.eq(0)
        return m
