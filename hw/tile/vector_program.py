"""Commands of a tile's vector side as the compiler writes them, and their 256-bit encoding."""

from __future__ import annotations

from dataclasses import dataclass, field

from amaranth.lib import data

from golden.fp32_ops import MINUS_ONE, NEGATIVE_ZERO, ONE, ZERO
from golden.vector import Combine, Function, Reduce
from hw.numerics.formats import ElementFormat
from hw.tile.config import LANES, TileConfig
from hw.tile.isa import MoveInstruction, Opcode, PlacesInstruction, VectorInstruction
from hw.tile.program import Destination, ProgramError, check_widths
from hw.tile.vector import MAX_LENGTH
from hw.vector.isa import STREAMS, Source, StreamMode

__all__ = ["Each", "Quantise", "Rows", "Send", "Vector", "check_memory"]

_CONSTANTS = {int(ONE): Source.ONE, int(MINUS_ONE): Source.MINUS_ONE, int(ZERO): Source.ZERO,
              int(NEGATIVE_ZERO): Source.NEGATIVE_ZERO}  # fmt: skip


@dataclass(frozen=True)
class Rows:
    """Rows of the vector memory: row m at granules `address + m * stride` and on."""

    address: int
    stride: int = 0


@dataclass(frozen=True)
class Each:
    """One value a row: those of rows 0 to 7 at granule `address`, and so on."""

    address: int


Operand = Rows | Each | int
"""An int is an FP32 pattern, the same for all elements; two besides 1, -1, 0 and -0 in a command."""


