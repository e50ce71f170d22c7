"""What is tried on the table-and-polynomial unit as reciprocal."""

import random

from golden.reciprocal import reciprocal
from hw.vector.function import Function
from tb.vector.units import any_bits, function_unit


def draw(generator: random.Random) -> int:
    """Any bits; a quarter of them with results at the border of the subnormals, a quarter near overflow."""
    choice = generator.random()
    if choice < 0.5:
        return any_bits(generator)
    exponent = generator.randint(251, 254) if choice < 0.75 else generator.randint(0, 3)
    return generator.getrandbits(23) | exponent << 23 | generator.getrandbits(1) << 31


MORE = [exponent << 23 for exponent in range(1, 255)] + [1 << place for place in range(23)]

UNIT = function_unit(Function.RECIPROCAL, reciprocal, draw, MORE)
