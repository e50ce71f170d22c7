"""Programs for tiles: commands as the compiler writes them, and their 256-bit encoding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from amaranth.lib import data

from golden.formats import BLOCK, FORMATS, pair_problem
from hw.numerics.formats import ElementFormat
from hw.tile.config import TileConfig
from hw.tile.isa import Instruction, Opcode

__all__ = [
    "Await", "Command", "Destination", "Halt", "Matmul", "ProgramError", "Signal", "check_widths", "encode",
    "encode_program", "slots_for",
]  # fmt: skip


class ProgramError(ValueError):
    """A command that the tile cannot do; the message says what is allowed."""


@dataclass(frozen=True)
class Destination:
    """A port of the mesh; with `x_last` or `y_last`, port 0 of every node of a rectangle from (x, y) on."""

    x: int
    y: int
    port: int = 0
    x_last: int | None = None
    y_last: int | None = None

    def rectangle(self) -> dict[str, int]:
        """Fields of `hw.tile.isa.Rectangle`. Raises ProgramError for a rectangle that is none."""
        x_last, y_last = self.x if self.x_last is None else self.x_last, self.y if self.y_last is None else self.y_last
        if x_last < self.x or y_last < self.y or (self.port and (x_last, y_last) != (self.x, self.y)):
            raise ProgramError(f"A destination is one port, or port 0 of a rectangle of nodes, not {self}")
        return {"x_first": self.x, "x_last": x_last, "y_first": self.y, "y_last": y_last, "port": self.port}


@dataclass(frozen=True)
class Matmul:
    """[rows, inputs] activations times [outputs, inputs] weights; fields as in `hw.tile.isa.Instruction`.

    `record_address` None: no record; `record_destination` None: where the results go.
    """

    rows: int
    inputs: int
    outputs: int
    weight_address: int
    activation_base: int
    destination: Destination
    result_address: int
    result_stride: int
    activation_format: str = "MXINT8"
    weight_format: str = "MXINT8"
    record_address: int | None = None
    record_destination: Destination | None = None
    counter: int = 0

    def fields(self, config: TileConfig) -> dict[str, object]:
        """Instruction fields. Raises ProgramError for what the tile cannot do."""
        for name in (self.activation_format, self.weight_format):
            if name not in config.formats:
                raise ProgramError(f"Format {name} is not built into this tile; it has {', '.join(config.formats)}")
        problem = pair_problem(FORMATS[self.activation_format], FORMATS[self.weight_format])
        if problem:
            raise ProgramError(problem)
        positions = config.rows * config.passes
        if not 1 <= self.rows <= positions:
            raise ProgramError(f"A product has 1 to {positions} positions on this tile, not {self.rows}")
        if self.outputs < 1 or self.inputs < 1 or self.inputs % BLOCK:
            raise ProgramError(f"A product is [outputs, a multiple of {BLOCK}], not [{self.outputs}, {self.inputs}]")
        k_blocks, passes = self.inputs // BLOCK, -(-self.rows // config.rows)
        if self.activation_base + passes * k_blocks > config.activation_depth:
            raise ProgramError(
                f"{passes} passes of {k_blocks} blocks from block {self.activation_base} on do not fit in an "
                f"activation memory of {config.activation_depth} blocks"
            )
        fields = {
            "opcode": Opcode.MATMUL,
            "activation_format": ElementFormat[self.activation_format],
            "weight_format": ElementFormat[self.weight_format],
            "weight_address": self.weight_address,
            "k_blocks": k_blocks,
            "slot_columns": -(-self.outputs // config.columns),
            "slots": slots_for(config, self.outputs),
            "rows": self.rows,
            "passes": passes,
            "activation_base": self.activation_base,
            "destination": self.destination.rectangle(),
            "result_address": self.result_address,
            "result_stride": self.result_stride,
            "counter": self.counter,
            "record": int(self.record_address is not None),
            "record_address": self.record_address or 0,
            "record_destination": _node(self.record_destination or self.destination),
        }
        check_widths(fields, Instruction)
        return fields

    def group(self, config: TileConfig) -> int:
        """Outputs of a whole group, which the layout of the weights follows."""
        return slots_for(config, self.outputs) * config.columns

    def position_granules(self, config: TileConfig) -> int:
        """Result granules of one position: at least what `result_stride` must be."""
        slot_columns, slots = -(-self.outputs // config.columns), slots_for(config, self.outputs)
        whole, rest = divmod(slot_columns, slots)
        return whole * config.group_granules(slots) + (config.group_granules(rest) if rest else 0)


@dataclass(frozen=True)
class Await:
    """Wait for `count` activation blocks and granules on arrival counter `counter`."""

    count: int
    counter: int = 0

    def fields(self, config: TileConfig) -> dict[str, object]:
        fields = {"opcode": Opcode.AWAIT, "count": self.count, "counter": self.counter}
        check_widths(fields, Instruction)
        return fields


@dataclass(frozen=True)
class Signal:
    """Tell the host `tag` when everything before is sent."""

    tag: int
    destination: Destination

    def fields(self, config: TileConfig) -> dict[str, object]:
        return {"opcode": Opcode.SIGNAL, "count": self.tag, "destination": self.destination.rectangle()}


@dataclass(frozen=True)
class Halt:
    """The end of a program."""

    def fields(self, config: TileConfig) -> dict[str, object]:
        return {"opcode": Opcode.HALT}


class VectorSide(Protocol):
    """A command of the vector side (`hw.tile.vector_program`): one or more instructions."""

    def words(self, config: TileConfig) -> list[int]: ...


Command = Matmul | Await | Signal | Halt | VectorSide


def slots_for(config: TileConfig, outputs: int) -> int:
    """Slots of a group: groups as large as the tile allows, and as equal as they can be."""
    slot_columns = -(-outputs // config.columns)
    groups = -(-slot_columns // config.slots)
    return -(-slot_columns // groups)


def encode(config: TileConfig, command: Matmul | Await | Signal | Halt) -> int:
    """The 256-bit instruction. Raises ProgramError for what the tile cannot do."""
    return int(Instruction.const(command.fields(config)).as_bits())


def encode_all(config: TileConfig, commands: Sequence[Command]) -> list[int]:
    """The instructions of all commands."""
    plain = (Matmul, Await, Signal, Halt)
    return [
        word
        for command in commands
        for word in ([encode(config, command)] if isinstance(command, plain) else command.words(config))
    ]


def encode_program(config: TileConfig, commands: Sequence[Command]) -> list[int]:
    """All instructions of a program, which must end with Halt and fit in the tile's program memory."""
    if not commands or not isinstance(commands[-1], Halt):
        raise ProgramError("A program must end with Halt")
    words = encode_all(config, commands)
    if len(words) > config.instruction_depth:
        raise ProgramError(f"A program has at most {config.instruction_depth} instructions, not {len(words)}")
    return words


def _node(destination: Destination) -> dict[str, int]:
    return {"x": destination.x, "y": destination.y, "port": destination.port}


def check_widths(fields: dict[str, object], instruction: type[data.Struct]) -> None:
    """Raises ProgramError where a number does not fit in its field."""
    for name, value in fields.items():
        if isinstance(value, int):
            width = data.Layout.cast(instruction)[name].width
            if not 0 <= value < 1 << width:
                raise ProgramError(f"{name} must be from 0 to {(1 << width) - 1}, not {value}")
