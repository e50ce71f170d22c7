"""The whole chip: small products through every part of it, and its ports."""

import os

import cocotb
import numpy as np
from cocotb.triggers import ClockCycles
from cocotbext.axi import AxiResp

from golden.compiler import Plan, lower, results
from golden.formats import MXINT8
from golden.machine import TileMachine
from golden.model import Product, Quantised
from hw.chip.registers import REGISTERS, Error, Window
from hw.tile.isa import Memory
from tb.chip import default
from tb.chip.execute import execute
from tb.chip.host import Host

SEED = int(os.environ.get("SERRANO_SEED", "1"))
SHAPES = [[(11, 64, 100), (11, 64, 5)], [(1, 96, 70)], [(17, 32, 130), (17, 32, 3)]]


def random_phases(seed: int) -> list[list[Product]]:
    numbers = np.random.default_rng(seed)
    phases = []
    for shapes in SHAPES:
        positions, inputs, _ = shapes[0]
        activations = Quantised.of(numbers.standard_normal((positions, inputs), np.float32), MXINT8)
        phases.append([])
        for number, (_, _, outputs) in enumerate(shapes):
            weights = Quantised.of(numbers.standard_normal((outputs, inputs), np.float32), MXINT8)
            phases[-1].append(Product(f"{positions}x{inputs}x{outputs}_{number}", 0, activations, weights))
    return phases


# The devices load their images at time zero, before a test can run: they are written when this module is imported.
PHASES = random_phases(SEED)
PLAN: Plan = lower(default(), PHASES)
for _tile, _image in enumerate(PLAN.images):
    _image.tofile(f"hbm{_tile}.bin")


def golden_machines(plan: Plan) -> list[TileMachine]:
    """The golden machine of every tile at the end of its program."""
    machines = []
    for tile, program in enumerate(plan.programs):
        machine = TileMachine(plan.config.tile, plan.images[tile], program)
        for phase in plan.phases:
            for block in phase.blocks:
                machine.receive(*block)
            halted = machine.run()
        assert halted, f"golden machine of tile {tile} did not halt"
        machines.append(machine)
    return machines


def golden_memory(plan: Plan) -> dict[int, tuple[int, ...]]:
    """What the golden machines of all tiles leave in the host's result memory (not the counter records)."""
    memory: dict[int, tuple[int, ...]] = {}
    for machine in golden_machines(plan):
        for write in machine.sent:
            if write.memory == Memory.RESULTS and write.values is not None:
                assert write.address not in memory, f"granule {write.address} is written twice"
                memory[write.address] = write.values
    return memory


@cocotb.test()
@cocotb.parametrize(pause=[0.0, 0.5])
async def test_products(dut, pause):
    host = Host(dut)
    await host.reset()
    host.pause(pause, SEED)
    for _ in range(2):
        done = await execute(host, PLAN)
        for phase, products in zip(PLAN.phases, PHASES, strict=True):
            for placed, product in zip(phase.products, products, strict=True):
                found, expected = results(PLAN.config, placed, done.memory), product.golden()
                assert np.array_equal(found, expected), f"{product.name}: {np.argwhere(found != expected)[:3]}"
        # The result memory may still hold the run before: the counters tell that all of it is new.
        sent, granules = [len(machine.sent) for machine in golden_machines(PLAN)], "result_granules"
        assert [counters[granules] for counters in done.counters] == sent, f"sent {sent}, found {done.counters}"
        memory = golden_memory(PLAN)
        assert memory, "the golden machines sent nothing"
        for address, values in memory.items():
            assert tuple(done.memory[address]) == values, f"granule {address}: {values}, found {done.memory[address]}"
        check_counters(done.counters)
    await ClockCycles(dut.clk, 1000)
    assert await host.read("running") == 0 and await host.read("done") == (1 << PLAN.config.tiles) - 1


def check_counters(counters: list[dict[str, int]]) -> None:
    blocks = sum(len(phase.blocks) for phase in PLAN.phases)
    for tile, found in enumerate(counters):
        causes = ("issue", "stall_weights", "stall_activations", "stall_results", "stall_order", "idle")
        assert found["cycles"] == sum(found[cause] for cause in causes), (tile, found)
        assert found["activation_blocks"] == blocks, (tile, found)
        assert found["weight_granules"] == len(PLAN.images[tile]) // 32, (tile, found)
        assert 0 < found["issue"] <= found["cycles"], (tile, found)
        assert found["block_dots"] <= found["issue"] * PLAN.config.tile.rows * PLAN.config.tile.columns, (tile, found)


@cocotb.test()
async def test_registers(dut):
    host = Host(dut)
    await host.reset()
    assert await host.read("tiles") == PLAN.config.tiles
    await host.write("threshold", 7)
    assert await host.read("threshold") == 7
    for address in (0x3C, 0x0FFC, 0x1000 + PLAN.config.tiles * 0x100, 0xFFFC):
        assert (await host.registers.read(address, 4)).resp == AxiResp.SLVERR, f"{address:#x}"
        assert (await host.registers.write(address, bytes(4))).resp == AxiResp.SLVERR, f"{address:#x}"
    assert (await host.registers.write(REGISTERS["identity"].offset, bytes(4))).resp == AxiResp.SLVERR
    assert not int(dut.irq.value)


@cocotb.test()
async def test_data_port_errors(dut):
    host = Host(dut)
    await host.reset()
    config = PLAN.config
    beat = bytes(32)
    wrong_writes = {
        0x5000_0000: AxiResp.DECERR,
        Window.RESULTS << 28: AxiResp.SLVERR,
        (Window.PROGRAMS << 28) | config.tiles << 20: AxiResp.DECERR,
        (Window.START << 28) | config.tiles << 20: AxiResp.DECERR,
        (Window.START << 28) | 32: AxiResp.DECERR,
        (Window.PROGRAMS << 28) | config.tile.instruction_depth * 32: AxiResp.DECERR,
        (Window.ACTIVATIONS << 28) | config.tile.rows << 6: AxiResp.DECERR,
        (Window.ACTIVATIONS << 28) | config.tile.activation_depth << 12: AxiResp.DECERR,
    }
    for address, response in wrong_writes.items():
        found = await host.axi.write(address, 4 * beat)
        assert found.resp == response, f"write {address:#x}: expected {response!r}, found {found.resp!r}"
    assert (await host.axi.write(Window.PROGRAMS << 28, bytes(8))).resp == AxiResp.SLVERR
    wrong_reads = {
        0x6000_0000: AxiResp.DECERR,
        Window.PROGRAMS << 28: AxiResp.SLVERR,
        Window.START << 28: AxiResp.SLVERR,
        config.result_granules * 32: AxiResp.DECERR,
    }
    for address, response in wrong_reads.items():
        found = await host.axi.read(address, 64)
        assert found.resp == response and not any(found.data), f"read {address:#x}: {found.resp!r}"
    assert (await host.axi.read(0, 64)).resp == AxiResp.OKAY
    assert (await host.counters(0))["activation_blocks"] == 0, "a refused write reached a tile"


@cocotb.test()
async def test_refused_program(dut):
    host = Host(dut)
    await host.reset()
    await host.load_program(1, [15])  # no such opcode
    await host.start(1)
    await ClockCycles(dut.clk, 20)
    assert int(dut.irq.value), "no interrupt for a refused program"
    assert await host.read("error") == 1 << Error.TILE
    assert await host.read("tile_error") == 1 << 2
    await host.load_program(1, [0])
    await host.start(1)
    await ClockCycles(dut.clk, 20)
    await host.write("clear", 1)
    assert await host.read("error") == 0 and not int(dut.irq.value)