@dataclass(frozen=True)
class Vector:
    """One pass of the vector engine (`golden.vector.vector_pass`) over `rows` rows of `length` elements.

    `result` None: r is not kept. `reduced`: where the reductions go, one a row, eight to a granule. `early` as in
    `hw.vector.unit.UnitCommand`. Two instructions: PLACES and VECTOR.
    """

    rows: int
    length: int
    x: Operand
    y: Operand = int(ONE)
    z: Operand = int(NEGATIVE_ZERO)
    w: Operand = int(ONE)
    v: Operand = int(ONE)
    combine: Combine = Combine.ADD
    function: Function = Function.NONE
    reduce: Reduce = Reduce.NONE
    result: Rows | None = None
    reduced: int = 0
    early: bool = False
    mask: dict[str, int] = field(default_factory=dict)
    """`mask_low`, `mask_high`, `mask_group` of `hw.vector.isa.EngineCommand`; none: no mask."""

    def words(self, config: TileConfig) -> list[int]:
        """The instructions. Raises ProgramError for what the tile cannot do."""
        _check_built(config)
        if self.rows < 1 or self.length < 1:
            raise ProgramError(f"A vector command has at least 1 row of 1 element, not {self.rows} of {self.length}")
        if self.reduce != Reduce.NONE and self.length > MAX_LENGTH:
            raise ProgramError(f"The vector unit reduces rows of up to {MAX_LENGTH} elements, not {self.length}")
        sources, streams, immediates = {}, [], []
        for name in "xyzwv":
            sources[name] = _source(getattr(self, name), streams, immediates)
        places, modes = [], []
        for operand in streams:
            by_row = isinstance(operand, Each)
            modes.append((StreamMode.ROW if by_row else StreamMode.BEAT).value)
            places.append(_place(operand.address, 0 if by_row else operand.stride))
            self._check_place(config, operand)
        if self.result is not None:
            self._check_place(config, self.result)
        if self.reduce != Reduce.NONE:
            self._check_place(config, Each(self.reduced))
        result = _place(self.result.address, self.result.stride) if self.result else _place(0, 0)
        fields = {
            "opcode": Opcode.PLACES, "operands": dict(enumerate(places)), "result": result, "reduced": self.reduced,
            "early": int(self.early),
        }  # fmt: skip
        engine = {
            "length": self.length, "rows": self.rows, "operands": sources, "modes": dict(enumerate(modes)),
            "combine": int(self.combine), "function": int(self.function), "reduce": int(self.reduce),
            "write": int(self.result is not None), "immediates": dict(enumerate(immediates)),
            "mask": int(bool(self.mask)), **self.mask,
        }  # fmt: skip
        return [
            int(PlacesInstruction.const(fields).as_bits()),
            int(VectorInstruction.const({"opcode": Opcode.VECTOR, "engine": engine}).as_bits()),
        ]

    def _check_place(self, config: TileConfig, place: Rows | Each) -> None:
        if isinstance(place, Each):
            end = place.address + -(-self.rows // LANES)
        else:
            end = place.address + (self.rows - 1) * place.stride + -(-self.length // LANES)
        check_memory(config, place.address, end)


@dataclass(frozen=True)
class Quantise:
    """`rows` rows of `blocks` blocks of 32 values, from `source` on, as activation blocks to tiles.

    Row m, block k becomes block `target + (m // array rows) * target_stride + k` of array row `m % array rows`.
    """

    rows: int
    blocks: int
    source: Rows
    destination: Destination
    target: int
    target_stride: int
    counter: int = 0
    format: str = "MXINT8"

    def words(self, config: TileConfig) -> list[int]:
        """The instruction. Raises ProgramError for what the tile cannot do."""
        if self.format not in config.quantised_formats:
            known = ", ".join(config.quantised_formats)
            raise ProgramError(f"This tile quantises to {known}, not to {self.format}")
        passes = -(-self.rows // config.rows)
        end = self.target + (passes - 1) * self.target_stride + self.blocks
        if self.rows >= 1 and not 0 <= self.target < end <= config.activation_depth:
            raise ProgramError(
                f"Blocks {self.target} to {end - 1} do not fit in an activation memory of "
                f"{config.activation_depth} blocks"
            )
        element = ElementFormat[self.format]
        return _move(config, self, Opcode.QUANTISE, self.blocks, 4 * self.blocks, element)


@dataclass(frozen=True)
class Send:
    """`rows` rows of `granules` granules from `source` on, to granules `target + m * target_stride` there."""

    rows: int
    granules: int
    source: Rows
    destination: Destination
    target: int
    target_stride: int
    counter: int = 0

    def words(self, config: TileConfig) -> list[int]:
        """The instruction. Raises ProgramError for what the tile cannot do."""
        return _move(config, self, Opcode.SEND, self.granules, self.granules, ElementFormat[config.formats[0]])


def _move(
    config: TileConfig, move: Quantise | Send, opcode: Opcode, length: int, granules: int, element: ElementFormat
) -> list[int]:
    _check_built(config)
    if move.rows < 1 or length < 1:
        raise ProgramError(f"At least 1 row of 1 is sent, not {move.rows} of {length}")
    source = move.source
    check_memory(config, source.address, source.address + (move.rows - 1) * source.stride + granules)
    fields = {
        "opcode": opcode, "element": element, "rows": move.rows, "length": length, "source": source.address,
        "source_stride": source.stride, "destination": move.destination.rectangle(), "counter": move.counter,
        "target": move.target, "target_stride": move.target_stride,
    }  # fmt: skip
    check_widths(fields, MoveInstruction)
    return [int(MoveInstruction.const(fields).as_bits())]


def _check_built(config: TileConfig) -> None:
    if not config.vector_depth:
        raise ProgramError("This tile has no vector unit (tile.vector_depth is 0)")


def check_memory(config: TileConfig, start: int, end: int) -> None:
    """Raises ProgramError where granules `start` to `end` - 1 are not in the vector memory."""
    if not 0 <= start < end <= config.vector_depth:
        raise ProgramError(
            f"Granules {start} to {end - 1} do not fit in a vector memory of {config.vector_depth} granules"
        )


def _place(address: int, stride: int) -> dict[str, int]:
    if not 0 <= stride < 1 << 16:
        raise ProgramError(f"A stride must be from 0 to 65535, not {stride}")
    return {"address": address, "stride": stride, "external": 0}


def _source(operand: Operand, streams: list[Rows | Each], immediates: list[int]) -> int:
    """The engine's source for an operand; equal operands share a stream or an immediate."""
    if isinstance(operand, Rows | Each):
        if operand not in streams:
            streams.append(operand)
            if len(streams) > len(STREAMS):
                raise ProgramError(f"A vector command reads at most {len(STREAMS)} places")
        return int(Source[STREAMS[streams.index(operand)].upper()].value)
    if operand in _CONSTANTS:
        return int(_CONSTANTS[operand].value)
    if operand not in immediates:
        immediates.append(operand)
        if len(immediates) > 2:
            raise ProgramError("A vector command has at most two immediates")
    return int(Source[f"IMMEDIATE_{immediates.index(operand)}"].value)


assert data.Layout.cast(PlacesInstruction).size <= 256 and data.Layout.cast(VectorInstruction).size <= 256
