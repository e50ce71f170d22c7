"""What a build of the block-dot units can decode, and the widths that follow from it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from amaranth.hdl import signed, unsigned
from amaranth.lib import data, enum

from golden.formats import BF16, BLOCK, E4M3_ELEMENT, FORMATS, FP16, FP32, Element, Format, ScaleType, pair_problem
from golden.formats_scale import FACTOR_BITS, scale_bits

__all__ = ["BLOCK", "ElementFormat", "FormatSet"]

COARSE = 4
"""An element is significand << (COARSE * coarse): the multiplier takes what is below, the shifter what is above."""

_ZERO_POINT = 16
"""Largest zero point of FP16_ZERO."""


class ElementFormat(enum.Enum, shape=unsigned(4)):
    """Format of an operand, elements and scale, as the `format` port of `Decode` has it."""

    MXINT8 = 0
    E4M3 = 1
    E5M2 = 2
    E2M3 = 3
    E3M2 = 4
    E2M1 = 5
    INT4 = 6
    NVFP4 = 7
    INT4_BF16 = 8
    E4M3_FP32 = 9
    Q4_1 = 10
    UINT4_ZERO = 11


def _largest(format: Format) -> int:
    """Largest magnitude of a decoded element in units of the element's least significant bit."""
    element = format.element
    if not element.is_integer:
        return ((1 << (element.mantissa_bits + 1)) - 1) << element.max_shift
    if not element.signed:
        return _ZERO_POINT if format.scale == ScaleType.FP16_ZERO else element.max_code
    return 1 << (element.bits - 1)


def _factor(format: Format) -> tuple[int, int]:
    """Bits of a scale's significand, and its largest shift beside the exponent."""
    if format.scale == ScaleType.E8M0:
        return 1, 0
    element = {ScaleType.E4M3_PAIR: E4M3_ELEMENT, ScaleType.BF16: BF16, ScaleType.FP32: FP32}.get(format.scale, FP16)
    two = format.scale in (ScaleType.E4M3_PAIR, ScaleType.FP16_OFFSET)
    return element.mantissa_bits + 1, element.max_shift if two else 0


