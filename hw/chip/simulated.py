"""The chip with its DRAM devices: what the simulator builds. Not part of the chip."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.chip.chip import Chip
from hw.chip.host import HOST_REGISTERS
from hw.chip.host_data import HOST_AXI
from hw.config import ChipConfig
from hw.emit import once
from hw.hbm import HbmDevice

__all__ = ["SimulatedChip"]


class SimulatedChip(wiring.Component):
    """`Chip` with an `hbm_device` at each channel.

    Interface attributes
    --------------------
    registers, axi, irq: the chip's.
    cycle: cycles since reset, for the testbench.
    violation: code of the first rule that channel t's device saw broken; the device also stops the simulation.
    """

    def __init__(self, config: ChipConfig):
        self.config = config
        super().__init__(
            {
                "registers": In(HOST_REGISTERS),
                "axi": In(HOST_AXI),
                "irq": Out(1),
                "cycle": Out(48),
                "violation": Out(8).array(config.tiles),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.chip = chip = once(Chip(self.config), f"chip_{self.config.name}")
        wiring.connect(m, wiring.flipped(self.registers), chip.registers)
        wiring.connect(m, wiring.flipped(self.axi), chip.axi)
        m.d.comb += self.irq.eq(chip.irq)
        m.d.sync += self.cycle.eq(self.cycle + 1)
        for index in range(self.config.tiles):
            device = m.submodules[f"device_{index}"] = HbmDevice(self.config.hbm, index)
            wiring.connect(m, chip.hbm[index], device.port)
            m.d.comb += self.violation[index].eq(device.violation)
        return m
