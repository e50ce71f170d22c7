"""Testbench of `hw.vector.quantise_rows.QuantiseRows`."""

from hw.vector.quantise_rows import QuantiseRows
from scripts.simulator import Model, Testbench

FORMATS = ("MXINT8", "E4M3", "E2M1")
ROWS = 3
"""No power of two: nothing may count on one."""

MODEL = Model("quantise_rows", lambda: QuantiseRows(FORMATS, ROWS), key=f"{FORMATS} {ROWS}", optimise="-O0")

TESTBENCHES = [Testbench("quantise_rows", MODEL, "tb.quantise_rows.test_quantise_rows")]
