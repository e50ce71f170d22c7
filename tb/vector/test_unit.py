"""Directed and pyuvm tests of one arithmetic unit: the one that `tb/<VECTOR_UNIT>/unit.py` describes."""

import importlib
import os

import cocotb
import pyuvm

from tb.vector.units import RandomUnitTest, Unit, run_directed, run_throughput

UNIT: Unit = importlib.import_module(f"tb.{os.environ['VECTOR_UNIT']}.unit").UNIT


@cocotb.test()
@cocotb.parametrize(idle=[0.0, 0.4], pause=[0.0, 0.5])
async def test_specials(dut, idle, pause):
    await run_directed(dut, UNIT, idle, pause)


@cocotb.test()
async def test_throughput(dut):
    await run_throughput(dut, UNIT)


@pyuvm.test()
class test_random(RandomUnitTest):
    """Random operands, idles and pauses."""

    unit = UNIT


@pyuvm.test(expect_error=AssertionError)
class test_wrong_expectation_fails(test_random):
    """One golden value is wrong: the scoreboard has to notice."""

    corrupt = 1
