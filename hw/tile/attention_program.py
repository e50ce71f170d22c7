"""Commands of a tile's attention as the compiler writes them, and their 256-bit encoding."""

from __future__ import annotations

from dataclasses import dataclass

from golden.attention import LEAF
from hw.numerics.formats import ElementFormat
from hw.tile.attention import attention_size
from hw.tile.config import LANES, TileConfig
from hw.tile.isa import AppendInstruction, AttendInstruction, Opcode, PageInstruction
from hw.tile.program import ProgramError, check_widths
from hw.tile.vector_program import Rows, check_memory
from hw.vector.append import AppendCommand
from hw.vector.leaves import AttentionCommand

__all__ = ["Append", "Attend", "Page"]

_BLOCK_GRANULES = 32 // LANES


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

    `table`: entry of the page table that maps position 0.
    """

    rows: int
    position: int
    source: Rows
    key_size: int
    value_size: int
    table: int = 0
    format: str = "MXINT8"

    def words(self, config: TileConfig) -> list[int]:
        """The instruction. Raises ProgramError for what the tile cannot do."""
        _check_sizes(config, self.rows, self.key_size, self.value_size, self.format)
        granules = (self.key_size + self.value_size) // LANES
        check_memory(config, self.source.address, self.source.address + (self.rows - 1) * self.source.stride + granules)
        token = {
            "position": self.position, "key_blocks": self.key_size // 32, "value_groups": self.value_size // 32,
            "table": self.table, "latent": 0, "element": ElementFormat[self.format],
        }  # fmt: skip
        check_widths(token, AppendCommand)
        fields = {
            "opcode": Opcode.APPEND, "rows": self.rows, "source": self.source.address,
            "source_stride": self.source.stride,
        }  # fmt: skip
        check_widths(fields, AppendInstruction)
        return [int(AppendInstruction.const({**fields, "token": token}).as_bits())]


@dataclass(frozen=True)
class Attend:
    """Attention of `rows` quantised query rows of one key head over the positions from 0 on.

    Row r stands at `position` + r // `group`; the rows are activation blocks from `query_base` on. Their result lies at
    granules `result` and on, row after row.
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

    def words(self, config: TileConfig) -> list[int]:
        """The instruction. Raises ProgramError for what the tile cannot do."""
        _check_sizes(config, self.rows, self.key_size, self.value_size, self.format)
        size = attention_size(config)
        last = (self.position + (self.rows - 1) // self.group) // LEAF
        if self.rows > size.max_rows or last >= config.attention_leaves:
            positions = config.attention_leaves * LEAF
            raise ProgramError(
                f"This tile attends with 1 to {size.max_rows} rows to positions below {positions}, not "
                f"with {self.rows} rows up to leaf {last}"
            )
        blocks = -(-self.rows // config.rows) * self.key_size // 32
        if self.query_base + blocks > size.weights_base:
            raise ProgramError(
                f"Query blocks {self.query_base} to {self.query_base + blocks - 1} reach into the softmax weights from "
                f"block {size.weights_base} on"
            )
        check_memory(config, self.result, self.result + self.rows * self.value_size // LANES)
        command = {
            "rows": self.rows, "group": self.group, "position": self.position, "window": 0, "first_leaf": 0,
            "last_leaf": last, "key_blocks": self.key_size // 32, "value_groups": self.value_size // 32,
            "query_base": self.query_base, "table": self.table, "latent": 0, "sink": 0, "sink_slot": 0,
            "element": ElementFormat[self.format],
        }  # fmt: skip
        check_widths(command, AttentionCommand)
        fields = {"opcode": Opcode.ATTEND, "result": self.result, "command": command}
        return [int(AttendInstruction.const(fields).as_bits())]


def _check_built(config: TileConfig) -> None:
    if not config.attention_rows:
        raise ProgramError("This tile has no attention engine (tile.attention_rows is 0)")


def _check_sizes(config: TileConfig, rows: int, key_size: int, value_size: int, format: str) -> None:
    _check_built(config)
    size = attention_size(config)
    if format not in size.formats:
        raise ProgramError(f"This tile's KV cache can be {', '.join(size.formats)}, not {format}")
    if rows < 1 or key_size < 32 or key_size % 32 or value_size % 32 or not 32 <= value_size <= size.value_size:
        raise ProgramError(
            f"Keys have a multiple of 32 channels, values too and at most {size.value_size}, not {key_size} and "
            f"{value_size} ({rows} rows)"
        )
