"""Commands of a tile's attention as the compiler writes them, and their 256-bit encoding."""

from __future__ import annotations

from dataclasses import dataclass

from golden.attention import LEAF
from hw.numerics.formats import ElementFormat
from hw.tile.attention import attention_size
from hw.tile.config import LANES, TileConfig
from hw.tile.isa import AppendInstruction, AttendInstruction, Opcode, PageInstruction, SinkInstruction
from hw.tile.program import ProgramError, check_widths
from hw.tile.vector_program import Rows, check_memory
from hw.vector.append import AppendCommand
from hw.vector.leaves import AttentionCommand

__all__ = ["Append", "Attend", "Page", "Sinks", "partial_granules", "seen_leaves"]


@dataclass(frozen=True)
class Page:
    """Leaf `entry` of the page table lies at granule `granule` of the tile's memory."""

    entry: int
    granule: int

    def words(self, config: TileConfig) -> list[int]:
        """The instruction. Raises ProgramError for what the tile cannot do."""
        _check_built(config)
        fields = {"opcode": Opcode.PAGE, "entry": self.entry, "granule": self.granule}
        check_widths(fields, PageInstruction)
        return [int(PageInstruction.const(fields).as_bits())]


@dataclass(frozen=True)
class Append:
    """`rows` tokens from `position` on, each a row of its key, after RoPE, and behind it its value.

    `table`: entry of the page table that maps position 0. `latent`: the value is the key's first `value_size` channels,
    and the row is the key alone.
    """

    rows: int
    position: int
    source: Rows
    key_size: int
    value_size: int
    table: int = 0
    format: str = "MXINT8"
    latent: bool = False

    def words(self, config: TileConfig) -> list[int]:
        """The instruction. Raises ProgramError for what the tile cannot do."""
        _check_sizes(config, self)
        granules = (self.key_size + (0 if self.latent else self.value_size)) // LANES
        check_memory(config, self.source.address, self.source.address + (self.rows - 1) * self.source.stride + granules)
        token = {
            "position": self.position, "key_blocks": self.key_size // 32, "value_groups": self.value_size // 32,
            "table": self.table, "latent": int(self.latent), "element": ElementFormat[self.format],
        }  # fmt: skip
        check_widths(token, AppendCommand)
        fields = {
            "opcode": Opcode.APPEND, "rows": self.rows, "source": self.source.address,
            "source_stride": self.source.stride,
        }  # fmt: skip
        check_widths(fields, AppendInstruction)
        return [int(AppendInstruction.const({**fields, "token": token}).as_bits())]


