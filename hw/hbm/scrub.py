"""What becomes of ECC errors: a log with an interrupt, and scrubbing, so that single errors do not grow into double.

A granule whose error was corrected on its way to a reader is still wrong in the DRAM. The scrubber reads it again and
writes the corrected data back; between such repairs it walks through the whole memory.
"""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, unsigned
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.fifo import StreamFifo

from .address import AddressMap
from .config import HbmConfig
from .interface import GRANULE_BITS, ErrorRecord, GranuleRequest

__all__ = ["ErrorLog", "Scrubber"]

LOG_DEPTH = 8
LOST_BITS = 16


class ErrorLog(wiring.Component):
    """Remembers the first errors since it was last read out.

    Interface attributes
    --------------------
    valid, place, corrected, failed, scrub : In
        Data of a read is answered: its device bits {row, bank, column}, what ECC said, and whether the scrubber asked.
    records : Out
        Stream of `ErrorRecord`, oldest first; `LOG_DEPTH` wait.
    lost : Out
        Records that found the log full, saturating.
    repair, repair_address : Out
        A correctable error was found by another reader than the scrubber.
    irq : Out
        Level: an uncorrectable error, or `config.error_limit` corrected ones (0: never), since reset or `clear`.
    clear : In
        `irq`, `lost` and the count of corrected errors go to zero; records stay. An error of the same clock stays too.
    """

    def __init__(self, config: HbmConfig):
        self._config = config
        bits = unsigned(config.address_bits)
        super().__init__({
            "valid": In(1), "place": In(bits), "corrected": In(1), "failed": In(1), "scrub": In(1), "clear": In(1),
            "records": Out(stream.Signature(ErrorRecord(config))), "lost": Out(LOST_BITS), "repair": Out(1),
            "repair_address": Out(bits), "irq": Out(1),
        })  # fmt: skip

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.log = log = StreamFifo(ErrorRecord(self._config), LOG_DEPTH)
        connect(m, log.o, flipped(self.records))
        place, record = Signal.like(self.place), log.i.payload
        seen, failed, scrub = Signal(), Signal(), Signal()
        m.d.sync += [
            seen.eq(self.valid & (self.corrected | self.failed)),
            place.eq(self.place),
            failed.eq(self.failed),
            scrub.eq(self.scrub),
        ]
        m.d.comb += [
            record.address.eq(AddressMap(self._config).restore(place)),
            record.uncorrectable.eq(failed),
            record.scrub.eq(scrub),
            log.i.valid.eq(seen),
            self.repair.eq(seen & ~failed & ~scrub),
            self.repair_address.eq(record.address),
        ]
        # What is seen in the clock of a `clear` is news: it counts from zero.
        limit = self._config.error_limit
        count = Signal(range(limit + 1))
        lost_before, count_before = Signal.like(self.lost), Signal.like(count)
        m.d.comb += [lost_before.eq(Mux(self.clear, 0, self.lost)), count_before.eq(Mux(self.clear, 0, count))]
        m.d.sync += [
            self.irq.eq((~self.clear & (self.irq | ((limit > 0) & (count == limit)))) | (seen & failed)),
            self.lost.eq(lost_before + (seen & ~log.i.ready & ~lost_before.all())),
            count.eq(count_before + (seen & ~failed & (count_before != limit))),
        ]
        return m


class Scrubber(wiring.Component):
    """Reads a granule every `config.scrub_interval` clocks, or one that is known to be wrong at once, and writes it
    back when its error could be corrected.

    A write to the granule that is accepted between the two makes the write-back stale: it is then left out.

    Interface attributes
    --------------------
    request : Out
        Stream of `write`, `address`; `request_data` with a write.
    fill, fill_data, fill_corrected, fill_error : In
        Answer to the read.
    written, written_address : In
        A write, of whichever source, is accepted at this clock.
    repair, repair_address : In
        A granule with a correctable error; one waits while another is repaired, more are left to the patrol.
    """

    def __init__(self, config: HbmConfig):
        self._config = config
        bits = unsigned(config.address_bits)
        super().__init__({
            "request": Out(stream.Signature(GranuleRequest(config))), "request_data": Out(GRANULE_BITS),
            "fill": In(1), "fill_data": In(GRANULE_BITS), "fill_corrected": In(1), "fill_error": In(1),
            "written": In(1), "written_address": In(bits), "repair": In(1), "repair_address": In(bits),
        })  # fmt: skip

    def elaborate(self, platform: object) -> Module:
        m = Module()
        interval = self._config.scrub_interval
        request, timer = self.request.payload, Signal(range(interval))
        address, patrol, wrong = (Signal(self._config.address_bits, name=n) for n in ("address", "patrol", "wrong"))
        known, stale, hit = Signal(), Signal(), Signal()
        m.d.comb += [hit.eq(self.written & (self.written_address == address)), request.address.eq(address)]
        m.d.sync += timer.eq(Mux(timer == interval - 1, timer, timer + 1))
        with m.FSM():
            with m.State("WAIT"):
                with m.If(known):
                    m.d.sync += [address.eq(wrong), known.eq(0)]
                    m.next = "READ"
                with m.Elif(timer == interval - 1):
                    m.d.sync += [address.eq(patrol), patrol.eq(patrol + 1), timer.eq(0)]
                    m.next = "READ"
            with m.State("READ"):
                m.d.comb += self.request.valid.eq(1)
                m.d.sync += stale.eq(0)
                with m.If(self.request.ready):
                    m.next = "ANSWER"
            with m.State("ANSWER"):
                m.d.sync += stale.eq(stale | hit)
                with m.If(self.fill):
                    m.d.sync += self.request_data.eq(self.fill_data)
                    m.next = "WAIT"
                    with m.If(self.fill_corrected & ~self.fill_error):
                        m.next = "WRITE"
            with m.State("WRITE"):
                m.d.comb += [self.request.valid.eq(~stale), request.write.eq(1)]
                m.d.sync += stale.eq(stale | hit)
                with m.If(stale | self.request.ready):
                    m.next = "WAIT"
        with m.If(self.repair & ~known):
            m.d.sync += [known.eq(1), wrong.eq(self.repair_address)]
        return m
