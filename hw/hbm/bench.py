"""Measuring set-ups for simulation: a scheduler and its device, driven by a trace (`rtl/hbm_trace.sv`)."""

from __future__ import annotations

from amaranth.hdl import ClockSignal, Instance, Module, ResetSignal
from amaranth.lib import wiring
from amaranth.lib.wiring import Out, connect, flipped

from .config import HbmConfig
from .controller import HbmController
from .core import HbmCore
from .device import HbmDevice
from .interface import Counters

__all__ = ["TRACE_SOURCES", "ControllerBench", "TraceBench"]

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
        m.submodules.trace = Instance(
            "hbm_trace", p_ADDRESS_BITS=config.address_bits, p_TAG_BITS=config.tag_bits,
            i_clk=ClockSignal(), i_rst=ResetSignal(), o_request_valid=core.request.valid,
            i_request_ready=core.request.ready, o_request=core.request.payload.as_value(),
            o_request_data=core.request_data, i_response_valid=core.response_valid,
            i_response=core.response.as_value(), o_done=self.done,
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
        for name, member in controller.signature.members.items():
            if name == "counters":
                m.d.comb += self.counters.eq(controller.counters)
            elif name != "device":
                connect(m, flipped(getattr(self, name)), getattr(controller, name))
        m.d.comb += self.violation.eq(device.violation)
        return m
