"""What is tried on the FP32 adder."""

import random

from golden import fp32
from hw.vector.fp32_add import Fp32Add
from tb.vector.units import any_bits, binary_unit


def draw(generator: random.Random) -> tuple[int, int]:
    """Half of the pairs near each other in exponent, and half of these nearly cancelling."""
    a = any_bits(generator)
    choice = generator.random()
    if choice < 0.5:
        return a, any_bits(generator)
    exponent = min(max((a >> 23 & 255) + generator.randint(-27, 27), 0), 255)
    if choice < 0.75:
        return a, generator.getrandbits(23) | exponent << 23 | generator.getrandbits(1) << 31
    return a, a ^ 1 << 31 ^ generator.getrandbits(generator.randint(1, 24))


UNIT = binary_unit("fp32_add", fp32.add, draw, Fp32Add.latency)
