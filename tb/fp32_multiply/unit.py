"""What is tried on the FP32 multiplier."""

import random

from golden import fp32
from hw.vector.fp32_multiply import Fp32Multiply
from tb.vector.units import any_bits, binary_unit


def draw(generator: random.Random) -> tuple[int, int]:
    """A third of the products near the smallest normal or below it, a third near the largest."""
    a = any_bits(generator)
    choice = generator.random()
    if choice < 1 / 3:
        return a, any_bits(generator)
    target = generator.randint(-26, 3) if choice < 2 / 3 else generator.randint(251, 257)
    exponent = min(max(target + 127 - (a >> 23 & 255), 0), 255)
    return a, generator.getrandbits(23) | exponent << 23 | generator.getrandbits(1) << 31


UNIT = binary_unit("fp32_multiply", fp32.multiply, draw, Fp32Multiply.latency)
