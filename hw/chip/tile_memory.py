"""A tile with its memory controller and DRAM device: what `make bench-tile` measures. Not part of the chip."""

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.emit import once
from hw.hbm import HbmConfig, HbmController, HbmDevice
from hw.tile.config import TileConfig
from hw.tile.drain import Outgoing
from hw.tile.isa import Counters, RemoteWrite, WeightRange
from hw.tile.streams import choose
from hw.tile.tile import Tile

__all__ = ["TileMemory"]


class TileMemory(wiring.Component):
    """`Tile` on one pseudo-channel.

    Interface attributes
    --------------------
    i, o, done, counters: the tile's.
    probe: a range to read instead of the tile's, while `discard`: granules go nowhere, as fast as they come. That is
        what the memory can deliver when nothing holds it up.
    cycle: cycles since reset; delivered, last: granules that the memory gave, and the cycle of the last one.
    """

    def __init__(self, tile: TileConfig, hbm: HbmConfig, name: str):
        self.tile, self.hbm, self.name = tile, hbm, name
        super().__init__(
            {
                "i": In(stream.Signature(RemoteWrite)),
                "o": Out(stream.Signature(Outgoing)),
                "done": Out(1),
                "counters": Out(Counters),
                "discard": In(1),
                "probe": In(stream.Signature(WeightRange)),
                "cycle": Out(32),
                "delivered": Out(32),
                "last": Out(32),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.tile = tile = Tile(self.tile)
        m.submodules.controller = controller = once(HbmController(self.hbm), f"hbm_{self.name}")
        m.submodules.device = device = HbmDevice(self.hbm)
        wiring.connect(m, controller.device, device.port)
        wiring.connect(m, wiring.flipped(self.i), tile.i)
        wiring.connect(m, tile.o, wiring.flipped(self.o))
        descriptor, granules = controller.descriptor, controller.data
        wanted = stream.Signature(WeightRange).create(path=("wanted",))
        choose(m, self.discard, wanted, self.probe, tile.descriptors)
        m.d.comb += [
            descriptor.valid.eq(wanted.valid),
            wanted.ready.eq(descriptor.ready),
            descriptor.payload.address.eq(wanted.payload.address),
            descriptor.payload.length.eq(wanted.payload.length),
            tile.granules.payload.eq(granules.payload),
            tile.granules.valid.eq(granules.valid & ~self.discard),
            granules.ready.eq(tile.granules.ready | self.discard),
            self.done.eq(tile.done),
            self.counters.eq(tile.counters),
        ]
        m.d.sync += self.cycle.eq(self.cycle + 1)
        with m.If(granules.valid & granules.ready):
            m.d.sync += [self.delivered.eq(self.delivered + 1), self.last.eq(self.cycle)]
        return m
