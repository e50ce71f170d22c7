"""Number formats: what each code means, and the way from an exact value to a code.

An `Element` is a format of one number; a `Format` is a block format: an element, a scale and the
number of elements that share it. Sources: OCP Microscaling Formats v1.0 (MX elements and E8M0), OCP 8-bit
Floating Point v1.0 (E4M3, E5M2), IEEE 754 (FP16, FP32), and for the rest docs/numerics.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from functools import cache

import numpy as np

from golden.rounding import I64, U64, Wide, round_magnitude


class Kind(IntEnum):
    """Class of a decoded code."""

    FINITE = 0
    INFINITY = 1
    NAN = 2


@dataclass(frozen=True)
class Element:
    """One number format.

    `exponent_bits` 0 is a two's complement integer (or an unsigned one where `signed` is false) whose
    least significant bit weighs 2**`lsb`. Otherwise sign, exponent and mantissa fields, subnormals, and
    `max_code` is the largest finite magnitude code; codes above it are infinity (the code after
    `max_code`, where `has_infinity`) and NaN.
    """

    name: str
    bits: int
    exponent_bits: int
    mantissa_bits: int
    lsb: int
    max_code: int
    has_infinity: bool = False
    nan_code: int | None = None
    signed: bool = True

    @property
    def is_integer(self) -> bool:
        return self.exponent_bits == 0

    @property
    def max_exponent(self) -> int:
        """floor(log2(largest finite value)): emax of the OCP scale rule."""
        if self.is_integer:
            return self.max_code.bit_length() - 1 + self.lsb
        return (self.max_code >> self.mantissa_bits) - 1 + self.mantissa_bits + self.lsb

    @property
    def max_shift(self) -> int:
        """Largest left shift of a significand against the smallest one."""
        return 0 if self.is_integer else (self.max_code >> self.mantissa_bits) - 1

    @property
    def magnitude_bits(self) -> int:
        """Bits of the magnitude of a finite value in units of 2**`lsb`."""
        if self.is_integer:
            return self.bits
        return self.mantissa_bits + 1 + self.max_shift

    def decode(self, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Codes to (sign bool, significand int64 >= 0, shift int64, kind uint8).

        A finite value is (-1)**sign * significand * 2**(lsb + shift). Infinity and NaN have significand 0.
        """
        codes = np.asarray(codes)
        if self.bits <= 8:
            codes = codes & codes.dtype.type((1 << self.bits) - 1)
            return tuple(column[codes] for column in _table(self))
        return self._decode(codes.astype(I64) & ((1 << self.bits) - 1))

    def _decode(self, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        if self.is_integer:
            if self.signed:
                codes = codes - ((codes >> (self.bits - 1)) << self.bits)
            zero = np.zeros_like(codes)
            return codes < 0, np.abs(codes), zero, zero.astype(np.uint8)
        sign = (codes >> (self.bits - 1)) != 0
        magnitude = codes & ((1 << (self.bits - 1)) - 1)
        field = magnitude >> self.mantissa_bits
        fraction = magnitude & ((1 << self.mantissa_bits) - 1)
        kind = np.where(magnitude > self.max_code, Kind.NAN, Kind.FINITE)
        if self.has_infinity:
            kind = np.where(magnitude == self.max_code + 1, Kind.INFINITY, kind)
        significand = np.where(field > 0, fraction + (1 << self.mantissa_bits), fraction)
        significand = np.where(kind == Kind.FINITE, significand, 0)
        return sign, significand, np.maximum(field - 1, 0), kind.astype(np.uint8)

    def integers(self, codes: np.ndarray) -> np.ndarray:
        """int64: finite values in units of 2**`lsb` (0 for infinity and NaN). 8-bit formats and narrower."""
        if self.magnitude_bits > 62:
            raise ValueError(f"{self.name} spans {self.magnitude_bits} bits, integers() holds 62")
        sign, significand, shift, kind = self.decode(codes)
        value = np.where(kind == Kind.FINITE, significand << np.where(kind == Kind.FINITE, shift, 0), 0)
        return np.where(sign, -value, value)

    def encode(self, sign: np.ndarray, magnitude: Wide, exponent: np.ndarray, saturate: bool) -> np.ndarray:
        """Exact values (-1)**sign * magnitude * 2**exponent to codes (uint64), round to nearest even.

        Too large: the largest finite value if `saturate` or if the format has neither infinity nor NaN,
        else infinity, else NaN. Integers saturate always, at plus and minus `max_code` (symmetric).
        """
        sign = np.asarray(sign)
        if self.is_integer:
            value, _ = round_magnitude(magnitude, exponent, 62, self.lsb)
            value = np.minimum(value, U64(self.max_code)).astype(I64)
            value = np.where(sign, -value if self.signed else 0, value)
            return (value & ((1 << self.bits) - 1)).astype(U64)
        significand, result = round_magnitude(magnitude, exponent, self.mantissa_bits + 1, self.lsb)
        # A significand with its leading one adds one to the field; a carry out of it adds one more.
        steps = np.minimum(result - self.lsb, 1 << (self.exponent_bits + 2)).astype(U64)
        code = (steps << U64(self.mantissa_bits)) + significand
        over = self.max_code
        if not saturate and (self.has_infinity or self.nan_code is not None):
            over = self.max_code + 1 if self.has_infinity else self.nan_code
        code = np.where(code > U64(self.max_code), U64(over), code)
        return code | (sign.astype(U64) << U64(self.bits - 1))


@cache
def _table(element: Element) -> tuple[np.ndarray, ...]:
    """Every code of an element of 8 bits or fewer, decoded."""
    return element._decode(np.arange(1 << element.bits, dtype=I64))


def _float(name: str, exponent_bits: int, mantissa_bits: int, bias: int, max_code: int, **special) -> Element:
    return Element(
        name,
        1 + exponent_bits + mantissa_bits,
        exponent_bits,
        mantissa_bits,
        1 - bias - mantissa_bits,
        max_code,
        **special,
    )


INT8 = Element("INT8", 8, 0, 7, lsb=-6, max_code=127)
E4M3_ELEMENT = _float("E4M3", 4, 3, 7, 0x7E, nan_code=0x7F)
E5M2_ELEMENT = _float("E5M2", 5, 2, 15, 0x7B, has_infinity=True, nan_code=0x7E)
E2M3_ELEMENT = _float("E2M3", 2, 3, 1, 0x1F)
E3M2_ELEMENT = _float("E3M2", 3, 2, 3, 0x1F)
E2M1_ELEMENT = _float("E2M1", 2, 1, 1, 0x7)
INT4_ELEMENT = Element("INT4", 4, 0, 3, lsb=0, max_code=7)
UINT4_ELEMENT = Element("UINT4", 4, 0, 4, lsb=0, max_code=15, signed=False)
BF16 = _float("BF16", 8, 7, 127, 0x7F7F, has_infinity=True, nan_code=0x7FC0)
FP16 = _float("FP16", 5, 10, 15, 0x7BFF, has_infinity=True, nan_code=0x7E00)
FP32 = _float("FP32", 8, 23, 127, 0x7F7FFFFF, has_infinity=True, nan_code=0x7FC00000)

E8M0_BIAS = 127
E8M0_NAN = 0xFF
BLOCK = 32
"""Elements along K that one block dot takes."""


class ScaleType(StrEnum):
    """Type of a block's scale word."""

    E8M0 = "E8M0"
    E4M3_PAIR = "E4M3_PAIR"  # two E4M3 scales, one for each 16 elements; the tensor's FP32 scale is outside
    BF16 = "BF16"
    FP32 = "FP32"
    FP16_OFFSET = "FP16_OFFSET"  # scale and offset
    FP16_ZERO = "FP16_ZERO"  # scale and integer zero point


@dataclass(frozen=True)
class Format:
    """A block format: `group` elements of `element` along K share one scale of type `scale`.

    Whatever the group, memory and hardware have one scale word for each 32 elements: two scales in it for a group
    of 16, the same word again for a group of 128.
    """

    name: str
    element: Element
    scale: ScaleType = ScaleType.E8M0
    group: int = BLOCK

    @property
    def bits(self) -> int:
        """Bits of one packed element."""
        return self.element.bits

    @property
    def has_offset(self) -> bool:
        """Whether a value is code * scale + offset: such a format can stand on one side only."""
        return self.scale == ScaleType.FP16_OFFSET


MXINT8 = Format("MXINT8", INT8)
E4M3 = Format("E4M3", E4M3_ELEMENT)
E5M2 = Format("E5M2", E5M2_ELEMENT)
E2M3 = Format("E2M3", E2M3_ELEMENT)
E3M2 = Format("E3M2", E3M2_ELEMENT)
E2M1 = Format("E2M1", E2M1_ELEMENT)
INT4 = Format("INT4", INT4_ELEMENT)
NVFP4 = Format("NVFP4", E2M1_ELEMENT, ScaleType.E4M3_PAIR, group=16)
INT4_BF16 = Format("INT4_BF16", INT4_ELEMENT, ScaleType.BF16)
E4M3_FP32 = Format("E4M3_FP32", E4M3_ELEMENT, ScaleType.FP32, group=128)
Q4_1 = Format("Q4_1", UINT4_ELEMENT, ScaleType.FP16_OFFSET)
UINT4_ZERO = Format("UINT4_ZERO", UINT4_ELEMENT, ScaleType.FP16_ZERO, group=128)
FORMATS = {
    format.name: format
    for format in (MXINT8, E4M3, E5M2, E2M3, E3M2, E2M1, INT4, NVFP4, INT4_BF16, E4M3_FP32, Q4_1, UINT4_ZERO)
}


def pair_problem(format_a: Format, format_b: Format) -> str | None:
    """Why A of `format_a` cannot be multiplied by B of `format_b`; None where it can."""
    plain = [name for name, format in FORMATS.items() if not format.has_offset]
    if format_a.has_offset:
        return f"{format_a.name} has an offset and can be B only; A can be {', '.join(plain)}"
    if format_b.has_offset and format_a.scale == ScaleType.E4M3_PAIR:
        allowed = ", ".join(name for name in plain if FORMATS[name].scale != ScaleType.E4M3_PAIR)
        return f"{format_a.name} times {format_b.name} is not supported; with {format_b.name}, A can be {allowed}"
    return None


def format_named(name: str) -> Format:
    """The block format of that name; `ValueError` lists what there is."""
    if name not in FORMATS:
        raise ValueError(f"unknown format {name!r}; known: {', '.join(FORMATS)}")
    return FORMATS[name]
