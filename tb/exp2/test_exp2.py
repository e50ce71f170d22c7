"""Directed and pyuvm tests of the table-and-polynomial unit with exp2."""

import random

import cocotb
import pyuvm

from golden.exp2 import exp2
from golden.fp32_ops import from_float
from hw.vector.function import Function, FunctionUnit
from tb.vector.units import RandomUnitTest, any_bits, function_unit, run_directed, run_throughput


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
