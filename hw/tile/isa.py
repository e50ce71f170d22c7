"""What crosses a tile's borders, as data structures: instructions, remote writes, counters.

The one definition for the hardware, the compiler and the golden machine. An instruction is a granule (256 bits).
"""

from amaranth.hdl import unsigned
from amaranth.lib import data, enum

from hw.numerics.formats import ElementFormat
from hw.vector.append import AppendCommand
from hw.vector.isa import STREAMS, EngineCommand
from hw.vector.leaves import AttentionCommand
from hw.vector.unit import Place

__all__ = [
    "ARRIVALS", "COUNTERS", "ROW_BITS", "AppendInstruction", "AttendInstruction", "Block", "Counters", "Instruction",
    "Memory", "MoveInstruction", "Node", "Opcode", "PageInstruction", "PlacesInstruction", "Rectangle", "RemoteWrite",
    "SinkInstruction", "TileError", "VectorInstruction", "WeightRange",
]  # fmt: skip

ARRIVALS = 8
"""Arrival counters of a tile."""

ROW_BITS = 6
"""Bits of an activation block's address that name the array row; the rest is the index in the row's memory."""


class Opcode(enum.Enum, shape=4):
    """What an instruction does. Instructions execute in order; weights of later ones are fetched ahead."""

    HALT = 0
    """Wait until everything before is finished and sent, then stop; the tile is done."""
    MATMUL = 1
    """One matrix product: activations in the tile's memory times weights in its HBM, results to `destination`."""
    AWAIT = 2
    """Wait until arrival counter `counter` has counted `count` remote writes, and take them off it."""
    SIGNAL = 3
    """Tell the host `tag`, behind all results of earlier instructions."""
    PLACES = 4
    """Where the streams of the VECTOR instructions behind it lie (`PlacesInstruction`)."""
    VECTOR = 5
    """One command of the vector unit (`VectorInstruction`); done when its results are in the vector memory."""
    QUANTISE = 6
    """Rows of the vector memory as activation blocks to `destination`; done when they are sent."""
    SEND = 7
    """Rows of the vector memory as they are, as results to `destination`; done when they are sent."""
    PAGE = 8
    """An entry of the KV cache's page table (`PageInstruction`)."""
    APPEND = 9
    """Keys and values from rows of the vector memory into the KV cache (`AppendInstruction`); done when written."""
    ATTEND = 10
    """Attention of one key head (`AttendInstruction`); done when its result is in the vector memory."""
    SINK = 11
    """Sink logits from the vector memory into a slot of the attention engine (`SinkInstruction`)."""


class Memory(enum.Enum, shape=2):
    """What a remote write addresses at its destination."""

    ACTIVATIONS = 0
    """A tile's activation block; address = index in the row's memory * 64 + row."""
    PROGRAM = 1
    """A tile's instruction."""
    RESULTS = 2
    """At the host port: a granule of its result memory. At a tile: a granule of its vector memory."""
    SIGNAL = 3
    """At the host port: its signal counter, the data is the tag. At a tile: start the program, counters at zero."""


class Block(data.Struct):
    """32 elements and their scale word; 8-bit codes, narrower formats and words in the low bits."""

    elements: data.ArrayLayout(8, 32)
    scale: 32


class RemoteWrite(data.Struct):
    """Payload of a flit: one granule or block, and where it goes at the destination.

    An activation block or a granule that comes to a tile adds one to the tile's arrival counter `counter`.
    """

    memory: Memory
    address: 22
    counter: range(ARRIVALS)
    data: Block


class WeightRange(data.Struct):
    """Granules of the tile's HBM to read in order: `address`, and `length` of at least 1."""

    address: 32
    length: 24


class Node(data.Struct):
    """A port of the mesh: column, row, local port."""

    x: 6
    y: 6
    port: 1


class Rectangle(data.Struct):
    """Local port `port` of every node of a rectangle; of more than one node it is port 0."""

    x_first: 6
    x_last: 6
    y_first: 6
    y_last: 6
    port: 1


