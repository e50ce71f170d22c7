"""FP32 (IEEE 754 binary32) in hardware: its fields, and the rounding that every unit of the vector engine shares.

Subnormals are supported everywhere. The only NaN that is made is the quiet `NAN`; the only rounding is to nearest, ties
to even. The golden functions are in `golden.fp32_ops`.
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, ValueLike, signed, unsigned
from amaranth.lib import data

__all__ = ["BIAS", "INFINITY", "NAN", "NEGATIVE_ZERO", "ONE", "Float32", "Unpacked", "infinity", "leading_zeros",
           "order", "round_pack", "shift_left", "shift_right", "shift_right_sticky", "unpack"]  # fmt: skip

NAN = 0x7FC00000
INFINITY = 0x7F800000
ONE = 0x3F800000
NEGATIVE_ZERO = 0x80000000

BIAS = 127


class Float32(data.Struct):
    """The bits of an FP32 value, least significant field first."""

    fraction: unsigned(23)
    exponent: unsigned(8)
    sign: unsigned(1)


class Unpacked(data.Struct):
    """An FP32 value taken apart.

    `significand` has the hidden bit on top; `exponent` is the biased one, 1 for a subnormal (so that the value of a
    finite number is significand * 2**(exponent - 150)). At most one of `nan`, `infinite` and `zero` is set.
    """

    significand: unsigned(24)
    exponent: unsigned(8)
    sign: unsigned(1)
    nan: unsigned(1)
    infinite: unsigned(1)
    zero: unsigned(1)


def unpack(m: Module, bits: ValueLike, name: str) -> data.View:
    """Combinational `Unpacked` of 32 bits."""
    raw = data.View(Float32, bits)
    result = Signal(Unpacked, name=name)
    normal = raw.exponent != 0
    top = raw.exponent == 255
    m.d.comb += [
        result.significand.eq(Cat(raw.fraction, normal)),
        result.exponent.eq(Mux(normal, raw.exponent, 1)),
        result.sign.eq(raw.sign),
        result.nan.eq(top & (raw.fraction != 0)),
        result.infinite.eq(top & (raw.fraction == 0)),
        result.zero.eq(~normal & (raw.fraction == 0)),
    ]
    return result


def infinity(sign: ValueLike) -> Value:
    """FP32 infinity of the given sign."""
    return Cat(Const(INFINITY, 31), sign)


def leading_zeros(value: Value) -> Value:
    """Zeros above the highest set bit of `value`; for 0, its width (a balanced tree)."""
    width = len(value)
    size = 1 << (width - 1).bit_length()
    # Padding below with ones makes the count of an all-zero value its own width.
    padding = Const((1 << (size - width)) - 1, size - width)
    return _leading_zeros(Cat(padding, value))[0]


def _leading_zeros(value: Value) -> tuple[Value, Value]:
    """(count, all zero) of a power-of-two width. The count of zero is the width."""
    if len(value) == 1:
        return ~value[0], ~value[0]
    half = len(value) // 2
    high, high_zero = _leading_zeros(value[half:])
    low, low_zero = _leading_zeros(value[:half])
    return Mux(high_zero, low + half, high), high_zero & low_zero


def shift_left(value: Value, amount: Value) -> Value:
    """`value << amount` in the width of `value`."""
    result = value
    for place in range(len(amount)):
        result = Mux(amount[place], Cat(Const(0, min(1 << place, len(value))), result)[: len(value)], result)
    return result


def shift_right(value: Value, amount: Value) -> Value:
    """`value >> amount` in the width of `value`."""
    result = value
    for place in range(len(amount)):
        result = Mux(amount[place], result[1 << place :], result)[: len(value)]
    return result


def shift_right_sticky(value: Value, amount: Value) -> Value:
    """`value >> amount` with the lowest bit ORed with all that fell out."""
    result = value
    for place in range(len(amount)):
        distance = 1 << place
        if distance >= len(value):
            moved = result.any()
        else:
            moved = Cat(result[: distance + 1].any(), result[distance + 1 :])
        result = Mux(amount[place], moved, result)[: len(value)]
    return result


def round_pack(m: Module, sign: Value, exponent: Value, significand: Value, name: str = "rounded") -> Signal:
    """FP32 bits of (-1)**sign * significand * 2**(exponent - BIAS), rounded once, to nearest, ties to even.

    `significand` (at least 26 bits) has one bit before the point; it may be clear only where `exponent` is 1 or less.
    Its lowest bit may be a sticky one. `exponent` is signed and biased. Too large gives infinity.
    """
    width = len(significand)
    biased = Signal(signed(len(exponent) + 1), name=f"{name}_exponent")
    below = Signal(range(width + 1), name=f"{name}_below")
    shifted = Signal(width, name=f"{name}_shifted")
    up = Signal(name=f"{name}_up")
    packed = Signal(len(exponent) + 25, name=f"{name}_packed")
    result = Signal(32, name=name)
    missing = 1 - exponent
    drop = width - 24
    m.d.comb += [
        # A subnormal result is shifted to exponent 1; more than `width` places leave nothing but the sticky bit.
        below.eq(Mux(missing <= 0, 0, Mux(missing > width, width, missing))),
        shifted.eq(shift_right_sticky(significand, below)),
        biased.eq(Mux(exponent < 1, 1, exponent)),
        up.eq(shifted[drop - 1] & (shifted[drop] | shifted[: drop - 1].any())),
        # The hidden bit adds one to the exponent field: 0 for a subnormal. A carry out of the fraction does as well.
        packed.eq(((biased - 1) << 23) + shifted[drop:] + up),
        result.eq(Cat(Mux(packed[23:] >= 255, INFINITY, packed[:31])[:31], sign)),
    ]
    return result


def order(bits: Value) -> Value:
    """An unsigned 32-bit key that orders FP32 values as numbers do, with -0 below +0 (NaN not considered)."""
    return Mux(bits[31], ~bits, bits ^ (1 << 31))[:32]
