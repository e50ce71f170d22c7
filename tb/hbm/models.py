"""Simulation models of the HBM testbenches and benchmarks."""

from __future__ import annotations

from hw.hbm.bench import TRACE_SOURCES, ChannelsBench, ControllerBench, TraceBench
from hw.hbm.config import HbmConfig
from hw.hbm.device import SOURCES, HbmDevice
from scripts.simulator import Model

__all__ = [
    "CONFIGURATIONS",
    "CONTROLLERS",
    "DEVICES",
    "channels_model",
    "configuration",
    "controller_model",
    "device_model",
    "trace_model",
]

CONFIGURATIONS = ("hbm2a", "hbm2c", "hbm3d", "hbm4")


# Sixteen banks of a stack serve the pages of a trace; two banks a page of 1 KiB then collide less often than four.
MAPS = {"hbm3d": "c2 g1 c2 g c b r s"}
CONTROLLERS = {
    "hbm4": HbmConfig(capacity=4 << 20, scrub_interval=2048, error_limit=8),
    "hbm2": HbmConfig(
        generation="hbm2c", capacity=1 << 20, refresh="all_bank", read_queue=8, write_queue=6, write_buffer=8,
        prefetch=16, descriptors=1,
    ),
}  # fmt: skip


DEVICES = {name: HbmConfig(generation=name, capacity=1 << 20) for name in ("hbm4", "hbm3d", "hbm2c")}


def configuration(name: str) -> HbmConfig:
    """Configuration of a figure id: a generation, `_pb` for per-bank refresh, `64` for 64+64 entries."""
    generation, _, refresh = name.partition("_")
    depth = 64 if refresh.endswith("64") else 32
    return HbmConfig(
        generation=generation, refresh="per_bank" if refresh.startswith("pb") else "all_bank", read_queue=depth,
        write_queue=depth, write_buffer=2 * depth, address_map=MAPS.get(name, ""),
    )  # fmt: skip


def trace_model(name: str, config: HbmConfig | None = None) -> Model:
    """A scheduler and its device, driven by a trace."""
    config = config or configuration(name)
    return Model(
        name=f"hbm_trace_{name}", component=lambda: TraceBench(config), sources=TRACE_SOURCES,
        key=repr(config), options=("-Wno-fatal",),
    )  # fmt: skip


# Short runs: a quick build is worth more than a fast model.
def controller_model(name: str) -> Model:
    """A whole controller and its device, ports of the controller outside."""
    config = CONTROLLERS[name]
    return Model(
        name=f"hbm_controller_{name}", component=lambda: ControllerBench(config), sources=SOURCES, key=repr(config),
        optimise="-O0", public=("hbm_device.fault", "hbm_device.corrupt", "hbm_device.fault_*"),
    )  # fmt: skip


def device_model(name: str) -> Model:
    """The device alone."""
    config = DEVICES[name]
    return Model(
        name=f"hbm_device_{name}", component=lambda: HbmDevice(config), sources=SOURCES, key=repr(config),
        optimise="-O0",
    )  # fmt: skip


def channels_model(channels: int) -> Model:
    """Pseudo-channels read in lockstep."""
    config = HbmConfig(capacity=1 << 20)
    return Model(
        name=f"hbm_channels_{channels}", component=lambda: ChannelsBench(config, channels), sources=SOURCES,
        key=f"{config!r} {channels}", compile_once=("hbm_channel",),
    )  # fmt: skip
