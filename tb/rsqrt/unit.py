"""What is tried on the table-and-polynomial unit as rsqrt."""

import random

from golden.rsqrt import rsqrt
from hw.vector.function import Function
from tb.vector.units import any_bits, function_unit


def draw(generator: random.Random) -> int:
    """Any positive bits, an eighth of them subnormal; a tenth of any sign."""
    if generator.random() < 0.1:
        return any_bits(generator)
    return generator.getrandbits(23 if generator.random() < 0.125 else 31)


MORE = [exponent << 23 for exponent in range(1, 255)] + [1 << place for place in range(23)]

UNIT = function_unit(Function.RSQRT, rsqrt, draw, MORE)
