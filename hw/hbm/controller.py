"""The controller of one pseudo-channel: streaming port and AXI4 subordinate in front of the scheduler."""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.axi import Axi4Signature
from hw.emit import once

from .axi import AxiReadEngine, AxiWriteEngine
from .config import HbmConfig
from .core import HbmCore
from .datapath import index_of
from .interface import GRANULE_BITS, Counters, DevicePort, ErrorRecord, Request, StreamDescriptor
from .mask import lowest
from .scrub import LOST_BITS, ErrorLog, Scrubber
from .stream import StreamReader

__all__ = ["HbmController"]

AXI_ADDRESS_BITS = 40
READ_ENGINES = 4
SOURCE_BITS = 3  # tag bits that name the source: AXI read engines 0 to 3, then write engine, stream, scrubber
WRITER, STREAM, SCRUBBER = READ_ENGINES, READ_ENGINES + 1, READ_ENGINES + 2


class HbmController(wiring.Component):
    """Parameters
    ----------
    config : HbmConfig
        The pseudo-channel.
    axi_id_bits : int
        Width of the AXI IDs.

    Interface attributes
    --------------------
    descriptor : In
        Stream of `StreamDescriptor` (granule `address`, `length` in granules, `hint`). Up to `config.descriptors` wait.
    data : Out
        Stream of 256-bit granules: all descriptors' ranges, in order; byte 0 is bits 7:0.
    axi : In
        AXI4, 256-bit data, byte addresses. Ordered within an ID; IDs that differ in their low two bits may overtake
        each other in reads. No order is promised between reads and writes that are both unanswered, nor between AXI
        and the streaming port.
    device : Out
        To `HbmDevice`.
    counters : Out
        `Counters`.
    errors : Out
        Stream of `ErrorRecord`: the ECC errors found, oldest first. `lost_errors` counts those that found the log full.
    irq : Out
        High from the first uncorrectable error on, or from the `config.error_limit`-th corrected one, until
        `clear_errors`.
    """

    def __init__(self, config: HbmConfig, axi_id_bits: int = 4):
        self._config = config
        self._id_bits = axi_id_bits
        if config.prefetch << SOURCE_BITS > 1 << config.tag_bits:
            raise ValueError(
                f"tag_bits must be at least {SOURCE_BITS + config.prefetch.bit_length() - 1} for a prefetch of "
                f"{config.prefetch}, not {config.tag_bits}"
            )
        super().__init__(
            {
                "descriptor": In(stream.Signature(StreamDescriptor(config))),
                "data": Out(stream.Signature(GRANULE_BITS)),
                "axi": In(Axi4Signature(AXI_ADDRESS_BITS, GRANULE_BITS, axi_id_bits)),
                "device": Out(DevicePort(config)),
                "counters": Out(Counters),
                "errors": Out(stream.Signature(ErrorRecord(config))),
                "lost_errors": Out(LOST_BITS),
                "clear_errors": In(1),
                "irq": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        m.submodules.core = core = HbmCore(config)
        m.submodules.reader = reader = StreamReader(config, config.prefetch, config.descriptors)
        name = f"hbm_axi_read_{config.address_bits}_{self._id_bits}"
        engines = [once(AxiReadEngine(config, AXI_ADDRESS_BITS, self._id_bits), name) for _ in range(READ_ENGINES)]
        m.submodules += engines
        m.submodules.writer = writer = AxiWriteEngine(config, AXI_ADDRESS_BITS, self._id_bits)

        connect(m, core.device, flipped(self.device))
        connect(m, flipped(self.descriptor), reader.descriptor)
        connect(m, reader.data, flipped(self.data))
        m.d.comb += self.counters.eq(core.counters)
        self._read_channels(m, engines)
        self._write_channels(m, writer)
        sources = [*engines, writer, reader]
        if config.scrub_interval:
            m.submodules.scrubber = scrubber = Scrubber(config)
            sources.append(scrubber)
        self._errors(m, core, sources)
        self._share(m, core, sources)
        self._return(m, core, sources)
        return m

    def _errors(self, m: Module, core: HbmCore, sources: list) -> None:
        """Log, interrupt, and what the scrubber has to know of errors and of writes."""
        m.submodules.log = log = ErrorLog(self._config)
        response, request = core.response, core.request.payload
        connect(m, log.records, flipped(self.errors))
        m.d.comb += [
            log.valid.eq(core.response_valid), log.place.eq(response.place), log.corrected.eq(response.corrected),
            log.failed.eq(response.error), log.scrub.eq(response.tag[:SOURCE_BITS] == SCRUBBER),
            log.clear.eq(self.clear_errors), self.lost_errors.eq(log.lost), self.irq.eq(log.irq),
        ]  # fmt: skip
        for scrubber in sources[SCRUBBER:]:
            m.d.comb += [
                scrubber.fill_corrected.eq(response.corrected), scrubber.repair.eq(log.repair),
                scrubber.repair_address.eq(log.repair_address), scrubber.written_address.eq(request.address),
                scrubber.written.eq(core.request.valid & core.request.ready & request.write),
            ]  # fmt: skip

    def _read_channels(self, m: Module, engines: list) -> None:
        """AR to the engine of its ID; R from one engine until the last beat of its burst."""
        axi = self.axi
        mine = Signal(READ_ENGINES)
        m.d.comb += [mine.bit_select(axi.arid[:2], 1).eq(1), axi.arready.eq((mine & self._ready(engines)).any())]
        for k, engine in enumerate(engines):
            ar = engine.ar.payload
            m.d.comb += [
                engine.ar.valid.eq(axi.arvalid & mine[k]), ar.id.eq(axi.arid), ar.addr.eq(axi.araddr),
                ar.len.eq(axi.arlen), ar.size.eq(axi.arsize), ar.burst.eq(axi.arburst),
            ]  # fmt: skip
        held, owner, chosen = Signal(), Signal(range(READ_ENGINES)), Signal(range(READ_ENGINES))
        valid = Cat(engine.r.valid for engine in engines)
        turn = Signal(READ_ENGINES, init=1)
        rotated = valid & ~(turn - 1)
        m.d.comb += chosen.eq(Mux(held, owner, index_of(lowest(Mux(rotated.any(), rotated, valid)))))
        beats = Array(engine.r.payload.as_value() for engine in engines)
        beat = data.View(engines[0].r.payload.shape(), Signal(len(engines[0].r.payload.as_value())))
        m.d.comb += [
            beat.as_value().eq(beats[chosen]), axi.rvalid.eq(valid.bit_select(chosen, 1)), axi.rid.eq(beat.id),
            axi.rdata.eq(beat.data), axi.rresp.eq(beat.resp), axi.rlast.eq(beat.last),
        ]  # fmt: skip
        for k, engine in enumerate(engines):
            m.d.comb += engine.r.ready.eq(axi.rready & (chosen == k))
        with m.If(axi.rvalid):
            # What is shown stays shown until it is taken, and its burst until the last beat.
            m.d.sync += [held.eq(1), owner.eq(chosen)]
            with m.If(axi.rready & beat.last):
                m.d.sync += [held.eq(0), turn.eq(turn.rotate_left(1))]

    @staticmethod
    def _ready(engines: list):
        return Cat(engine.ar.ready for engine in engines)

    def _write_channels(self, m: Module, writer: AxiWriteEngine) -> None:
        axi, aw, w = self.axi, writer.aw.payload, writer.w.payload
        m.d.comb += [
            writer.aw.valid.eq(axi.awvalid), axi.awready.eq(writer.aw.ready), aw.id.eq(axi.awid),
            aw.addr.eq(axi.awaddr), aw.len.eq(axi.awlen), aw.size.eq(axi.awsize), aw.burst.eq(axi.awburst),
            writer.w.valid.eq(axi.wvalid), axi.wready.eq(writer.w.ready), w.data.eq(axi.wdata),
            w.strb.eq(axi.wstrb), w.last.eq(axi.wlast),
            axi.bvalid.eq(writer.b.valid), writer.b.ready.eq(axi.bready), axi.bid.eq(writer.b.payload.id),
            axi.bresp.eq(writer.b.payload.resp),
        ]  # fmt: skip

    def _share(self, m: Module, core: HbmCore, sources: list) -> None:
        """One request a clock: round robin, and a request once offered stays offered."""
        config, count = self._config, len(sources)
        offers, tags = [], []
        shape = Request(config)
        for k, source in enumerate(sources):
            offer = data.View(shape, Signal(shape.size, name=f"offer{k}"))
            if k in (WRITER, SCRUBBER):
                m.d.comb += [
                    offer.write.eq(source.request.payload.write), offer.address.eq(source.request.payload.address),
                    offer.tag.eq(k),
                ]  # fmt: skip
                offers.append(source.request)
            else:
                tag = Cat(Const(k, SOURCE_BITS), source.slot)
                m.d.comb += [offer.address.eq(source.read.payload), offer.tag.eq(tag)]
                if k == STREAM:
                    m.d.comb += [offer.hint.eq(source.hint), offer.last.eq(source.last)]
                offers.append(source.read)
            tags.append(offer.as_value())
        valid = Cat(offer.valid for offer in offers)
        held, owner, chosen = Signal(), Signal(count), Signal(count)
        turn = Signal(count, init=1)
        later = valid & ~(turn - 1)
        m.d.comb += [
            chosen.eq(Mux(held, owner, lowest(Mux(later.any(), later, valid)))),
            core.request.valid.eq(valid.any()),
            core.request.payload.as_value().eq(Array(tags)[index_of(chosen)]),
            core.request_data.eq(
                Mux(chosen[SCRUBBER], sources[SCRUBBER].request_data, sources[WRITER].request_data)
                if count > SCRUBBER
                else sources[WRITER].request_data
            ),
        ]
        m.d.comb += [offer.ready.eq(core.request.ready & chosen[k]) for k, offer in enumerate(offers)]
        m.d.sync += [held.eq(core.request.valid & ~core.request.ready), owner.eq(chosen)]
        with m.If(core.request.valid & core.request.ready):
            m.d.sync += turn.eq(chosen.rotate_left(1))

    @staticmethod
    def _return(m: Module, core: HbmCore, sources: list) -> None:
        """A read's data to the source in its tag."""
        response = core.response
        source = response.tag[:SOURCE_BITS]
        for k, engine in enumerate(sources):
            m.d.comb += [
                engine.fill.eq(core.response_valid & (source == k)), engine.fill_data.eq(response.data),
                engine.fill_error.eq(response.error),
            ]  # fmt: skip
            if k not in (WRITER, SCRUBBER):
                m.d.comb += engine.fill_slot.eq(response.tag[SOURCE_BITS:])
