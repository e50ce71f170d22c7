"""Testbench of `hw.vector.append.KvAppender`."""

from hw.tile.config import TileConfig
from hw.vector.append import KvAppender
from hw.vector.leaves import AttentionSize
from scripts.simulator import Model, Testbench

SIZE = AttentionSize(TileConfig(2, 2, slots=16, passes=4, activation_depth=128, formats=("MXINT8", "E4M3")), 8, 4)
MODEL = Model("kv_append", lambda: KvAppender(SIZE), key=repr(SIZE), optimise="-O0")

TESTBENCHES = [Testbench("kv_append", MODEL, "tb.kv_append.test_kv_append")]
