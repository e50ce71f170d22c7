"""The host port: registers, data, interrupt, and the host's place in the network."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.axi import Axi4LiteSignature, Response
from hw.chip.host_data import HOST_AXI, HostData
from hw.chip.registers import (
    COUNTER_BASE,
    COUNTER_STRIDE,
    HBM_COUNTER_OFFSET,
    HBM_COUNTERS,
    IDENTITY,
    REGISTERS,
    TILE_COUNTERS,
    Error,
)
from hw.config import ChipConfig
from hw.hbm.interface import Counters as HbmCounters
from hw.noc.flit import flit_layout
from hw.tile.isa import Counters, Memory, TileError

__all__ = ["HOST_REGISTERS", "HostPort", "TileStatus"]

HOST_REGISTERS = Axi4LiteSignature(address_width=16)


class TileStatus(wiring.Signature):
    """A tile's wires to the host port, seen from the host port.

    Interface attributes
    --------------------
    running, done, error: state of the program; counters, hbm: counters of the tile and of its memory.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "running": In(1),
                "done": In(1),
                "error": In(TileError),
                "counters": In(Counters),
                "hbm": In(HbmCounters),
            }
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TileStatus)


class HostPort(wiring.Component):
    """AXI4-Lite registers (`hw.chip.registers`), AXI4 data (`HostData`), one interrupt.

    Parameters
    ----------
    config: the chip.

    Interface attributes
    --------------------
    registers, axi: the host's ports.
    irq: level; `signals` has reached `threshold`, or `error` is not zero.
    tiles: status wires of each tile.
    request, collective: flits into the network; responses: flits from it, never refused.
    refused: the network dropped a flit in this cycle; stray: one reached an endpoint that has no use for its class.
    """

    def __init__(self, config: ChipConfig):
        self.config = config
        flit = stream.Signature(flit_layout(config.mesh))
        super().__init__(
            {
                "registers": In(HOST_REGISTERS),
                "axi": In(HOST_AXI),
                "irq": Out(1),
                "tiles": Out(TileStatus()).array(config.tiles),
                "request": Out(flit),
                "collective": Out(flit),
                "responses": In(flit),
                "refused": In(1),
                "stray": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.data = host_data = HostData(self.config)
        wiring.connect(m, wiring.flipped(self.axi), host_data.axi)
        wiring.connect(m, host_data.request, wiring.flipped(self.request))
        wiring.connect(m, host_data.collective, wiring.flipped(self.collective))

        values = {name: Signal(32, name=name) for name in REGISTERS}
        errors = Signal(len(Error))
        m.d.comb += [
            values["identity"].eq(IDENTITY),
            values["tiles"].eq(self.config.tiles),
            values["running"].eq(Cat(tile.running for tile in self.tiles)),
            values["done"].eq(Cat(tile.done for tile in self.tiles)),
            values["tile_error"].eq(Cat(tile.error for tile in self.tiles)),
            values["error"].eq(errors),
        ]
        threshold = values["threshold"]
        m.d.comb += self.irq.eq(errors.any() | (threshold.any() & (values["signals"] >= threshold)))
        self._responses(m, host_data, values, errors)
        self._register_write(m, values, errors)
        self._register_read(m, values)
        return m

    def _responses(self, m: Module, host_data: HostData, values: dict, errors: Signal) -> None:
        """Results into their memory, signals into their count."""
        flit = self.responses
        write, arrived = flit.payload.payload, flit.valid
        is_result, is_signal = write.memory == Memory.RESULTS, write.memory == Memory.SIGNAL
        inside = write.address < self.config.result_granules
        m.d.comb += [
            flit.ready.eq(1),
            host_data.write_enable.eq(arrived & is_result & inside),
            host_data.write_address.eq(write.address),
            host_data.write_data.eq(write.data.elements.as_value()),
        ]
        with m.If(host_data.write_enable):
            m.d.sync += values["results"].eq(values["results"] + 1)
        with m.If(arrived & is_signal):
            m.d.sync += values["signals"].eq(values["signals"] + 1)
            m.d.sync += values["tag"].eq(write.data.elements.as_value()[:24])
        m.d.sync += errors.eq(
            errors
            | Cat(tile.error != TileError.NONE for tile in self.tiles).any() << Error.TILE
            | self.refused << Error.DESTINATION
            | (arrived & is_result & ~inside) << Error.RESULT_ADDRESS
            | (self.stray | (arrived & ~is_result & ~is_signal)) << Error.WRITE
        )

    def _register_write(self, m: Module, values: dict, errors: Signal) -> None:
        bus = self.registers
        both = Signal()
        known = Cat(bus.awaddr == register.offset for register in REGISTERS.values() if register.access != "ro").any()
        m.d.comb += [
            both.eq(bus.awvalid & bus.wvalid & ~bus.bvalid),
            bus.awready.eq(both),
            bus.wready.eq(both),
        ]
        with m.If(bus.bready):
            m.d.sync += bus.bvalid.eq(0)
        with m.If(both):
            whole = bus.wstrb.all()
            m.d.sync += [bus.bvalid.eq(1), bus.bresp.eq(Mux(known & whole, Response.OKAY, Response.SLVERR))]
            with m.If((bus.awaddr == REGISTERS["threshold"].offset) & whole):
                m.d.sync += values["threshold"].eq(bus.wdata)
            with m.If((bus.awaddr == REGISTERS["clear"].offset) & whole & bus.wdata[0]):
                m.d.sync += [values["signals"].eq(0), values["results"].eq(0), errors.eq(0)]

    def _register_read(self, m: Module, values: dict) -> None:
        bus = self.registers
        word, found = Signal(32), Signal()
        with m.Switch(bus.araddr):
            for register in REGISTERS.values():
                with m.Case(register.offset):
                    m.d.comb += [word.eq(0 if register.access == "w1" else values[register.name]), found.eq(1)]
            for index, tile in enumerate(self.tiles):
                base = COUNTER_BASE + index * COUNTER_STRIDE
                groups = ((base, TILE_COUNTERS, tile.counters), (base + HBM_COUNTER_OFFSET, HBM_COUNTERS, tile.hbm))
                for start, names, counters in groups:
                    for number, name in enumerate(names):
                        with m.Case(start + 4 * number):
                            m.d.comb += [word.eq(counters[name]), found.eq(1)]
        m.d.comb += bus.arready.eq(~bus.rvalid)
        with m.If(bus.rready):
            m.d.sync += bus.rvalid.eq(0)
        with m.If(bus.arvalid & bus.arready):
            m.d.sync += [
                bus.rvalid.eq(1),
                bus.rdata.eq(word),
                bus.rresp.eq(Mux(found, Response.OKAY, Response.SLVERR)),
            ]
