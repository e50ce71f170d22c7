"""Chips to extrapolate to: from a TOML file in `chips/`, or from the configuration that the RTL run had."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.extrapolate.toml_object import DescriptionError, make, read
from scripts.published import published

FOLDER = Path(__file__).with_name("chips")
GRANULE = 32

Band = tuple[float, float]


def _positive(owner: object, *names: str) -> None:
    for name in names:
        if getattr(owner, name) <= 0:
            raise ValueError(f"{name} must be more than 0, not {getattr(owner, name)}")


def _ordered(owner: object, *names: str) -> None:
    for name in names:
        low, high = getattr(owner, name)
        if not 0 <= low <= high:
            raise ValueError(f"{name} must be a band [low, high], not [{low}, {high}]")


@dataclass(frozen=True)
class TileShape:
    """Array of `rows` x `columns` block-dot units, `slots` outputs a column, pseudo-channels, vector lanes.

    `blocks_per_cycle`: weight blocks that the unpacker gives in a cycle for each channel; 2 in the RTL, which takes a
    granule a cycle: a block of 8-bit elements or two of 4-bit ones.
    """

    rows: int
    columns: int
    slots: int
    channels: int = 1
    lanes: int = 8
    blocks_per_cycle: float = 2.0

    def __post_init__(self) -> None:
        _positive(self, "rows", "columns", "slots", "channels", "lanes", "blocks_per_cycle")


@dataclass(frozen=True)
class Hbm:
    """Memory of one chip."""

    stacks: float
    stack_gigabytes: float
    channel_bytes_per_second: float

    def __post_init__(self) -> None:
        _positive(self, "stacks", "stack_gigabytes", "channel_bytes_per_second")


@dataclass(frozen=True)
class Domain:
    """Chips that share a model's weights, and the links between them. An expert is split over one of `expert_groups`
    equal parts of the domain: 1 splits every expert over all tiles, `chips` keeps each on one chip."""

    chips: int = 1
    expert_groups: int = 1
    link_bytes_per_second: float = 0.0
    link_nanoseconds: float = 0.0

    def __post_init__(self) -> None:
        _positive(self, "chips", "expert_groups")
        if self.chips % self.expert_groups:
            raise ValueError(f"expert_groups must divide the {self.chips} chips, not {self.expert_groups}")
        if self.chips > 1:
            _positive(self, "link_bytes_per_second", "link_nanoseconds")


@dataclass(frozen=True)
class Power:
    """Bases of power: the chip's TDP (0: not given), utility power over TDP, what flows when nothing happens."""

    all_in_ratio: Band
    static_watts: Band
    tdp_watts: float = 0.0

    def __post_init__(self) -> None:
        _ordered(self, "all_in_ratio", "static_watts")


@dataclass(frozen=True)
class Chip:
    """A chip, and the domain of equal chips that it is part of. One tile a mesh node."""

    name: str
    clock_hz: int
    columns: int
    rows: int
    tile: TileShape
    hbm: Hbm
    power: Power
    domain: Domain = Domain()
    ingress: float = 1.0
    hop_cycles: float = 2.0

    def __post_init__(self) -> None:
        _positive(self, "clock_hz", "columns", "rows", "ingress", "hop_cycles")
        channels = self.hbm.stacks * published("hbm4.channels").number
        if abs(self.tiles * self.tile.channels - channels) > 1e-6:
            raise ValueError(
                f"{self.tiles} tiles of {self.tile.channels} pseudo-channels are not the {channels:g} "
                f"of {self.hbm.stacks:g} HBM4 stacks"
            )

    @property
    def tiles(self) -> int:
        """Tiles of one chip."""
        return self.columns * self.rows

    @property
    def all_tiles(self) -> int:
        """Tiles of the domain, over which outputs are split."""
        return self.tiles * self.domain.chips

    @property
    def rate(self) -> float:
        """Granules that one pseudo-channel gives in a cycle at its peak."""
        return self.hbm.channel_bytes_per_second / GRANULE / self.clock_hz

    @property
    def granules_per_cycle(self) -> float:
        """Granules that one tile's pseudo-channels give in a cycle at their peak."""
        return self.tile.channels * self.rate

    @property
    def bandwidth(self) -> float:
        """Peak HBM bytes per second of the domain."""
        return self.all_tiles * self.tile.channels * self.hbm.channel_bytes_per_second

    @property
    def capacity(self) -> float:
        """HBM bytes of the domain."""
        return self.domain.chips * self.hbm.stacks * self.hbm.stack_gigabytes * 1e9

    @property
    def macs_per_second(self) -> float:
        """Multiply-accumulates per second of the domain's arrays at full use."""
        return self.all_tiles * self.tile.rows * self.tile.columns * 32 * self.clock_hz


def load(name: str | Path) -> Chip:
    """A chip by the name of its file in `chips/`, or from a path. Raises DescriptionError."""
    path = name if isinstance(name, Path) else FOLDER / f"{name}.toml"
    if not path.exists():
        known = ", ".join(sorted(p.stem for p in FOLDER.glob("*.toml")))
        raise DescriptionError(f"{path}: no such chip; there are: {known}")
    return make(Chip, read(path), path.name)


def simulated(values: Mapping[str, Any]) -> Chip:
    """The chip of an RTL run, from the `config.values` of its summary: one pseudo-channel of its generation a tile."""
    from hw.hbm.timing import GENERATIONS

    try:
        tile, mesh, generation = values["tile"], values["mesh"], values["hbm"]["generation"]
        clock, tiles = int(values["clock_hz"]), int(mesh["columns"]) * int(mesh["rows"])
        return Chip(
            name=f"simulated chip '{values['name']}' ({generation})",
            clock_hz=clock,
            columns=int(mesh["columns"]),
            rows=int(mesh["rows"]),
            tile=TileShape(int(tile["rows"]), int(tile["columns"]), int(tile["slots"])),
            hbm=Hbm(
                stacks=tiles / published("hbm4.channels").number,
                stack_gigabytes=published("hbm4.stack_capacity").number,
                channel_bytes_per_second=GRANULE * clock / GENERATIONS[generation].cycles().bl,
            ),
            power=Power(all_in_ratio=(1.0, 1.0), static_watts=(0.0, 0.0)),
        )
    except (KeyError, TypeError) as error:
        raise DescriptionError(f"the run's configuration lacks {error} that the extrapolation needs") from None
