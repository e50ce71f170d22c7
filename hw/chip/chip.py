"""The chip: tiles with their memory controllers on a mesh, and the host port at node (0, 0)."""

from amaranth.hdl import Cat, Module, Mux
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.chip.host import HOST_REGISTERS, HostPort
from hw.chip.host_data import HOST_AXI
from hw.config import ChipConfig
from hw.emit import once
from hw.hbm import DevicePort, HbmController
from hw.noc import Mesh, TrafficClass
from hw.noc.flit import Kind
from hw.tile.tile import Tile

__all__ = ["Chip"]


class Chip(wiring.Component):
    """Everything of one configuration but the DRAM devices.

    Tile t is node (t % columns, t // columns) and owns HBM channel t. Programs come to a tile as REQUEST flits,
    activation blocks and granules for the vector memories, from the host and from tiles, as COLLECTIVE ones; results
    and signals go to the host as RESPONSE ones.

    Parameters
    ----------
    config: the chip.

    Interface attributes
    --------------------
    registers, axi, irq: the host's side, see `HostPort`.
    hbm: the pins of each pseudo-channel.
    """

    def __init__(self, config: ChipConfig):
        self.config = config
        super().__init__(
            {
                "registers": In(HOST_REGISTERS),
                "axi": In(HOST_AXI),
                "irq": Out(1),
                "hbm": Out(DevicePort(config.hbm)).array(config.tiles),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        m.submodules.mesh = mesh = Mesh(config.mesh)
        m.submodules.host = host = HostPort(config)
        wiring.connect(m, wiring.flipped(self.registers), host.registers)
        wiring.connect(m, wiring.flipped(self.axi), host.axi)
        m.d.comb += self.irq.eq(host.irq)

        here = config.mesh.endpoint(0, 0, 1)
        wiring.connect(m, host.request, mesh.send[here][TrafficClass.REQUEST])
        wiring.connect(m, host.collective, mesh.send[here][TrafficClass.COLLECTIVE])
        wiring.connect(m, mesh.receive[here][TrafficClass.RESPONSE], host.responses)
        refused = [signal for endpoint in range(len(config.mesh.endpoints())) for signal in mesh.refused[endpoint]]
        m.d.comb += host.refused.eq(Cat(refused).any())
        for index in range(config.tiles):
            self._tile(m, index, mesh, host)
        self._strays(m, mesh, host)
        return m

    def _strays(self, m: Module, mesh: Mesh, host: HostPort) -> None:
        """Flits of a class that an endpoint does not take are taken all the same, as an error: nothing may jam."""
        here = self.config.mesh.endpoint(0, 0, 1)
        unused = [mesh.receive[here][TrafficClass.REQUEST], mesh.receive[here][TrafficClass.COLLECTIVE]]
        unused += [
            mesh.receive[self.config.mesh.endpoint(*self.config.place(index))][TrafficClass.RESPONSE]
            for index in range(self.config.tiles)
        ]
        m.d.comb += [flits.ready.eq(1) for flits in unused]
        m.d.comb += host.stray.eq(Cat(flits.valid for flits in unused).any())

    def _tile(self, m: Module, index: int, mesh: Mesh, host: HostPort) -> None:
        config = self.config
        tile = m.submodules[f"tile_{index}"] = once(Tile(config.tile), f"tile_{config.name}")
        controller = m.submodules[f"hbm_{index}"] = once(HbmController(config.hbm), f"hbm_{config.name}")
        wiring.connect(m, controller.device, wiring.flipped(self.hbm[index]))
        wiring.connect(m, controller.data, tile.granules)
        if config.tile.attention_rows:
            wiring.connect(m, tile.memory, controller.axi)
        descriptor, wanted = controller.descriptor, tile.descriptors
        m.d.comb += [
            descriptor.valid.eq(wanted.valid),
            wanted.ready.eq(descriptor.ready),
            descriptor.payload.address.eq(wanted.payload.address),
            descriptor.payload.length.eq(wanted.payload.length),
        ]
        status = host.tiles[index]
        m.d.comb += [
            status.running.eq(tile.running),
            status.done.eq(tile.done),
            status.error.eq(tile.error),
            status.counters.eq(tile.counters),
            status.hbm.eq(controller.counters),
        ]
        endpoint = config.mesh.endpoint(*config.place(index))
        self._from_network(m, tile, mesh, endpoint)
        self._to_network(m, tile, mesh, endpoint)

    def _from_network(self, m: Module, tile: Tile, mesh: Mesh, endpoint: int) -> None:
        """Remote writes of both classes, COLLECTIVE first; a tile takes one a cycle and waits on nothing but itself."""
        activations = mesh.receive[endpoint][TrafficClass.COLLECTIVE]
        programs = mesh.receive[endpoint][TrafficClass.REQUEST]
        m.d.comb += [
            tile.i.valid.eq(activations.valid | programs.valid),
            tile.i.payload.eq(programs.payload.payload),
            activations.ready.eq(tile.i.ready),
            programs.ready.eq(tile.i.ready & ~activations.valid),
        ]
        with m.If(activations.valid):
            m.d.comb += tile.i.payload.eq(activations.payload.payload)

    def _to_network(self, m: Module, tile: Tile, mesh: Mesh, endpoint: int) -> None:
        """What a tile sends to tiles is COLLECTIVE, what it sends to the host is RESPONSE."""
        place = tile.o.payload.destination
        to_host = place.port != 0
        for traffic, wanted in ((TrafficClass.RESPONSE, to_host), (TrafficClass.COLLECTIVE, ~to_host)):
            sends = mesh.send[endpoint][traffic]
            header = sends.payload.header
            m.d.comb += [
                sends.valid.eq(tile.o.valid & wanted),
                sends.payload.payload.eq(tile.o.payload.write),
                header.kind.eq(Kind.WRITE),
                header.last.eq(1),
                *(header.destination[field].eq(place[field]) for field in ("x_first", "x_last", "y_first", "y_last")),
                header.destination.port.eq(place.port),
            ]
        responses, collective = mesh.send[endpoint][TrafficClass.RESPONSE], mesh.send[endpoint][TrafficClass.COLLECTIVE]
        m.d.comb += tile.o.ready.eq(Mux(to_host, responses.ready, collective.ready))
