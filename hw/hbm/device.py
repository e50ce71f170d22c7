"""The DRAM outside the chip: `rtl/hbm_device.sv` as a component, built from the controller's configuration."""

from __future__ import annotations

from amaranth.hdl import ClockSignal, Const, Instance, Module, ResetSignal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .address import AddressMap
from .config import HbmConfig
from .interface import DevicePort

__all__ = ["SOURCES", "HbmDevice", "device_parameters"]

SOURCES = ("rtl/hbm_rules.sv", "rtl/hbm_device.sv")


def device_parameters(config: HbmConfig, index: int = 0) -> dict[str, int | Const]:
    """Parameters of module `hbm_device` for a configuration; `index` names the channel in plusargs and messages."""
    t, c = config.timing, config.cycles
    names = (
        "bl", "cl", "cwl", "rcdrd", "rcdwr", "rp", "ras", "rc", "ccds", "ccdl", "ccdr", "rrds", "rrdl", "faw", "rtp",
        "wr_pre", "wtrs", "wtrl", "rtw", "ppd", "rfcab", "rfcpb", "rrefd", "refi", "act_slot",
    )  # fmt: skip
    width = config.address_bits
    return {
        "BANKS": t.total_banks, "GROUP": t.banks, "STACK": t.groups * t.banks, "BANK_BITS": config.bank_bits,
        "ROW_BITS": config.row_bits, "COLUMN_BITS": config.column_bits, "INDEX": index, "POSTPONE": t.postpone,
        "CHECK_REFRESH": int(config.refresh != "off"), "ECC": int(config.ecc),
        "INVERSE": Const(AddressMap(config).inverse_parameter(), width * width),
        **{name.upper(): getattr(c, name) for name in names},
    }  # fmt: skip


class HbmDevice(wiring.Component):
    """Simulation only. `port` is a controller's `device`, flipped; `violation` the code of the first rule broken."""

    def __init__(self, config: HbmConfig, index: int = 0):
        self._config = config
        self._index = index
        super().__init__({"port": In(DevicePort(config)), "violation": Out(8)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        port = self.port
        m.submodules.device = Instance(
            "hbm_device",
            **{f"p_{name}": value for name, value in device_parameters(self._config, self._index).items()},
            i_clk=ClockSignal(), i_rst=ResetSignal(), i_row=port.row.as_value(), i_column=port.column.as_value(),
            i_write_data=port.write_data, i_write_check=port.write_check, o_read_valid=port.read_valid,
            o_read_data=port.read_data, o_read_check=port.read_check, o_violation=self.violation,
        )  # fmt: skip
        return m
