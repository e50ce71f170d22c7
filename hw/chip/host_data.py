"""The host's AXI4 data port: activations, vector memories and programs in, results out."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory as Storage
from amaranth.lib.wiring import In, Out

from hw.axi import Axi4Signature, Burst, Response
from hw.chip.registers import Window
from hw.config import ChipConfig
from hw.noc.flit import Kind, flit_layout
from hw.tile.isa import Memory

__all__ = ["HOST_AXI", "HostData"]

HOST_AXI = Axi4Signature(address_width=32, data_width=256, id_width=4)
_BEAT_BYTES = 32
_WHOLE_BEAT = 5  # AxSIZE of 32 bytes


class HostData(wiring.Component):
    """AXI4 subordinate in front of the network and the result memory. Windows: `hw.chip.registers.Window`.

    Bursts are INCR with whole, aligned beats; one write and one read at a time. A burst of another kind, a partial
    strobe or the wrong direction is answered with SLVERR, an address outside the windows or beyond a window's end
    with DECERR; what came before the fault in the burst has taken effect, the rest of its beats are dropped.

    Parameters
    ----------
    config: the chip.

    Interface attributes
    --------------------
    axi: the port.
    request, collective: flits into the network, programs to one tile, activations and granules to all.
    write_enable, write_address, write_data: a granule into the result memory.
    """

    def __init__(self, config: ChipConfig):
        self.config = config
        flit = stream.Signature(flit_layout(config.mesh))
        super().__init__(
            {
                "axi": In(HOST_AXI),
                "request": Out(flit),
                "collective": Out(flit),
                "write_enable": In(1),
                "write_address": In(range(config.result_granules)),
                "write_data": In(256),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self._write(m)
        self._read(m)
        return m

    def _check(self, axi_size: Signal, axi_burst: Signal, address: Signal) -> Signal:
        return (axi_size == _WHOLE_BEAT) & (axi_burst == Burst.INCR) & (address[:5] == 0)

    def _write(self, m: Module) -> None:
        axi, config = self.axi, self.config
        address, fault, elements = Signal(32), Signal(Response), Signal(256)
        m.d.comb += axi.bresp.eq(fault)
        window, block, tile = address[28:], address[6:28], address[20:28]
        activation, start = window == Window.ACTIVATIONS, window == Window.START
        vector, program = window == Window.VECTORS, (window == Window.PROGRAMS) | start
        in_memory = Signal()
        with m.If(vector):
            m.d.comb += in_memory.eq(address[5:28] < config.tile.vector_depth)
        with m.Elif(activation):
            m.d.comb += in_memory.eq((block[:6] < config.tile.rows) & (block[6:] < config.tile.activation_depth))
        with m.Else():
            depth = Mux(start, 1, config.tile.instruction_depth)
            m.d.comb += in_memory.eq((tile < config.tiles) & (address[5:20] < depth))
        wrong = Signal(Response)
        with m.If(window == Window.RESULTS):
            m.d.comb += wrong.eq(Response.SLVERR)
        with m.Elif(~(activation | vector | program) | ~in_memory):
            m.d.comb += wrong.eq(Response.DECERR)
        with m.Elif(~axi.wstrb.all()):
            m.d.comb += wrong.eq(Response.SLVERR)
        good = (fault == Response.OKAY) & (wrong == Response.OKAY)
        self._flits(m, address, elements, start, vector)

        sending = Signal()  # this beat becomes a flit
        m.d.comb += sending.eq(good & (program | vector | address[5]))
        with m.FSM(name="write"):
            with m.State("IDLE"):
                m.d.comb += axi.awready.eq(1)
                with m.If(axi.awvalid):
                    m.d.sync += [address.eq(axi.awaddr), axi.bid.eq(axi.awid)]
                    shape_good = self._check(axi.awsize, axi.awburst, axi.awaddr)
                    m.d.sync += fault.eq(Mux(shape_good, Response.OKAY, Response.SLVERR))
                    m.next = "DATA"
            with m.State("DATA"):
                taken = Mux(program, self.request.ready, self.collective.ready)
                m.d.comb += [
                    self.request.valid.eq(axi.wvalid & sending & program),
                    self.collective.valid.eq(axi.wvalid & sending & ~program),
                    axi.wready.eq(~sending | taken),
                ]
                with m.If(axi.wvalid & axi.wready):
                    m.d.sync += address.eq(address + _BEAT_BYTES)
                    with m.If(~address[5]):
                        m.d.sync += elements.eq(axi.wdata)
                    with m.If(fault == Response.OKAY):
                        m.d.sync += fault.eq(wrong)
                    with m.If(axi.wlast):
                        m.next = "RESPOND"
            with m.State("RESPOND"):
                m.d.comb += axi.bvalid.eq(1)
                with m.If(axi.bready):
                    m.next = "IDLE"

    def _flits(self, m: Module, address: Signal, elements: Signal, start: Value, vector: Value) -> None:
        """The flit that the beat at `address` would become."""
        config = self.config
        everyone, one = self.collective.payload, self.request.payload
        m.d.comb += [
            everyone.header.kind.eq(Kind.WRITE),
            everyone.header.last.eq(1),
            everyone.header.destination.x_last.eq(config.mesh.columns - 1),
            everyone.header.destination.y_last.eq(config.mesh.rows - 1),
            everyone.payload.memory.eq(Mux(vector, Memory.RESULTS, Memory.ACTIVATIONS)),
            everyone.payload.address.eq(Mux(vector, address[5:27], address[6:28])),
            everyone.payload.data.elements.as_value().eq(Mux(vector, self.axi.wdata, elements)),
            everyone.payload.data.scale.eq(Mux(vector, 0, self.axi.wdata[:32])),
            one.header.kind.eq(Kind.WRITE),
            one.header.last.eq(1),
            one.payload.memory.eq(Mux(start, Memory.SIGNAL, Memory.PROGRAM)),
            one.payload.address.eq(address[5:20]),
            one.payload.data.elements.as_value().eq(self.axi.wdata),
        ]
        destination = one.header.destination
        with m.Switch(address[20:28]):
            for tile in range(config.tiles):
                x, y = config.place(tile)
                with m.Case(tile):
                    m.d.comb += [destination.x_first.eq(x), destination.x_last.eq(x)]
                    m.d.comb += [destination.y_first.eq(y), destination.y_last.eq(y)]

    def _read(self, m: Module) -> None:
        axi, depth = self.axi, self.config.result_granules
        results = Storage(shape=256, depth=depth, init=[])
        m.submodules.results = results
        write, read = results.write_port(), results.read_port()
        m.d.comb += [
            write.en.eq(self.write_enable),
            write.addr.eq(self.write_address),
            write.data.eq(self.write_data),
        ]
        address, left, fault = Signal(32), Signal(8), Signal(Response)
        granule, window = address[5:28], address[28:]
        m.d.comb += [read.addr.eq(granule), axi.rlast.eq(left == 0), axi.rresp.eq(fault)]
        with m.If((fault == Response.OKAY) & (window == Window.RESULTS) & (granule < depth)):
            m.d.comb += axi.rdata.eq(read.data)
        with m.Elif(window.matches(Window.ACTIVATIONS, Window.PROGRAMS, Window.START, Window.VECTORS)):
            m.d.comb += axi.rresp.eq(Response.SLVERR)
        with m.Elif(fault == Response.OKAY):
            m.d.comb += axi.rresp.eq(Response.DECERR)
        with m.FSM(name="read"):
            with m.State("IDLE"):
                m.d.comb += axi.arready.eq(1)
                with m.If(axi.arvalid):
                    m.d.sync += [address.eq(axi.araddr), left.eq(axi.arlen), axi.rid.eq(axi.arid)]
                    shape_good = self._check(axi.arsize, axi.arburst, axi.araddr)
                    m.d.sync += fault.eq(Mux(shape_good, Response.OKAY, Response.SLVERR))
                    m.next = "READ"
            with m.State("READ"):
                m.next = "DATA"
            with m.State("DATA"):
                m.d.comb += axi.rvalid.eq(1)
                with m.If(axi.rready):
                    m.d.sync += [address.eq(address + _BEAT_BYTES), left.eq(left - 1)]
                    m.next = "READ"
                    with m.If(left == 0):
                        m.next = "IDLE"