class FormatSet:
    """The block formats that a unit is built for, any of them on either side (`pair_problem` apart).

    Parameters
    ----------
    names: names of `golden.formats.FORMATS`, at least one; the order does not matter.

    Attributes
    ----------
    formats, elements: what the names stand for.
    significand_bits: signed bits of a decoded significand (8 where MXINT8 or E4M3 is in the set).
    coarse_bits: bits of an element's remaining shift, in steps of 4 positions (0 for {MXINT8}).
    infinities: an element can be infinite (E5M2).
    halves, offsets, zeros: a format has a scale for each 16 elements, an offset, a zero point.
    scaled: a format has scales that are not powers of two.
    scale_bits: bits of the widest scale word.
    dot_bits: magnitude bits of the exact sum of the products of a block.
    scaled_bits: the same, where a scale factor multiplies it.
    factor_bits: bits of the significand of one side's scale; product_bits: of the product of two, rounded.
    shift_bits: bits of a scale factor's shift.
    sum_bits: magnitude bits of a finished block sum, scale factors included.
    lane, lanes, factor, operand, block_sum: layouts.
    """

    def __init__(self, names: Iterable[str]):
        self.names = tuple(sorted(set(names)))
        unknown = [name for name in self.names if name not in ElementFormat.__members__]
        if unknown or not self.names:
            allowed = ", ".join(ElementFormat.__members__)
            raise ValueError(f"Format set must be one or more of {allowed}, not {list(self.names)!r}")
        self.formats = tuple(FORMATS[name] for name in self.names)
        self.elements = tuple(dict.fromkeys(format.element for format in self.formats))
        scales = {format.scale for format in self.formats}
        self.significand_bits = max(self.element_bits(format) for format in self.formats)
        self.coarse_bits = max(self.coarse(format.element) for format in self.formats).bit_length()
        self.infinities = any(format.element.has_infinity for format in self.formats)
        self.halves = ScaleType.E4M3_PAIR in scales
        self.offsets = ScaleType.FP16_OFFSET in scales
        self.zeros = ScaleType.FP16_ZERO in scales
        self.scaled = scales != {ScaleType.E8M0}
        self.scale_bits = max(scale_bits(format) for format in self.formats)
        self.factor_bits = max(_factor(format)[0] for format in self.formats)
        self.shift_bits = max(_factor(format)[1] for format in self.formats).bit_length()
        self._widths()

    def _pairs(self) -> Iterator[tuple[Format, Format]]:
        for a in self.formats:
            for b in self.formats:
                if pair_problem(a, b) is None:
                    yield a, b

    def _widths(self) -> None:
        self.dot_bits = self.scaled_bits = self.sum_bits = self.product_bits = self.total_bits = 0
        for a, b in self._pairs():
            dot = BLOCK * _largest(a) * _largest(b)
            self.dot_bits = max(self.dot_bits, dot.bit_length())
            self.total_bits = max(self.total_bits, (BLOCK * _largest(a)).bit_length())
            (bits_a, shift_a), (bits_b, shift_b) = _factor(a), _factor(b)
            if bits_a == bits_b == 1:
                self.sum_bits = max(self.sum_bits, dot.bit_length())
                continue
            bits, shift = bits_a + bits_b, shift_a + shift_b
            if shift == 0:  # one factor; what rounding takes off goes into the exponent
                bits = min(bits, FACTOR_BITS + 1)
            total = dot + (BLOCK * _largest(a) if b.has_offset else 0)
            self.scaled_bits = max(self.scaled_bits, total.bit_length())
            self.product_bits = max(self.product_bits, min(bits, FACTOR_BITS + 1))
            self.sum_bits = max(self.sum_bits, (total << (bits + shift)).bit_length())

    def __repr__(self) -> str:
        return f"FormatSet({list(self.names)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FormatSet) and self.names == other.names

    def __hash__(self) -> int:
        return hash(self.names)

    @staticmethod
    def coarse(element: Element) -> int:
        """Largest coarse shift of an element."""
        if element.is_integer or element.magnitude_bits < 8:
            return 0
        return element.max_shift // COARSE

    @classmethod
    def element_bits(cls, format: Format) -> int:
        """Signed bits of the significand of an element."""
        element = format.element
        if element.is_integer:
            return element.bits + (not element.signed)
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
    def factor_count(self) -> int:
        """Scale factors of an operand: two where a format has two scales or an offset."""
        return 2 if self.halves or self.offsets else 1

    @property
    def factor(self) -> data.StructLayout:
        """A scale factor: (-1)**sign * significand * 2**shift, over the operand's exponent."""
        return data.StructLayout({"significand": self.factor_bits, "shift": self.shift_bits, "sign": 1})

    @property
    def operand(self) -> data.StructLayout:
        """A decoded block: the value of an element is lane * factor * 2**exponent; `nan`: the whole block is NaN.

        In builds with scales that are not powers of two: `factors`, one for each half of the block where
        `halved`, one for the codes and one for the offset where `offset`, else twice the same; `plain`: the
        scale is a power of two. In builds with offsets: `total`, the sum of the lanes.
        """
        members = {"lanes": self.lanes, "exponent": signed(9), "nan": unsigned(1)}
        if self.scaled:
            members["factors"] = data.ArrayLayout(self.factor, self.factor_count)
            members["plain"] = unsigned(1)
        if self.halves:
            members["halved"] = unsigned(1)
        if self.offsets:
            members["offset"] = unsigned(1)
            members["total"] = signed(self.total_bits + 1)
        return data.StructLayout(members)

    @property
    def block_sum(self) -> data.StructLayout:
        """A finished sum, (-1)**sign * magnitude * 2**(exponent - 127 - sum_bits + 1).

        The top bit of `magnitude` is one unless the sum is zero, in which case `exponent` is -1024.
        `infinite` (of `sign`) and `nan` take precedence over the magnitude, `nan` first.
        """
        return data.StructLayout(
            {
                "magnitude": unsigned(self.sum_bits),
                "exponent": signed(11),
                "sign": unsigned(1),
                "infinite": unsigned(1),
                "nan": unsigned(1),
            }
        )