class Instruction(data.Struct):
    """Fields of HALT, MATMUL, AWAIT and SIGNAL; an instruction ignores what its opcode does not name.

    MATMUL: [rows, k_blocks*32] activations of `activation_format` at `activation_base` (row m, block k is block
    `activation_base + (m // array rows) * k_blocks + k` of array row `m % array rows`), times the weights of
    `weight_format` at granule `weight_address` and on (layout in docs/interfaces.md, groups of `slots` * array columns
    outputs; `slot_columns` = outputs / array columns). Position m's results go to granules
    `result_address + m * result_stride` and on at `destination`, and count on arrival counter `counter` of tiles.
    `passes` = ceil(rows / array rows). With `record`, the counters follow at granules `record_address` and on of
    `record_destination`, behind the results.
    """

    opcode: Opcode
    activation_format: ElementFormat
    weight_format: ElementFormat
    weight_address: 32
    k_blocks: 12
    slot_columns: 16
    slots: 7
    rows: 13
    passes: 7
    activation_base: 16
    destination: Rectangle
    result_address: 22
    result_stride: 16
    counter: range(ARRIVALS)
    record: 1
    record_address: 22
    record_destination: Node
    count: 24
    padding: 15


class PlacesInstruction(data.Struct):
    """PLACES: what `hw.vector.unit.UnitCommand` has besides the engine's command; places are granules."""

    opcode: Opcode
    operands: data.ArrayLayout(Place, len(STREAMS))
    result: Place
    reduced: 16
    early: 1


class VectorInstruction(data.Struct):
    """VECTOR: the engine's command."""

    opcode: Opcode
    engine: EngineCommand


class MoveInstruction(data.Struct):
    """QUANTISE and SEND: `rows` rows from granules `source + m * source_stride` of the vector memory.

    QUANTISE: rows of `length` blocks of 32 FP32 values, in format `element`: row m, block k becomes block `target +
    (m // array rows) * target_stride + k` of array row `m % array rows`. SEND: rows of `length` granules, to granules
    `target + m * target_stride`. They count on arrival counter `counter` of tiles.
    """

    opcode: Opcode
    element: ElementFormat
    rows: 13
    length: 12
    source: 16
    source_stride: 16
    destination: Rectangle
    counter: range(ARRIVALS)
    target: 22
    target_stride: 16


class PageInstruction(data.Struct):
    """PAGE: leaf `entry` of the page table lies at granule `granule` of the tile's HBM."""

    opcode: Opcode
    entry: 8
    granule: 32


class AppendInstruction(data.Struct):
    """APPEND: `rows` tokens from position `token.position` on, from granules `source + m * source_stride`: the key,
    after RoPE, and behind it the value.
    """

    opcode: Opcode
    rows: 13
    source: 16
    source_stride: 16
    token: AppendCommand


class AttendInstruction(data.Struct):
    """ATTEND: the command of `hw.vector.attention.AttentionEngine`; its rows one after the other from granule `result`
    of the vector memory on; of a partial one, each with a granule of sum and maximum behind it.
    """

    opcode: Opcode
    result: 16
    command: AttentionCommand


class SinkInstruction(data.Struct):
    """SINK: row r of an ATTEND that names `slot` gets value r % `group` of those that lie at granule `source` and on,
    eight to a granule: a base-2 logit; `rows` rows.
    """

    opcode: Opcode
    rows: 8
    group: 8
    source: 16
    slot: 1


assert data.Layout.cast(Instruction).size == 256, "an instruction is a granule"


class TileError(enum.Enum, shape=2):
    """Why a tile refused a program. The tile stops at the instruction and reports `done` with the error."""

    NONE = 0
    OPCODE = 1
    FORMAT = 2
    SIZE = 3
    """Of a size that the build cannot do; or a write of the KV cache that the memory refused, a page beyond it."""


COUNTERS = (
    "cycles",  # since start
    "issue",  # the array took a set of operands
    "block_dots",  # block dot products of rows and columns that exist (32 multiply-accumulates each)
    "stall_weights",  # a job waited for weights
    "stall_activations",  # no job: the program waited for activations
    "stall_results",  # a job waited for accumulators that were not yet sent
    "stall_order",  # a job waited for its own accumulation, to keep K ascending
    "idle",  # no job for another reason: before the first, or at the end
    "weight_granules",  # granules of weights taken from the memory
    "activation_blocks",  # blocks received
    "result_granules",  # granules sent
    "weight_wait",  # cycles in which the next weights were not asked for: the weight buffer had no room
    "stall_vector",  # no job: the program was in VECTOR, QUANTISE, SEND, APPEND, SINK, or an ATTEND that had not begun
    "vector",  # cycles of those instructions, whether the array had a job or not
    "attention",  # an ATTEND ran; what the array did then is in no other counter but `cycles`
    "cache_granules",  # granules taken from the memory by an ATTEND
)
"""Counters of a tile, 32 bits each, in the order of a record (two granules, zero padded)."""

Counters = data.StructLayout({name: unsigned(32) for name in COUNTERS})
