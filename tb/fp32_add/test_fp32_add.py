"""Directed and pyuvm tests of the FP32 adder."""

import random

import cocotb
import pyuvm

from golden import fp32
from hw.vector.fp32_add import Fp32Add
from tb.vector.units import RandomUnitTest, any_bits, binary_unit, run_directed, run_throughput


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


UNIT = binary_unit("fp32_add", fp32.add, draw)


@cocotb.test()
@cocotb.parametrize(idle=[0.0, 0.4], pause=[0.0, 0.5])
async def test_specials(dut, idle, pause):
    await run_directed(dut, UNIT, idle, pause)


@cocotb.test()
async def test_throughput(dut):
    await run_throughput(dut, UNIT, Fp32Add.latency)


@pyuvm.test()
class test_random(RandomUnitTest):
    """Random operands, idles and pauses."""

    unit = UNIT


@pyuvm.test(expect_error=AssertionError)
class test_wrong_expectation_fails(test_random):
    """One golden value is wrong: the scoreboard has to notice."""

    corrupt = 1
