"""Directed and pyuvm tests of the table-and-polynomial unit with rsqrt."""

import random

import cocotb
import pyuvm

from golden.rsqrt import rsqrt
from hw.vector.function import Function, FunctionUnit
from tb.vector.units import RandomUnitTest, any_bits, function_unit, run_directed, run_throughput


def draw(generator: random.Random) -> int:
    """Any positive bits, an eighth of them subnormal; a tenth of any sign."""
    if generator.random() < 0.1:
        return any_bits(generator)
    return generator.getrandbits(23 if generator.random() < 0.125 else 31)


MORE = [exponent << 23 for exponent in range(1, 255)] + [1 << place for place in range(23)]


UNIT = function_unit(Function.RSQRT, rsqrt, draw, MORE)


@cocotb.test()
@cocotb.parametrize(idle=[0.0, 0.4], pause=[0.0, 0.5])
async def test_specials(dut, idle, pause):
    await run_directed(dut, UNIT, idle, pause)


@cocotb.test()
async def test_throughput(dut):
    await run_throughput(dut, UNIT, FunctionUnit.latency)


@pyuvm.test()
class test_random(RandomUnitTest):
    """Random operands, idles and pauses."""

    unit = UNIT


@pyuvm.test(expect_error=AssertionError)
class test_wrong_expectation_fails(test_random):
    """One golden value is wrong: the scoreboard has to notice."""

    corrupt = 1
