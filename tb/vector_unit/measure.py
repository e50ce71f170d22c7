"""Cycles of single commands, to the file that VECTOR_RESULT names."""

import json
import os
from pathlib import Path

import cocotb
import numpy as np

from golden import vector
from golden.fp32_ops import from_float
from tb.vector.units import reset
from tb.vector_unit.test_vector_unit import LANES, TB, recorded


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
    Path(os.environ["VECTOR_RESULT"]).write_text(json.dumps(results))
