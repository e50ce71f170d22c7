"""Measuring set-ups for simulation: a scheduler and its device, driven by a trace (`rtl/hbm_trace.sv`)."""

from __future__ import annotations

from amaranth.hdl import Cat, ClockSignal, Instance, Module, ResetSignal, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.emit import once
from hw.fifo import StreamFifo

from .config import HbmConfig
from .controller import HbmController
from .core import HbmCore
from .device import HbmDevice
from .interface import GRANULE_BITS, Counters

__all__ = ["TRACE_SOURCES", "ChannelsBench", "ControllerBench", "TraceBench"]

TRACE_SOURCES = ("rtl/hbm_rules.sv", "rtl/hbm_device.sv", "rtl/hbm_trace.sv")


class TraceBench(wiring.Component):
    """Outputs of the trace driver, the controller's counters, and the device's `violation`."""

    RESULTS = ("accepted", "returned", "reads", "wrong", "first_clock", "last_clock")

    def __init__(self, config: HbmConfig):
        self._config = config
        super().__init__({
            "done": Out(1), "violation": Out(8), "counters": Out(Counters), **{name: Out(32) for name in self.RESULTS},
        })  # fmt: skip

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        m.submodules.core = core = HbmCore(config)
        m.submodules.device = device = HbmDevice(config)
        connect(m, core.device, device.port)
        payload = core.request.payload
        request = Cat(payload.write, payload.address, payload.tag)
        m.submodules.trace = Instance(
            "hbm_trace", p_ADDRESS_BITS=config.address_bits, p_TAG_BITS=config.tag_bits,
            i_clk=ClockSignal(), i_rst=ResetSignal(), o_request_valid=core.request.valid,
            i_request_ready=core.request.ready, i_idle=core.idle, o_request=request,
            o_request_data=core.request_data, i_response_valid=core.response_valid,
            i_response=Cat(core.response.tag, core.response.data, core.response.error), o_done=self.done,
            **{f"o_{name}": getattr(self, name) for name in self.RESULTS},
        )  # fmt: skip
        m.d.comb += [self.counters.eq(core.counters), self.violation.eq(device.violation)]
        return m


class ControllerBench(wiring.Component):
    """A controller with its device: the controller's ports but `device`, and the device's `violation`."""

    def __init__(self, config: HbmConfig, index: int = 0):
        self._config = config
        self._index = index
        self._controller = HbmController(config)
        ports = {name: member for name, member in self._controller.signature.members.items() if name != "device"}
        super().__init__({**ports, "violation": Out(8)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.controller = controller = self._controller
        m.submodules.device = device = HbmDevice(self._config, self._index)
        connect(m, controller.device, device.port)
        for name in controller.signature.members:
            if name in ("counters", "irq", "lost_errors"):
                m.d.comb += getattr(self, name).eq(getattr(controller, name))
            elif name == "clear_errors":
                m.d.comb += controller.clear_errors.eq(self.clear_errors)
            elif name != "device":
                connect(m, flipped(getattr(self, name)), getattr(controller, name))
        m.d.comb += self.violation.eq(device.violation)
        return m


class ChannelsBench(wiring.Component):
    """`channels` controllers and devices; channel k streams `granules` granules from `STEP` k on, taken in lockstep.

    The starts differ so that the channels change rows, and refresh, at different times: what holds up one holds up all.

    `clocks` from reset to `done`; `wrong` counts granules that are not the device's pattern in their first word.
    """

    STEP = 1001

    def __init__(self, config: HbmConfig, channels: int):
        self._config = config
        self._channels = channels
        super().__init__({
            "granules": In(config.address_bits), "done": Out(1), "clocks": Out(32), "wrong": Out(32),
            "violation": Out(8),
        })  # fmt: skip

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, count = self._config, Signal(self._config.address_bits)
        channels = [once(ControllerBench(config), "hbm_channel") for _ in range(self._channels)]
        # A buffer behind each: compiled apart, a channel must not see its own `valid` in its `ready` at the same clock.
        buffers = [StreamFifo(GRANULE_BITS, 4) for _ in channels]
        for k, (channel, buffer) in enumerate(zip(channels, buffers, strict=True)):
            m.submodules[f"channel{k}"], m.submodules[f"buffer{k}"] = channel, buffer
            connect(m, channel.data, buffer.i)
            asked = Signal(name=f"asked{k}")
            m.d.comb += [
                channel.descriptor.valid.eq(~asked),
                channel.descriptor.payload.address.eq(self.STEP * k),
                channel.descriptor.payload.length.eq(self.granules),
            ]
            m.d.sync += asked.eq(asked | channel.descriptor.ready)
        take = Cat(buffer.o.valid for buffer in buffers).all() & ~self.done
        good = Cat(buffer.o.payload[:32] == (count + self.STEP * k) << 3 for k, buffer in enumerate(buffers)).all()
        m.d.comb += [buffer.o.ready.eq(take) for buffer in buffers]
        m.d.comb += self.violation.eq(Cat(channel.violation.any() for channel in channels))
        m.d.sync += [
            count.eq(count + take),
            self.done.eq(self.done | (take & (count == self.granules - 1))),
            self.clocks.eq(self.clocks + ~self.done),
            self.wrong.eq(self.wrong + (take & ~good)),
        ]
        return m
