"""Models of the vector unit's parts, shared by several testbenches so that each is built once."""

from amaranth.lib import wiring

from hw.vector.engine import VectorEngine
from hw.vector.fp32_add import Fp32Add
from hw.vector.fp32_multiply import Fp32Multiply
from hw.vector.function import FunctionUnit
from hw.vector.pipeline import Streamed
from hw.vector.unit import VectorUnit
from scripts.simulator import Model, Testbench


def _add() -> wiring.Component:
    return Streamed(Fp32Add())


def _multiply() -> wiring.Component:
    return Streamed(Fp32Multiply())


def _function() -> wiring.Component:
    return Streamed(FunctionUnit())


# These run a few thousand cycles each: a quick build is worth more than a fast model.
QUICK = "-O0"

FP32_ADD = Model("fp32_add_unit", _add, optimise=QUICK)
FP32_MULTIPLY = Model("fp32_multiply_unit", _multiply, optimise=QUICK)
FUNCTION = Model("vector_function_unit", _function, optimise=QUICK)
ENGINE = Model("vector_engine_2", lambda: VectorEngine(2, 1024), key="2, 1024", optimise=QUICK)
UNIT = Model("vector_unit_2", lambda: VectorUnit(2, 1024, 128), key="2, 1024, 128", optimise=QUICK)


def unit_testbench(name: str, model: Model) -> Testbench:
    """The testbench of the unit that `tb/<name>/unit.py` describes."""
    return Testbench(name, model, "tb.vector.test_unit", environment={"VECTOR_UNIT": name})
