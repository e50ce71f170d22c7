"""Layers on a tile with its memory: every output compared, cycles and utilisation from the tile's counters."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

import cocotb
import numpy as np
from amaranth.lib import data
from cocotb.triggers import ClockCycles, First, RisingEdge

from golden import model_fast, weights
from golden.compiler import PlacedProduct, results
from golden.formats import BLOCK, FORMATS
from golden.model import Quantised
from hw.config import ChipConfig
from hw.tile.drain import Outgoing
from hw.tile.isa import Counters, Memory, RemoteWrite, WeightRange
from hw.tile.program import Command, Destination, Halt, Matmul, encode_program
from tb.common.clock import start_clock
from tb.common.stream import StreamPort, StreamSource, decode
from tb.tile.work import START, remote_write
from tb.tile_memory import CONFIGS, Work, work_named

CONFIG = CONFIGS[os.environ["TILE_CONFIG"]]
CHIP = ChipConfig(tile=CONFIG)
WORK = work_named(os.environ["TILE_WORK"])
HOST = Destination(0, 0, 1)
OUTGOING, WRITE = data.Layout.cast(Outgoing), data.Layout.cast(RemoteWrite)
ADDRESS = data.Field(WRITE["address"].shape, OUTGOING["write"].offset + WRITE["address"].offset)
ELEMENTS = OUTGOING["write"].offset + WRITE["data"].offset
"""Where a granule's address and its elements are in what the tile sends."""
NUMBERS = np.random.default_rng(int(os.environ.get("SERRANO_SEED", "1")))


def random_matrix(rows: int, inputs: int, format: str) -> Quantised:
    return Quantised.of(NUMBERS.standard_normal((rows, inputs), np.float32), FORMATS[format])


@dataclass
class Prepared:
    """The work as a program, its memory image, its activation blocks and the results that it must give."""

    program: list[int]
    image: np.ndarray
    activations: dict[int, Quantised]
    bases: dict[int, int]
    placed: list[tuple[PlacedProduct, np.ndarray]]


def prepare(work: Work) -> Prepared:
    """Positions beyond what one job holds take further jobs, which read the weights again."""
    held = min(work.positions, CONFIG.rows * CONFIG.passes)
    activations = {inputs: random_matrix(held, inputs, "MXINT8") for inputs in dict.fromkeys(work.inputs)}
    bases, base = {}, 0
    for inputs in activations:
        bases[inputs] = base
        base += -(-held // CONFIG.rows) * (inputs // BLOCK)
    commands: list[Command] = []
    images, placed, granule, result = [], [], 0, 0
    for outputs, inputs in work.shapes:
        matrix = random_matrix(outputs, inputs, work.weight_format)
        given = activations[inputs]
        for _ in range(-(-work.positions // held)):
            command = Matmul(
                held, inputs, outputs, granule, bases[inputs], HOST, result, 0, weight_format=work.weight_format
            )
            stride = command.position_granules(CONFIG)
            command = Matmul(
                held, inputs, outputs, granule, bases[inputs], HOST, result, stride, weight_format=work.weight_format
            )
            product = PlacedProduct("", held, (range(outputs),), (result,), stride, (None,), (command,))
            expected = model_fast.matmul(
                given.codes, given.scales, matrix.codes, matrix.scales, given.format, matrix.format
            )
            placed.append((product, expected))
            commands.append(command)
            result += stride * held
        images.append(weights.pack(matrix.codes, matrix.scales, command.group(CONFIG), CONFIG.columns, matrix.format))
        granule += len(images[-1]) // weights.GRANULE
    program = encode_program(CONFIG, [*commands, Halt()])
    return Prepared(program, np.concatenate(images), activations, bases, placed)


PREPARED = prepare(WORK)
PREPARED.image.tofile("hbm0.bin")  # the device loads it at time zero, which comes after this module's import


async def load(dut, source: StreamSource) -> None:
    for address, word in enumerate(PREPARED.program):
        source.put(remote_write(Memory.PROGRAM, address, word.to_bytes(32, "little")))
    for inputs, matrix in PREPARED.activations.items():
        k_blocks = inputs // BLOCK
        for m, (codes, scales) in enumerate(zip(matrix.codes, matrix.scales, strict=True)):
            for k in range(k_blocks):
                index = PREPARED.bases[inputs] + m // CONFIG.rows * k_blocks + k
                part = codes[k * BLOCK : (k + 1) * BLOCK]
                done = source.put(remote_write(Memory.ACTIVATIONS, index << 6 | m % CONFIG.rows, part, int(scales[k])))
    await done.wait()


async def collect(dut, memory: dict[int, int]) -> None:
    """Results as they come; asleep while none do."""
    port = StreamPort(dut, "o", Outgoing)
    dut.o__ready.value = 1
    edge = RisingEdge(dut.clk)
    while True:
        if not int(port.valid.value):
            await RisingEdge(port.valid)
        await edge
        if int(port.valid.value):
            bits = int(port.payload.value)
            memory[bits >> ADDRESS.offset & (1 << ADDRESS.width) - 1] = bits >> ELEMENTS & (1 << 256) - 1


async def run(dut, source: StreamSource) -> dict[str, int]:
    """One execution of the program: the tile's counters."""
    await source.send(START)
    await ClockCycles(dut.clk, 4)
    if not int(dut.done.value):
        await First(RisingEdge(dut.done), ClockCycles(dut.clk, 50_000_000))
    assert int(dut.done.value), "the tile was not done"
    await ClockCycles(dut.clk, 4)
    return decode(Counters, int(dut.counters.value))


async def deliver(dut, probe: StreamSource, granules: int) -> dict[str, int]:
    """What the memory gives, in how many cycles, when it is asked for all at once and nothing holds it up."""
    dut.discard.value = 1
    start, before = int(dut.cycle.value), int(dut.delivered.value)
    await probe.send({"address": 0, "length": granules})
    while int(dut.delivered.value) < before + granules:
        await ClockCycles(dut.clk, 100)
    return {"delivered": granules, "delivery_cycles": int(dut.last.value) - start}


@cocotb.test()
async def test_shapes(dut):
    dut.rst.value = 1
    dut.discard.value = 0
    start_clock(dut.clk)
    await ClockCycles(dut.clk, 3)
    dut.rst.value = 0
    source, probe = StreamSource(StreamPort(dut, "i", RemoteWrite)), StreamSource(StreamPort(dut, "probe", WeightRange))
    memory: dict[int, int] = {}
    cocotb.start_soon(collect(dut, memory))
    await load(dut, source)
    counters = await run(dut, source)
    found = np.zeros((max(memory) + 1, 8), np.uint32)
    for address, value in memory.items():
        found[address] = np.frombuffer(value.to_bytes(32, "little"), "<u4")
    for index, (product, expected) in enumerate(PREPARED.placed):
        wrong = np.argwhere(results(CHIP, product, found) != expected)
        assert not len(wrong), f"product {index}: {len(wrong)} outputs differ, first {wrong[0]}"
    assert len(memory) == counters["result_granules"], "results were sent twice, or not at all"
    image = len(PREPARED.image) // weights.GRANULE
    # A product of more positions than a job holds reads its weights more than once.
    deliverable = await deliver(dut, probe, image) if counters["weight_granules"] == image else {}
    record = {"work": asdict(WORK), "counters": counters, "deliverable": deliverable}
    Path("measured.json").write_text(json.dumps(record))
