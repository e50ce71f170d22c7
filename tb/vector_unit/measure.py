"""Cycles of single commands of the vector unit, from command to done, to the file that VECTOR_RESULT names."""

import json
import os
from pathlib import Path

import cocotb
import numpy as np

from golden import vector
from golden.fp32_ops import from_float
from tb.vector.lower import lower
from tb.vector.units import reset
from tb.vector_unit.test_vector_unit import LANES, TB, recorded


@cocotb.test()
async def measure(dut):
    tb = TB(dut)
    await reset(dut)
    generator = np.random.default_rng(1)
    results = []
    for beats in (1, 4, 16, 32):
        for reduce in (vector.Reduce.NONE, vector.Reduce.SUM):
            x = from_float(generator.normal(size=(1, beats * LANES)))
            y = from_float(generator.normal(size=(1, beats * LANES)))
            record = recorded(lambda x=x, y=y, reduce=reduce: vector.vector_pass(x, y, reduce=reduce))[0]
            lowered = lower(record, LANES)
            for index, name in enumerate(("a", "b")):
                await tb.write(index * beats, lowered.streams[name])
            places = {i: {"address": i * beats, "stride": beats, "external": 0} for i in range(2)}
            target = {"address": 2 * beats, "stride": beats, "external": 0}
            begin = cocotb.utils.get_sim_time("ns")
            await tb.command.send(
                {"engine": lowered.command, "operands": places, "result": target, "reduced": 3 * beats}
            )
            cycles = int(cocotb.utils.get_sim_time("ns") - begin)
            results.append({"beats": beats, "reduce": reduce.name, "cycles": cycles})
    Path(os.environ["VECTOR_RESULT"]).write_text(json.dumps(results))
