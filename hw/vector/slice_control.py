"""What the slices of the attention engine are told, cycle by cycle."""

from amaranth.hdl import signed, unsigned
from amaranth.lib import data, enum

from hw.numerics.formats import ElementFormat
from hw.vector.leaves import LEAF, SEQUENCES, AttentionSize

__all__ = ["Kind", "Place", "SinkLogit", "arrival_layout", "issue_layout", "needed_bits", "sum_layout"]


class Kind(enum.Enum, shape=3):
    """What a pass over the rows does."""

    WEIGHTS = 0
    """2**(score - maximum) times value scale to the quantiser, and its sum."""
    FACTORS = 1
    """The maximum of two partial results, and the factor of each."""
    COMBINE = 2
    """left * factor + right * factor; in a row's last beat the sums alike."""
    INVERSE = 3
    """1 / max(sum, 1)."""
    FINISH = 4
    """output * inverse + 0."""
    EXPORT = 5
    """output + 0, of a partial result that leaves; in a row's last beat sum and maximum alike, in turns."""


class Place(data.Struct):
    """A partial result: a leaf's by the number of the leaf, or a merged one (`held`) by where it is kept."""

    held: unsigned(1)
    index: unsigned(4)


class SinkLogit(data.Struct):
    """The sink logit of row `pass_` * array rows + `slice`, base 2, in slot 0 or 1."""

    slot: unsigned(1)
    slice: unsigned(6)
    pass_: unsigned(8)
    logit: unsigned(32)


def needed_bits(count: int) -> int:
    """Bits of an index of `count` things, at least one."""
    return max(1, (count - 1).bit_length())


def arrival_layout(size: AttentionSize) -> data.StructLayout:
    """What comes from the array, for all rows at once.

    `scores` or `outputs`: whether it does; `word`: which `columns` of the row; `sequence`: which leaf. For the mask:
    `origin`, the first position behind what row 0 sees, counted from the word; `window`; `reciprocal` of the group and
    `product`, that times the first row of the pass.
    """
    return data.StructLayout(
        {
            "scores": 1,
            "outputs": 1,
            "pass_": needed_bits(size.passes),
            "word": needed_bits(max(LEAF, size.value_size) // size.tile.columns),
            "sequence": needed_bits(SEQUENCES),
            "origin": signed(19),
            "window": 17,
            "reciprocal": 17,
            "product": 25,
        }
    )


def issue_layout(size: AttentionSize) -> data.StructLayout:
    """One beat of work, the same for all rows; `total`: a COMBINE's or EXPORT's beat of sums; `last` of a row."""
    return data.StructLayout(
        {
            "valid": 1,
            "kind": Kind,
            "pass_": needed_bits(size.passes),
            "beat": needed_bits(max(LEAF, size.value_size + size.lanes) // size.lanes),
            "total": 1,
            "last": 1,
            "left": Place,
            "right": Place,
            "left_empty": 1,
            "sink": 1,
            "sink_slot": 1,
            "target": 4,
            "element": ElementFormat,
        }
    )


def sum_layout(size: AttentionSize) -> data.StructLayout:
    """Where the reducer's sum goes in this cycle."""
    return data.StructLayout({"valid": 1, "pass_": needed_bits(size.passes), "sequence": needed_bits(SEQUENCES)})
