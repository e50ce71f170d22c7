"""Cycles of single commands, or of the functions of a decode layer, to the file that VECTOR_RESULT names."""

import json
import os
from pathlib import Path

import cocotb
import numpy as np

from golden import vector
from golden.attention import query_factor
from golden.fp32_ops import from_float
from golden.rope_tables import rope_table
from tb.vector.units import reset
from tb.vector_unit.test_vector_unit import LANES, TB, recorded


def finish(results) -> None:
    Path(os.environ["VECTOR_RESULT"]).write_text(json.dumps(results))


@cocotb.test()
async def commands(dut):
    """Commands of several lengths, without and with a reduction."""
    tb = TB(dut)
    await reset(dut)
    generator = np.random.default_rng(1)
    results = []
    for beats in (1, 4, 16, 32):
        for reduce in (vector.Reduce.NONE, vector.Reduce.SUM):
            x = from_float(generator.normal(size=(1, beats * LANES)))
            y = from_float(generator.normal(size=(1, beats * LANES)))
            record = recorded(lambda x=x, y=y, reduce=reduce: vector.vector_pass(x, y, reduce=reduce))[0]
            await tb.run(record)
            results.append({"beats": beats, "reduce": reduce.name, "cycles": tb.cycles})
    finish(results)


@cocotb.test()
async def layer(dut):
    """The functions of one decode step on one tile, each from its first command to its last write."""
    tb = TB(dut)
    await reset(dut)
    generator = np.random.default_rng(1)
    sizes = json.loads(os.environ["VECTOR_LAYER"])

    def row(*shape):
        return from_float(generator.normal(size=shape))

    hidden, head, inner = sizes["hidden"], sizes["head"], sizes["inner"]
    cosine, sine = (table[7:] for table in rope_table(100_000, head, 8))
    functions = {
        "norm": lambda: vector.rms_norm(row(1, hidden), row(hidden), from_float(1e-5)[()]),
        # The softmax scale is the rotation's factor.
        "query rotation": lambda: vector.rope(row(sizes["heads"], head), cosine, sine, query_factor(head)),
        "key rotation": lambda: vector.rope(row(sizes["kv_heads"], head), cosine, sine),
        "residual": lambda: vector.add(row(1, hidden), row(1, hidden)),
        "gate": lambda: vector.swiglu(row(1, inner), row(1, inner)),
    }
    results = {}
    for name, function in functions.items():
        results[name] = 0
        for record in recorded(function):
            await tb.run(record)
            results[name] += tb.cycles
    finish(results)
