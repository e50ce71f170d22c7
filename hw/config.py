"""The one configuration object of a chip, and the TOML file that it comes from."""

from __future__ import annotations

import dataclasses
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hw.hbm.config import HbmConfig
from hw.hbm.timing import GENERATIONS, Timing
from hw.noc.config import MeshConfig
from hw.tile.config import TileConfig
from hw.tile.isa import RemoteWrite

__all__ = ["DEFAULT", "ChipConfig", "ConfigError", "load"]

DEFAULT = Path(__file__).parent / "chip" / "configs" / "small.toml"
"""The chip that `make sim` builds when none is named."""

MOST_TILES = 32
"""The host's registers have a bit for each tile."""


class ConfigError(ValueError):
    """A configuration that cannot be used; the message is one line that says what is wrong and what is allowed."""


@dataclass(frozen=True)
class ChipConfig:
    """A chip: a mesh of tiles, each with one HBM pseudo-channel, and a host port at node (0, 0).

    Parameters
    ----------
    name : str
    clock_hz : int
        The one clock; 1 GHz is what the memory timings are stated for.
    result_granules : int
        Granules of the host port's result memory, 64 to 1048576.
    mesh : MeshConfig
        Its payload is a remote write, its second local port at node (0, 0) is the host.
    tile : TileConfig
    hbm : HbmConfig
    """

    name: str = "small"
    clock_hz: int = 1_000_000_000
    result_granules: int = 16384
    mesh: MeshConfig = field(default_factory=lambda: _mesh())
    tile: TileConfig = field(default_factory=TileConfig)
    hbm: HbmConfig = field(default_factory=lambda: _hbm())

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9_]*", str(self.name)):
            raise ValueError(f"chip.name must be lower-case letters, digits and underscores, not {self.name!r}")
        if self.clock_hz != 1_000_000_000:
            raise ValueError(f"chip.clock_hz must be 1000000000 (memory timings round up to it), not {self.clock_hz}")
        clock = _controller_clock(self.hbm.timing)
        if clock != 1.0:
            fitting = ", ".join(name for name, timing in GENERATIONS.items() if _controller_clock(timing) == 1.0)
            raise ValueError(
                f"hbm.generation {self.hbm.generation!r} has a controller clock of {clock} ns; "
                f"at 1 GHz a chip takes {fitting}"
            )
        if self.tiles > MOST_TILES:
            raise ValueError(
                f"a mesh of {self.mesh.columns} x {self.mesh.rows} has {self.tiles} tiles; "
                f"the host port serves at most {MOST_TILES}"
            )
        granules = self.result_granules
        if not isinstance(granules, int) or not 64 <= granules <= 1 << 20:
            raise ValueError(f"chip.result_granules must be an integer from 64 to {1 << 20}, not {granules!r}")

    @property
    def tiles(self) -> int:
        """Number of tiles; tile t is at column t % mesh.columns, row t // mesh.columns."""
        return self.mesh.nodes

    def place(self, tile: int) -> tuple[int, int]:
        """Column and row of a tile."""
        return tile % self.mesh.columns, tile // self.mesh.columns


def _controller_clock(timing: Timing) -> float:
    """Nanoseconds."""
    return timing.ck * timing.ratio


def _mesh(columns: int = 2, rows: int = 2, **arguments: Any) -> MeshConfig:
    return MeshConfig(columns, rows, payload=RemoteWrite, local_ports={(0, 0): 2}, **arguments)  # type: ignore[arg-type]


def _hbm(capacity: int = 4 << 20, **arguments: Any) -> HbmConfig:
    return HbmConfig(capacity=capacity, **arguments)


_SECTIONS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "mesh": (_mesh, ("columns", "rows", "channels", "depth")),
    "tile": (TileConfig, tuple(f.name for f in dataclasses.fields(TileConfig))),
    "hbm": (_hbm, tuple(f.name for f in dataclasses.fields(HbmConfig) if f.name != "tag_bits")),
}
_CHIP_KEYS = ("name", "clock_hz", "result_granules")


def load(path: Path = DEFAULT) -> ChipConfig:
    """Read and check a chip's TOML. Raises ConfigError: the file, the line where there is one, what is allowed."""
    try:
        text = path.read_text()
        tables = tomllib.loads(text)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not a TOML file: {error}") from None
    allowed = {"chip": _CHIP_KEYS, **{name: keys for name, (_, keys) in _SECTIONS.items()}}
    for section, table in tables.items():
        if section not in allowed or not isinstance(table, dict):
            where = _where(path, text, section)
            raise ConfigError(f"{where}: unknown section '{section}'; allowed: {', '.join(allowed)}")
        for key in table:
            if key not in allowed[section]:
                where = _where(path, text, key, section)
                known = ", ".join(allowed[section])
                raise ConfigError(f"{where}: unknown key '{key}' in [{section}]; allowed: {known}")
    try:
        parts = {name: make(**tables.get(name, {})) for name, (make, _) in _SECTIONS.items()}
        return ChipConfig(**tables.get("chip", {}), **parts)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{path}: {error}") from None


def _where(path: Path, text: str, name: str, section: str | None = None) -> str:
    """File and line of a key in its section, or of a section's header."""
    current = None
    for number, line in enumerate(text.splitlines(), 1):
        header = re.match(r"\s*\[+\s*([^\]]+?)\s*\]", line)
        if header:
            current = header.group(1)
            if section is None and current == name:
                return f"{path}:{number}"
        elif current == section and re.match(rf"\s*[\"']?{re.escape(name)}[\"']?\s*[.=]", line):
            return f"{path}:{number}"
    return str(path)
