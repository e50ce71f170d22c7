"""Configuration of a tile, checked when it is made."""

from __future__ import annotations

from dataclasses import dataclass

from golden.formats import BLOCK, FORMATS, ScaleType

__all__ = ["BLOCK_GRANULES", "LANES", "TILE_FORMATS", "TileConfig"]

TILE_FORMATS = tuple(name for name, format in FORMATS.items() if format.bits in (4, 6, 8))
"""What the weight path of a tile can carry: elements of 4, 6 or 8 bits."""

LANES = 8
"""FP32 values in a granule of 32 bytes."""

BLOCK_GRANULES = BLOCK // LANES
"""Granules of FP32 values that make a block."""


@dataclass(frozen=True)
class TileConfig:
    """Parameters of a tile.

    Parameters
    ----------
    rows, columns : int
        Block-dot units of the array: `rows` activation blocks meet `columns` weight blocks each cycle. 1 to 64.
    slots : int
        Outputs of a column that one group interleaves, 1 to 64: a group is `columns * slots` outputs.
    passes : int
        Row passes that one job can hold, 1 to 64: a job has at most `rows * passes` positions.
    activation_depth : int
        Activation blocks in the memory of one row, 2 to 65536.
    instruction_depth : int
        Instructions of the program memory, 2 to 4096.
    weight_sets : int
        Operand sets (a block for each column) that the weight buffer holds, 2 to 4096, and of at least 64 blocks: what
        the memory brings while the array waits. It is also what the memory is asked for ahead, so it has to cover the
        memory's latency.
    formats : tuple of str
        Block formats of the multipliers, any of `TILE_FORMATS`, on either side of a product.
    vector_depth : int
        Granules of the vector memory, 2 to 65536; 0: no vector unit. With one, the tile quantises to those of its
        formats that have E8M0 scales.
    attention_rows : int
        Most query rows of an ATTEND, 1 to 255 (and `rows * passes`), see `hw.vector.leaves.AttentionSize`; 0: no
        attention engine. It needs a vector unit.
    attention_channels : int
        Channels of the longest value, a multiple of 32, 32 to 512.
    attention_leaves : int
        Leaves of 128 positions of the longest context, a power of two, 2 to 1024.
    attention_leaf_buffer : bool
        Latent leaves (MLA) are read once, see `hw.vector.leaves.AttentionSize`.
    """

    rows: int = 8
    columns: int = 4
    slots: int = 8
    passes: int = 16
    activation_depth: int = 2048
    instruction_depth: int = 64
    weight_sets: int = 128
    formats: tuple[str, ...] = ("MXINT8",)
    vector_depth: int = 0
    attention_rows: int = 0
    attention_channels: int = 64
    attention_leaves: int = 16
    attention_leaf_buffer: bool = False

    def __post_init__(self) -> None:
        limits = {
            "rows": (1, 64), "columns": (1, 64), "slots": (1, 64), "passes": (1, 64), "activation_depth": (2, 65536),
            "instruction_depth": (2, 4096), "weight_sets": (2, 4096),
        }  # fmt: skip
        for name, (low, high) in limits.items():
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
                raise ValueError(f"tile.{name} must be an integer from {low} to {high}, not {value!r}")
        if self.weight_blocks < 64:
            raise ValueError(
                f"tile.weight_sets must be at least {-(-64 // self.columns) + 1} with {self.columns} columns, not "
                f"{self.weight_sets!r}"
            )
        depth = self.vector_depth
        if not isinstance(depth, int) or isinstance(depth, bool) or (depth and not 2 <= depth <= 65536):
            raise ValueError(f"tile.vector_depth must be 0 (no vector unit) or 2 to 65536, not {depth!r}")
        self._check_attention()
        object.__setattr__(self, "formats", tuple(self.formats))
        for name in self.formats:
            if name not in TILE_FORMATS:
                raise ValueError(f"tile.formats has {name!r}; allowed are {', '.join(TILE_FORMATS)}")
        if not self.formats:
            raise ValueError(f"tile.formats is empty; allowed are {', '.join(TILE_FORMATS)}")
        if depth and not self.quantised_formats:
            raise ValueError(f"a vector unit needs a format with E8M0 scales among tile.formats, not {self.formats}")

    def _check_attention(self) -> None:
        rows, channels, leaves = self.attention_rows, self.attention_channels, self.attention_leaves
        if not isinstance(rows, int) or isinstance(rows, bool) or not 0 <= rows <= min(255, self.rows * self.passes):
            most = min(255, self.rows * self.passes)
            raise ValueError(f"tile.attention_rows must be from 0 (no attention engine) to {most}, not {rows!r}")
        if rows and not self.vector_depth:
            raise ValueError("tile.attention_rows needs a vector unit: tile.vector_depth is 0")
        if channels not in range(32, 513, 32):
            raise ValueError(f"tile.attention_channels must be a multiple of 32 from 32 to 512, not {channels!r}")
        if not isinstance(self.attention_leaf_buffer, bool):
            raise ValueError(f"tile.attention_leaf_buffer must be true or false, not {self.attention_leaf_buffer!r}")
        if leaves not in [1 << level for level in range(1, 11)]:
            raise ValueError(f"tile.attention_leaves must be a power of two from 2 to 1024, not {leaves!r}")

    @property
    def quantised_formats(self) -> tuple[str, ...]:
        """Formats that the tile's quantiser makes: its own with E8M0 scales."""
        return tuple(name for name in self.formats if FORMATS[name].scale == ScaleType.E8M0)

    @property
    def weight_blocks(self) -> int:
        """Blocks that the memory may be asked for before the array takes them: the buffer but the set in the making."""
        return self.columns * (self.weight_sets - 1)

    @property
    def fragments(self) -> int:
        """Slots whose outputs share a result granule: as many runs of `columns` values as eight lanes hold."""
        return max(1, LANES // self.columns)

    @property
    def pieces(self) -> int:
        """Result granules that the `columns` outputs of one slot take."""
        return -(-self.columns // LANES)

    @property
    def key(self) -> str:
        """Text that tells apart the array rows of different configurations; part of module names."""
        formats = "_".join(sorted(self.formats)).lower()
        return f"{self.columns}c_{self.slots}s_{self.passes}p_{self.activation_depth}a_{formats}"

    @property
    def vector_key(self) -> str:
        """Text that tells apart the vector sides of different configurations; part of module names."""
        formats = "_".join(sorted(self.quantised_formats)).lower()
        return f"{self.rows}r_{self.vector_depth}_{self.attention_rows}_{self.attention_channels}_{formats}"

    @property
    def macs_per_cycle(self) -> int:
        """Multiply-accumulates a cycle at full utilisation."""
        return self.rows * self.columns * 32

    def group_granules(self, slots: int) -> int:
        """Result granules of one position's outputs of a group of `slots` slots."""
        return -(-slots // self.fragments) * self.pieces
