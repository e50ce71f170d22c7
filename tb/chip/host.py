"""The host as software sees it: registers, data port, interrupt, over cocotbext-axi."""

from __future__ import annotations

import logging
from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import ClockCycles, RisingEdge, Timer
from cocotbext.axi import AxiBus, AxiLiteBus, AxiLiteMaster, AxiMaster
from numpy.typing import NDArray

from hw.chip.registers import (
    COUNTER_BASE,
    COUNTER_STRIDE,
    HBM_COUNTER_OFFSET,
    HBM_COUNTERS,
    IDENTITY,
    REGISTERS,
    TILE_COUNTERS,
    Window,
)
from tb.common.clock import start_clock
from tb.common.stream import randomly


class Host:
    """Drives a chip. `reset` first; every access is a real transfer on the chip's ports."""

    def __init__(self, dut: Any):
        self.dut = dut
        logging.getLogger(f"cocotb.{dut._name}").setLevel(logging.WARNING)
        self.registers = AxiLiteMaster(
            AxiLiteBus.from_prefix(dut, "registers", bus_separator="__"), dut.clk, dut.rst, True
        )
        self.axi = AxiMaster(AxiBus.from_prefix(dut, "axi", bus_separator="__"), dut.clk, dut.rst, True)

    async def reset(self) -> None:
        self.dut.rst.value = 1
        start_clock(self.dut.clk)
        await ClockCycles(self.dut.clk, 4)
        self.dut.rst.value = 0
        await ClockCycles(self.dut.clk, 2)
        found = await self.read("identity")
        assert found == IDENTITY, f"register identity: expected {IDENTITY:#x}, found {found:#x}"

    def pause(self, share: float, seed: int) -> None:
        """Pause every channel of both ports in a `share` of the cycles: idle in front, back-pressure behind."""
        for offset, port in enumerate((self.axi, self.registers)):
            write, read = port.write_if, port.read_if
            channels = (write.aw_channel, write.w_channel, write.b_channel, read.ar_channel, read.r_channel)
            for index, channel in enumerate(channels):
                channel.set_pause_generator(randomly(share, seed + 8 * offset + index))

    async def read(self, name: str) -> int:
        return int(await self.registers.read_dword(REGISTERS[name].offset))

    async def write(self, name: str, value: int) -> None:
        await self.registers.write_dword(REGISTERS[name].offset, value)

    async def counters(self, tile: int) -> dict[str, int]:
        """Counters of a tile, and of its memory as hbm_<name>."""
        base = COUNTER_BASE + tile * COUNTER_STRIDE
        found = {name: await self.registers.read_dword(base + 4 * i) for i, name in enumerate(TILE_COUNTERS)}
        hbm = base + HBM_COUNTER_OFFSET
        found |= {f"hbm_{name}": await self.registers.read_dword(hbm + 4 * i) for i, name in enumerate(HBM_COUNTERS)}
        return found

    async def load_program(self, tile: int, program: list[int]) -> None:
        image = b"".join(word.to_bytes(32, "little") for word in program)
        response = await self.axi.write((Window.PROGRAMS << 28) | tile << 20, image)
        assert response.resp == 0, f"program of tile {tile}: response {response.resp!r}"

    async def start(self, tile: int) -> None:
        """Start a tile's program; it comes behind the instructions on their own way."""
        response = await self.axi.write((Window.START << 28) | tile << 20, bytes(32))
        assert response.resp == 0, f"start of tile {tile}: response {response.resp!r}"

    async def write_blocks(self, blocks: Any) -> None:
        """Activation blocks (remote-write address, elements, scale) to every tile; neighbours go in one burst."""
        run: list[bytes] = []
        start = last = None
        for address, elements, scale in blocks:
            if last is None or address != last + 1:
                await self._flush(start, run)
                start, run = address, []
            run.append(bytes(elements) + scale.to_bytes(32, "little"))
            last = address
        await self._flush(start, run)

    async def _flush(self, start: int | None, run: list[bytes]) -> None:
        if run and start is not None:
            response = await self.axi.write((Window.ACTIVATIONS << 28) | start << 6, b"".join(run))
            assert response.resp == 0, f"activation block {start:#x}: response {response.resp!r}"

    async def write_rows(self, address: int, granules: NDArray[np.uint32]) -> None:
        """Granules uint32 [n, 8] into every tile's vector memory, from granule `address` on."""
        response = await self.axi.write((Window.VECTORS << 28) | address << 5, granules.astype("<u4").tobytes())
        assert response.resp == 0, f"granule {address:#x} of the vector memories: response {response.resp!r}"

    async def results(self, granules: int) -> NDArray[np.uint32]:
        """The result memory, uint32 [granules, 8]."""
        read = await self.axi.read(Window.RESULTS << 28, 32 * granules)
        assert read.resp == 0, f"results: response {read.resp!r}"
        return np.frombuffer(bytes(read.data), "<u4").reshape(-1, 8).copy()

    async def signals(self, count: int, limit: int = 10_000_000) -> None:
        """Wait for the interrupt of `count` signals; raises when an error raises it, or after `limit` cycles."""
        await self.write("threshold", count)
        if not int(self.dut.irq.value):
            await cocotb.triggers.First(RisingEdge(self.dut.irq), Timer(limit, "ns"))
        found, error = await self.read("signals"), await self.read("error")
        if error:
            raise AssertionError(f"the chip reports error {error:#x}, tiles {await self.read('tile_error'):#x}")
        assert found >= count, f"{found} of {count} signals after {limit} cycles"
