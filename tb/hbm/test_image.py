"""Image load and dump of the device: run by `tests/test_hbm_image.py`, which makes the image and reads the dump."""

from __future__ import annotations

import os
from pathlib import Path

import cocotb
from cocotb.triggers import ClockCycles

from tb.hbm.test_axi import TB, reset

AT = 32 * int(os.environ.get("HBM_IMAGE_AT", "0"))


@cocotb.test()
async def test_image(dut) -> None:
    """The image stands in address order, zeros around it; what is written is in the dump."""
    image = Path(os.environ["HBM_IMAGE"]).read_bytes()
    tb = TB(dut)
    await reset(dut)
    for start in range(0, len(image), 4096):
        assert await tb.read(AT + start, 4096) == image[start : start + 4096], start
    assert await tb.read(AT - 64, 64) == bytes(64)
    assert await tb.read(AT + len(image), 64) == bytes(64)
    await tb.write(AT + 7, b"granules")
    await ClockCycles(dut.clk, 2000)
    assert int(dut.violation.value) == 0
