"""The controller of one pseudo-channel: streaming port and AXI4 subordinate in front of the scheduler."""

from __future__ import annotations

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.axi import Axi4Signature

from .config import HbmConfig
from .core import HbmCore
from .interface import GRANULE_BITS, Counters, DevicePort, StreamDescriptor
from .stream import StreamReader

__all__ = ["HbmController"]

AXI_ADDRESS_BITS = 40


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
        Stream of `StreamDescriptor` (granule `address`, `length` in granules). Up to `config.descriptors` wait.
    data : Out
        Stream of 256-bit granules: all descriptors' ranges, in order; byte 0 is bits 7:0.
    axi : In
        AXI4, 256-bit data, byte addresses. No order is promised between it and the streaming port.
    device : Out
        To `HbmDevice`.
    counters : Out
        `Counters`.
    """

    def __init__(self, config: HbmConfig, axi_id_bits: int = 4):
        self._config = config
        super().__init__(
            {
                "descriptor": In(stream.Signature(StreamDescriptor(config))),
                "data": Out(stream.Signature(GRANULE_BITS)),
                "axi": In(Axi4Signature(AXI_ADDRESS_BITS, GRANULE_BITS, axi_id_bits)),
                "device": Out(DevicePort(config)),
                "counters": Out(Counters),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.core = core = HbmCore(self._config)
        m.submodules.reader = reader = StreamReader(self._config)
        connect(m, core.device, flipped(self.device))
        connect(m, flipped(self.descriptor), reader.descriptor)
        connect(m, reader.data, flipped(self.data))
        m.d.comb += [
            self.counters.eq(core.counters),
            core.request.valid.eq(reader.read.valid),
            reader.read.ready.eq(core.request.ready),
            core.request.payload.address.eq(reader.read.payload),
            core.request.payload.tag.eq(reader.slot),
            reader.fill.eq(core.response_valid),
            reader.fill_slot.eq(core.response.tag),
            reader.fill_data.eq(core.response.data),
        ]
        return m
