"""Directed and pyuvm tests of the FP32 multiplier."""

import random

import cocotb
import pyuvm

from golden import fp32
from hw.vector.fp32_multiply import Fp32Multiply
from tb.vector.units import RandomUnitTest, any_bits, binary_unit, run_directed, run_throughput


def draw(generator: random.Random) -> tuple[int, int]:
    """A third of the products near the smallest normal or below it, a third near the largest."""
    a = any_bits(generator)
    choice = generator.random()
    if choice < 1 / 3:
        return a, any_bits(generator)
    target = generator.randint(-26, 3) if choice < 2 / 3 else generator.randint(251, 257)
    exponent = min(max(target + 127 - (a >> 23 & 255), 0), 255)
    return a, generator.getrandbits(23) | exponent << 23 | generator.getrandbits(1) << 31


UNIT = binary_unit("fp32_multiply", fp32.multiply, draw)


@cocotb.test()
@cocotb.parametrize(idle=[0.0, 0.4], pause=[0.0, 0.5])
async def test_specials(dut, idle, pause):
    await run_directed(dut, UNIT, idle, pause)


@cocotb.test()
async def test_throughput(dut):
    await run_throughput(dut, UNIT, Fp32Multiply.latency)


@pyuvm.test()
class test_random(RandomUnitTest):
    """Random operands, idles and pauses."""

    unit = UNIT


@pyuvm.test(expect_error=AssertionError)
class test_wrong_expectation_fails(test_random):
    """One golden value is wrong: the scoreboard has to notice."""

    corrupt = 1
