"""AXI4 over the network: a bridge beside a manager, a bridge beside a target."""

from hw.noc.axi.config import AxiNetworkConfig, Region
from hw.noc.axi.manager import AxiManagerBridge
from hw.noc.axi.target import AxiTargetBridge

__all__ = ["AxiManagerBridge", "AxiNetworkConfig", "AxiTargetBridge", "Region"]