@dataclass(frozen=True)
class Sinks:
    """Sink logits of the ATTENDs that name `slot`: `group` base-2 logits from granule `source` on, one after the other.

    Row r of `rows` gets logit r % `group`. They stay until the slot's next ones.
    """

    rows: int
    group: int
    source: int
    slot: int = 0

    def words(self, config: TileConfig) -> list[int]:
        """The instruction. Raises ProgramError for what the tile cannot do."""
        _check_built(config)
        if not 1 <= self.rows <= config.attention_rows or self.group < 1:
            raise ProgramError(
                f"This tile has sinks for 1 to {config.attention_rows} rows in groups of at least 1, not for "
                f"{self.rows} in groups of {self.group}"
            )
        check_memory(config, self.source, self.source + -(-min(self.group, self.rows) // LANES))
        fields = {
            "opcode": Opcode.SINK, "rows": self.rows, "group": self.group, "source": self.source, "slot": self.slot,
        }  # fmt: skip
        check_widths(fields, SinkInstruction)
        return [int(SinkInstruction.const(fields).as_bits())]


@dataclass(frozen=True)
class Attend:
    """Attention of `rows` quantised query rows of one key head over the positions from 0 on.

    Row r stands at `position` + r // `group`; the rows are activation blocks from `query_base` on. Their result lies at
    granules `result` and on, row after row.

    window: positions that a row sees, its own included; 0: all before it. latent: as in `Append`. sink: slot of the
    sink logits that take part; None: none.
    leaves: first and last leaf of a *partial* result, for a tile that has only these: rows that are not divided by
    their sum, and behind each row a granule with sum, maximum, sum, maximum, ... of it. The leaves that are seen among
    them have to be those of a node of the tree of neighbours. `golden.attention_program` joins them.
    """

    rows: int
    group: int
    position: int
    key_size: int
    value_size: int
    query_base: int
    result: int
    table: int = 0
    format: str = "MXINT8"
    window: int = 0
    latent: bool = False
    sink: int | None = None
    leaves: tuple[int, int] | None = None

    def words(self, config: TileConfig) -> list[int]:
        """The instruction. Raises ProgramError for what the tile cannot do."""
        _check_sizes(config, self)
        size = attention_size(config)
        first, last = self._leaves()
        if self.rows > size.max_rows or self.group < 1 or last >= config.attention_leaves:
            positions = config.attention_leaves * LEAF
            raise ProgramError(
                f"This tile attends with 1 to {size.max_rows} rows to positions below {positions}, not "
                f"with {self.rows} rows (groups of {self.group}) up to leaf {last}"
            )
        blocks = -(-self.rows // config.rows) * self.key_size // 32
        if self.query_base + blocks > size.weights_base:
            raise ProgramError(
                f"Query blocks {self.query_base} to {self.query_base + blocks - 1} reach into the softmax weights from "
                f"block {size.weights_base} on"
            )
        partial = self.leaves is not None
        row = partial_granules(self.value_size) if partial else self.value_size // LANES
        check_memory(config, self.result, self.result + self.rows * row)
        command = {
            "rows": self.rows, "group": self.group, "position": self.position, "window": self.window,
            "first_leaf": first, "last_leaf": last, "key_blocks": self.key_size // 32,
            "value_groups": self.value_size // 32, "query_base": self.query_base, "table": self.table,
            "latent": int(self.latent), "sink": int(self.sink is not None), "sink_slot": self.sink or 0,
            "partial": int(partial), "element": ElementFormat[self.format],
        }  # fmt: skip
        check_widths(command, AttentionCommand)
        fields = {"opcode": Opcode.ATTEND, "result": self.result, "command": command}
        return [int(AttendInstruction.const(fields).as_bits())]

    def _leaves(self) -> tuple[int, int]:
        """First and last leaf. Raises ProgramError for leaves that are no part of the tree."""
        seen = seen_leaves(self.rows, self.group, self.position, self.window)
        if self.leaves is None:
            return seen.start, seen.stop - 1
        first, last = self.leaves
        if self.sink is not None:
            raise ProgramError("A sink is merged behind all leaves, not in a partial result")
        if not 0 <= first <= last:
            raise ProgramError(f"A partial result is of leaves in ascending order, not of {first} to {last}")
        level = (first ^ last).bit_length()
        node = range(first >> level << level, (first >> level) + 1 << level)
        if any(leaf in node and not first <= leaf <= last for leaf in seen):
            raise ProgramError(
                f"Leaves {first} to {last} are not all that is seen of a node of the tree, leaves {node.start} to "
                f"{node.stop - 1}"
            )
        return first, last


def seen_leaves(rows: int, group: int, position: int, window: int = 0) -> range:
    """The leaves that the rows of an `Attend` see."""
    first = max(position - window + 1, 0) // LEAF if window else 0
    return range(first, (position + (rows - 1) // max(group, 1)) // LEAF + 1)


def partial_granules(value_size: int) -> int:
    """Granules of a row of a partial result."""
    return value_size // LANES + 1


def _check_built(config: TileConfig) -> None:
    if not config.attention_rows:
        raise ProgramError("This tile has no attention engine (tile.attention_rows is 0)")


def _check_sizes(config: TileConfig, command: Append | Attend) -> None:
    _check_built(config)
    size, key_size, value_size = attention_size(config), command.key_size, command.value_size
    if command.format not in size.formats:
        raise ProgramError(f"This tile's KV cache can be {', '.join(size.formats)}, not {command.format}")
    if command.rows < 1 or key_size < 32 or key_size % 32 or value_size % 32 or not 32 <= value_size <= size.value_size:
        raise ProgramError(
            f"Keys have a multiple of 32 channels, values too and at most {size.value_size}, not {key_size} and "
            f"{value_size} ({command.rows} rows)"
        )
    if command.latent and value_size > key_size:
        raise ProgramError(f"A latent value is a part of its key: {value_size} channels are not, of {key_size}")
