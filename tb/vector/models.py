"""Models of the vector unit's parts, shared by several testbenches so that each is built once."""

from amaranth.lib import wiring

from hw.vector.engine import VectorEngine
from hw.vector.fp32_add import Fp32Add
from hw.vector.fp32_multiply import Fp32Multiply
from hw.vector.function import FunctionUnit
from hw.vector.pipeline import Streamed
from hw.vector.unit import VectorUnit
from scripts.simulator import Model


def _add() -> wiring.Component:
    return Streamed(Fp32Add())


def _multiply() -> wiring.Component:
    return Streamed(Fp32Multiply())


def _function() -> wiring.Component:
    return Streamed(FunctionUnit())


def _engine(lanes: int) -> Model:
    return Model(f"vector_engine_{lanes}", lambda: VectorEngine(lanes, 1024), key=str(lanes))


FP32_ADD = Model("fp32_add_unit", _add)
FP32_MULTIPLY = Model("fp32_multiply_unit", _multiply)
FUNCTION = Model("vector_function_unit", _function)
ENGINE_4 = _engine(4)
UNIT_4 = Model("vector_unit_4", lambda: VectorUnit(4, 512, 256), key="4, 512, 256")
