"""HBM controller interface: one controller for each pseudo-channel."""

from .config import HbmConfig
from .controller import HbmController
from .core import HbmCore
from .device import SOURCES, HbmDevice, device_parameters
from .interface import Counters, DevicePort, StreamDescriptor

__all__ = [
    "SOURCES", "Counters", "DevicePort", "HbmConfig", "HbmController", "HbmCore", "HbmDevice", "StreamDescriptor",
    "device_parameters",
]  # fmt: skip
