"""Directed and pyuvm tests of the table-and-polynomial unit with reciprocal."""

import random

import cocotb
import pyuvm

from golden.reciprocal import reciprocal
from hw.vector.function import Function, FunctionUnit
from tb.vector.units import RandomUnitTest, any_bits, function_unit, run_directed, run_throughput


def draw(generator: random.Random) -> int:
    """Any bits; a quarter of them with results at the border of the subnormals, a quarter near overflow."""
    choice = generator.random()
    if choice < 0.5:
        return any_bits(generator)
    exponent = generator.randint(251, 254) if choice < 0.75 else generator.randint(0, 3)
    return generator.getrandbits(23) | exponent << 23 | generator.getrandbits(1) << 31


MORE = [exponent << 23 for exponent in range(1, 255)] + [1 << place for place in range(23)]


UNIT = function_unit(Function.RECIPROCAL, reciprocal, draw, MORE)


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
