"""What a build of the block-dot units can decode, and the widths that follow from it."""

from __future__ import annotations

from collections.abc import Iterable

from amaranth.hdl import signed, unsigned
from amaranth.lib import data, enum

from golden.formats import BLOCK, FORMATS, Element, Format

__all__ = ["BLOCK", "ElementFormat", "FormatSet"]

COARSE = 4
"""An element is significand << (COARSE * coarse): the multiplier takes what is below, the shifter what is above."""


class ElementFormat(enum.Enum, shape=unsigned(4)):
    """Element format of an operand, as the `format` port of `Decode` has it."""

    MXINT8 = 0
    E4M3 = 1
    E5M2 = 2
    E2M3 = 3
    E3M2 = 4
    E2M1 = 5
    INT4 = 6


def _largest(element: Element) -> int:
    """Largest magnitude of a finite code in units of the element's least significant bit."""
    if element.is_integer:
        return 1 << (element.bits - 1)
    significand = (1 << (element.mantissa_bits + 1)) - 1
    return significand << element.max_shift


class FormatSet:
    """The block formats that a unit is built for, any of them on either side.

    Parameters
    ----------
    names: names of `golden.formats.FORMATS`, at least one; the order does not matter.

    Attributes
    ----------
    significand_bits: signed bits of a decoded significand (8 where MXINT8 or E4M3 is in the set).
    coarse_bits: bits of an element's remaining shift, in steps of 4 positions (0 for {MXINT8}).
    infinities: an element can be infinite (E5M2).
    sum_bits: magnitude bits of the exact sum of a block.
    lane, operand, block_sum: layouts of a decoded element, of a decoded block and of a finished block sum.
    """

    def __init__(self, names: Iterable[str]):
        self.names = tuple(sorted(set(names)))
        unknown = [name for name in self.names if name not in ElementFormat.__members__]
        if unknown or not self.names:
            allowed = ", ".join(ElementFormat.__members__)
            raise ValueError(f"Format set must be one or more of {allowed}, not {list(self.names)!r}")
        elements = [format.element for format in self.formats]
        self.significand_bits = max(self.element_bits(element) for element in elements)
        self.coarse_bits = max(self.coarse(element) for element in elements).bit_length()
        self.infinities = any(element.has_infinity for element in elements)
        largest = max(_largest(element) for element in elements)
        self.sum_bits = (largest * largest * BLOCK).bit_length()

    def __repr__(self) -> str:
        return f"FormatSet({list(self.names)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FormatSet) and self.names == other.names

    def __hash__(self) -> int:
        return hash(self.names)

    @property
    def formats(self) -> tuple[Format, ...]:
        return tuple(FORMATS[name] for name in self.names)

    @staticmethod
    def coarse(element: Element) -> int:
        """Largest coarse shift of an element."""
        if _largest(element).bit_length() < 8:
            return 0
        return element.max_shift // COARSE

    @classmethod
    def element_bits(cls, element: Element) -> int:
        """Signed bits of the significand of an element."""
        if element.is_integer:
            return element.bits
        fine = COARSE - 1 if cls.coarse(element) else element.max_shift
        return 1 + element.mantissa_bits + 1 + fine

    @property
    def lane(self) -> data.StructLayout:
        """One decoded element: significand * 16**coarse, in units of the element's least significant bit."""
        members = {"significand": signed(self.significand_bits)}
        if self.coarse_bits:
            members["coarse"] = unsigned(self.coarse_bits)
        if self.infinities:
            members["infinite"] = unsigned(1)
        return data.StructLayout(members)

    @property
    def lanes(self) -> data.ArrayLayout:
        return data.ArrayLayout(self.lane, BLOCK)

    @property
    def operand(self) -> data.StructLayout:
        """A decoded block: the value of an element is lane * 2**exponent; `nan`: the whole block is NaN."""
        return data.StructLayout({"lanes": self.lanes, "exponent": signed(9), "nan": unsigned(1)})

    @property
    def block_sum(self) -> data.StructLayout:
        """A finished sum, (-1)**sign * magnitude * 2**(exponent - 127 - sum_bits + 1).

        The top bit of `magnitude` is one unless the sum is zero, in which case `exponent` is -1024.
        `infinite` (of `sign`) and `nan` take precedence over the magnitude, `nan` first.
        """
        return data.StructLayout({
            "magnitude": unsigned(self.sum_bits), "exponent": signed(11), "sign": unsigned(1),
            "infinite": unsigned(1), "nan": unsigned(1),
        })
