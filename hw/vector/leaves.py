"""Leaves of attention: the command, the size of a build, and the one order in which everything happens."""

from dataclasses import dataclass

from amaranth.hdl import Cat, Module, Mux, Signal, signed, unsigned
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from golden.formats import FORMATS, ScaleType
from hw.fifo import StreamFifo
from hw.numerics.formats import ElementFormat
from hw.tile.config import LANES, TileConfig

__all__ = [
    "LANDINGS", "LEAF", "PAGES", "SEQUENCES", "SQUARES", "AttentionCommand", "AttentionSize", "LeafItem", "LeafOrder",
    "Part", "broadcast",
]  # fmt: skip

LEAF = 128
SQUARES = LEAF // 32
"""Blocks of positions in a leaf."""
PAGES = 256
LANDINGS = 4
"""Leaves whose outputs can wait for their merge."""
SEQUENCES = 8
"""Leaves under way are numbered modulo this; at most LANDINGS + 2 are."""


@dataclass(frozen=True)
class AttentionSize:
    """Limits of a build of the attention engine.

    Parameters
    ----------
    tile: its array; columns are a power of two from 2 to 32, `slots` at least 32 / columns.
    max_rows: most query rows of a command, at most rows * passes.
    max_value_groups: most 32-channel groups of a value, 1 to 16.
    levels: levels of the merge tree: up to 2**levels leaves, 1 to 10.
    lanes: vector lanes of each array row: 2, 4 or 8, at most `columns`. With 0.375 * columns of them the softmax of
        heads of 64 keeps up with the array.
    leaf_buffer: the values of latent leaves are kept as their keys go by, and not read again (256 bytes for each
        channel of the longest value: two leaves), and the array gets two blocks a cycle.
    """

    tile: TileConfig
    max_rows: int
    max_value_groups: int
    levels: int = 7
    lanes: int = 2
    leaf_buffer: bool = False

    def __post_init__(self) -> None:
        tile, most = self.tile, self.tile.rows * self.tile.passes
        if tile.columns not in (2, 4, 8, 16, 32) or tile.slots < 32 // tile.columns:
            shown = f"{tile.columns} columns and {tile.slots} slots"
            raise ValueError(f"Attention needs 2, 4, 8, 16 or 32 columns, and 32 / columns slots, not {shown}")
        if not 1 <= self.max_rows <= min(most, 255):
            raise ValueError(f"max_rows must be from 1 to rows * passes = {most} and 255, not {self.max_rows}")
        if not 1 <= self.max_value_groups <= 16:
            raise ValueError(f"max_value_groups must be from 1 to 16, not {self.max_value_groups}")
        if not 1 <= self.levels <= 10:
            raise ValueError(f"levels must be from 1 to 10, not {self.levels}")
        if self.lanes not in (2, 4, 8) or self.lanes > tile.columns:
            raise ValueError(f"lanes must be 2, 4 or 8, and at most {tile.columns} (columns), not {self.lanes}")
        if not self.formats:
            raise ValueError(f"Attention needs an 8-bit format among the tile's, not only {', '.join(tile.formats)}")
        if self.weights_base < 0:
            shown = f"activation_depth {tile.activation_depth} does not hold the weights of {self.max_rows} rows"
            raise ValueError(shown)

    @property
    def formats(self) -> tuple[str, ...]:
        """Formats that a cache can have: 8-bit elements with E8M0 scales."""
        return tuple(n for n in self.tile.formats if FORMATS[n].bits == 8 and FORMATS[n].scale == ScaleType.E8M0)

    @property
    def at_once(self) -> int:
        """Blocks for the array in a cycle."""
        return 2 if self.leaf_buffer else 1

    @property
    def passes(self) -> int:
        """Passes of the array over the most rows."""
        return -(-self.max_rows // self.tile.rows)

    @property
    def weights_base(self) -> int:
        """First activation block of the softmax weights: two leaves' at the end of the activation memory."""
        return self.tile.activation_depth - 2 * SQUARES * self.passes

    @property
    def value_size(self) -> int:
        """Channels of the longest value."""
        return 32 * self.max_value_groups

    @property
    def row_granules(self) -> int:
        """Beats of eight channels of a finished row, and one more: a partial one's sum and maximum."""
        return self.value_size // LANES + 1

    @property
    def held(self) -> int:
        """Merged partial results that can be held at once: one a level, one under way, one more at the end."""
        return self.levels + 2

    @property
    def key(self) -> str:
        """Text that tells apart builds; part of module names."""
        return f"{self.tile.key}_{self.tile.rows}r_{self.max_rows}_{self.max_value_groups}_{self.levels}_{self.lanes}"


class AttentionCommand(data.Struct):
    """Attention of `rows` query rows of one key head over its leaves `first_leaf` .. `last_leaf`.

    Row r stands at position `position` + r // `group` and sees the positions up to its own, at most `window` of them
    (0: all); a row at a negative position sees none and gives +0. `key_blocks`: blocks of a key; `value_groups`: blocks
    of a value. The quantised rows are activation blocks from `query_base` on. Leaf j lies at the granule that entry
    `table` + j of the page table names. With `latent` the values are the keys' first blocks; with `sink` the sink
    logits of `sink_slot` take part. With `partial`, which has no sink, the rows are what these leaves alone give, not
    divided by their sum, and behind each row stands a beat with sum, maximum, sum, maximum, ... of it. `element` is
    the format of query, keys, values and softmax weights.
    """

    rows: unsigned(8)
    group: unsigned(8)
    position: signed(18)
    window: unsigned(17)
    first_leaf: unsigned(10)
    last_leaf: unsigned(10)
    key_blocks: unsigned(6)
    value_groups: unsigned(6)
    query_base: unsigned(16)
    table: unsigned(8)
    latent: unsigned(1)
    sink: unsigned(1)
    sink_slot: unsigned(1)
    partial: unsigned(1)
    element: ElementFormat


class Part(enum.Enum, shape=1):
    """Which part of a leaf."""

    KEYS = 0
    VALUES = 1


class LeafItem(data.Struct):
    """A part of a leaf: its number in its sequence of positions, its number among all, `last` of its command."""

    part: Part
    leaf: unsigned(10)
    sequence: unsigned(3)
    last: unsigned(1)
    command: AttentionCommand


class LeafOrder(wiring.Component):
    """The order of everything: keys run one leaf ahead of values, over the borders of commands.

    K(0), K(1), V(0), K(2), V(1), ...: while a leaf's softmax is made, the array has the scores of the next one to do.
    A leaf is the next in the queue, whosever it is; where there is no next one, the values go ahead alone. So a leaf's
    scores come after the values of the one two before it, and two leaves' scores, softmax weights and value scales
    are all that has to be kept. Every part is offered to all users at once: the order is decided in one place.

    Interface attributes
    --------------------
    commands: in order.
    o: parts, in order; not a promise while it waits (a key can take the place of a value).
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "commands": In(stream.Signature(AttentionCommand)),
                "o": Out(stream.Signature(LeafItem)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.keys = keys = StreamFifo(AttentionCommand, 2)
        m.submodules.values = values = StreamFifo(AttentionCommand, 4)
        broadcast(m, self.commands, [keys.i, values.i])
        ahead = Signal(2)  # leaves whose keys were given and whose values were not
        give_values, taken = Signal(), Signal()
        m.d.comb += [
            give_values.eq((ahead == 2) | ((ahead == 1) & ~keys.o.valid)),
            self.o.valid.eq(give_values | keys.o.valid),
            taken.eq(self.o.valid & self.o.ready),
        ]
        for queue, part, chosen in ((keys, Part.KEYS, ~give_values), (values, Part.VALUES, give_values)):
            command, offset, number = queue.o.payload, Signal(10), Signal(3)
            leaf, item = command.first_leaf + offset, self.o.payload
            with m.If(chosen):
                m.d.comb += [
                    item.part.eq(part),
                    item.leaf.eq(leaf),
                    item.sequence.eq(number),
                    item.last.eq(leaf == command.last_leaf),
                    item.command.eq(command),
                ]
                with m.If(taken):
                    m.d.sync += [offset.eq(Mux(item.last, 0, offset + 1)), number.eq(number + 1)]
                    m.d.comb += queue.o.ready.eq(item.last)
        with m.If(taken):
            m.d.sync += ahead.eq(Mux(give_values, ahead - 1, ahead + 1))
        return m


def broadcast(m: Module, source: stream.Interface, targets: list[stream.Interface]) -> None:
    """Give every item of `source` to all `targets`, when all can take it."""
    every = Signal(name="all_ready")
    m.d.comb += [every.eq(Cat(target.ready for target in targets).all()), source.ready.eq(every)]
    m.d.comb += [target.payload.eq(source.payload) for target in targets]
    m.d.comb += [target.valid.eq(source.valid & every) for target in targets]
