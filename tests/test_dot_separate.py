"""The comparison circuit of the area report computes what it is compared for."""

import numpy as np
import pytest
from amaranth.sim import Simulator

from golden.formats import FORMATS, Kind
from hw.numerics.formats import ElementFormat, FormatSet
from hw.numerics.separate import SeparateDot

NAMES = ["MXINT8", "E4M3", "E2M1", "INT4"]


def test_separate_dot(rng: np.random.Generator) -> None:
    dut = SeparateDot(FormatSet(NAMES))
    jobs = []
    for name in NAMES * 3:
        element = FORMATS[name].element
        a, b = rng.integers(0, 1 << element.bits, (2, 32), dtype=np.uint8)
        for codes in (a, b):
            codes[element.decode(codes)[3] != Kind.FINITE] = 0
        jobs.append((name, a, b, int(element.integers(a) @ element.integers(b))))
    found = []

    async def bench(ctx) -> None:
        for step in range(len(jobs) + dut.latency):
            if step < len(jobs):
                name, a, b, _ = jobs[step]
                ctx.set(dut.a.as_value(), int.from_bytes(a.tobytes(), "little"))
                ctx.set(dut.b.as_value(), int.from_bytes(b.tobytes(), "little"))
                ctx.set(dut.format, ElementFormat[name])
            if step >= dut.latency:
                found.append(ctx.get(dut.sum))
            await ctx.tick()

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    assert found == [job[3] for job in jobs]


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
def test_refuses_scales() -> None:
    with pytest.raises(ValueError, match="E8M0 scales only"):
        SeparateDot(FormatSet(["MXINT8", "NVFP4"]))
    with pytest.raises(ValueError, match=r"one or more of MXINT8, E4M3.*not \['FP7'\]"):
        FormatSet(["FP7"])
