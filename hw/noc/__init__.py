"""Network-on-chip: routers, links, network interfaces, meshes."""

from hw.noc.config import MeshConfig
from hw.noc.flit import Direction, Kind, TrafficClass, destination_layout, flit_layout, header_layout
from hw.noc.mesh import Mesh
from hw.noc.router import Router

__all__ = [
    "Direction", "Kind", "Mesh", "MeshConfig", "Router", "TrafficClass",
    "destination_layout", "flit_layout", "header_layout",
]  # fmt: skip
