"""What is tried on the table-and-polynomial unit as exp2."""

import random

from golden.exp2 import exp2
from golden.fp32_ops import from_float
from hw.vector.function import Function
from tb.vector.units import any_bits, function_unit


def draw(generator: random.Random) -> int:
    """Arguments whose power is finite and not zero; a quarter of them any bits, a quarter subnormal results."""
    choice = generator.random()
    if choice < 0.25:
        return any_bits(generator)
    low, high = (-151.0, -125.0) if choice < 0.5 else (-126.0, 129.0)
    return int(from_float(generator.uniform(low, high)))


BORDERS = [-151, -150, -149.99, -149, -127, -126, -125, 127, 128, 255, 256, -255, -256, 257]
MORE = [int(from_float(x)) for x in [*range(-130, 129), *BORDERS, 127.99999, 1e-9, -1e-9, 0.99999994, -5.9e-8]]

UNIT = function_unit(Function.EXP2, exp2, draw, MORE)
