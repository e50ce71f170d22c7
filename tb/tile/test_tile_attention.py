"""The tile's attention by programs: every form of it, and a sequence whose leaves are on several tiles.

One tile is on the bench; where a sequence is on several, it runs their programs one after the other, and the testbench
brings what the golden machines of the others send.
"""

import os
import random
from dataclasses import replace
from pathlib import Path

import cocotb
import numpy as np
from cocotb.triggers import ClockCycles

from golden.machine import TileMachine
from hw.tile.attention import attention_size
from hw.tile.attention_program import Append, Attend, Sinks
from hw.tile.isa import AppendInstruction, AttendInstruction, Memory, SinkInstruction, TileError
from hw.tile.program import Halt, encode
from hw.tile.vector_program import Rows
from tb.common.coverage import Coverage, load_testplan
from tb.common.stream import randomly
from tb.tile import CONFIGS
from tb.tile.attention_work import PARTIALS, Case, SequenceWork
from tb.tile.test_tile import TB
from tb.tile.vector_bench import MemoryPort, changed, compare
from tb.tile.work import HOST, as_write, remote_write

CONFIG = CONFIGS[os.environ["TILE_CONFIG"]]
SEED = int(os.environ.get("SERRANO_SEED", "1"))
LONG = "TILE_ATTENTION_LONG" in os.environ
FORMATS = attention_size(CONFIG).formats
FP8 = FORMATS[-1]
TESTPLAN = load_testplan(Path(__file__).with_name("testplan.toml"))
NODES = ((2, 1), (3, 1), (2, 2), (3, 2))
CACHE = 100
KEY = CONFIG.attention_channels + 32
"""Channels of a latent key: a value of all that there are, and a block for the position."""
CASES = {
    "decode": Case(300),
    "prefill": Case(133, positions=4, group=2, append=20),
    "window": Case(262, window=128, append=2),
    "window_inside_leaf": Case(100, window=20, positions=2),
    "window_without_left_sibling": Case(520, window=128, positions=2, append=2),
    "sink": Case(140, sink=True, positions=2),
    "window_and_sink": Case(400, window=128, sink=True, positions=2, group=4, append=2),
    "latent": Case(140, key_size=KEY, latent=True, group=8, append=15),
    "latent_prefill": Case(131, positions=4, group=2, key_size=KEY, latent=True, append=4),
    "fp8": Case(150, positions=2, format=FP8, append=30),
    "fp8_latent_sink": Case(130, key_size=KEY, latent=True, format=FP8, sink=True, group=4, append=3),
}
SHARED = {
    "decode": Case(400, tiles=2),
    "prefill": Case(390, positions=4, group=2, append=10, tiles=2),
    "sink": Case(300, sink=True, window=180, positions=2, append=4, tiles=2),
    "latent_fp8": Case(260, key_size=KEY, latent=True, format=FP8, group=8, append=6, tiles=2),
}
LONG_CASES = {
    **{f"{name}_long": replace(case, length=case.length + 500) for name, case in CASES.items()},
    "positions_1024": Case(1024, positions=2),
    "every_value_size": Case(200, value_size=32, key_size=32),
    "longer_key": Case(200, value_size=32, key_size=96),
}
LONG_SHARED = {
    "four_tiles": Case(600, positions=2, tiles=4),
    "runs_of_two": Case(1000, positions=4, group=2, append=8, tiles=2, run=2),
    "four_tiles_sink_latent": Case(700, sink=True, key_size=KEY, latent=True, group=8, append=9, tiles=4),
}


class AttentionTB(TB):
    """A tile at one of a sequence's nodes, on a network that brings it what it and the other tiles send there."""

    def __init__(self, dut, pauses: float = 0.0):
        super().__init__(dut, idle=randomly(pauses, SEED), pause=randomly(pauses, SEED + 1))
        self.found, self.node = [], NODES[0]
        self.sink._callback = self._sent
        MemoryPort(dut, self.memory, randomly(0.3, SEED + 9))

    def _sent(self, value):
        write = as_write(value)
        self.found.append(write)
        if write.reaches(self.node):
            self.network.put(_transfer(write))

    async def run(self, work, image, machine, others):
        """The program of `machine` from its start; what it sent."""
        self.node, self.found = machine.node, []
        for address, word in enumerate(machine.program):
            await self.network.send(remote_write(Memory.PROGRAM, address, word.to_bytes(32, "little")))
        self.memory.image = bytearray(bytes(32 * work.cache) + image.tobytes())
        transfers = work.transfers()
        for write in others:
            transfers.insert(random.Random(SEED).randrange(len(transfers) + 1), _transfer(write))
        for transfer in transfers:
            self.network.put(transfer)
        await self.start()
        await self.done(400_000)
        await ClockCycles(self.dut.clk, 8)
        return self.found


def _transfer(write):
    codes = np.array(write.values, np.uint32).tobytes()
    return remote_write(write.memory, write.address, codes, write.scale, write.counter)


def brought(machine: TileMachine, machines: list[TileMachine]):
    """What the other machines have sent to this one."""
    return [write for other in machines if other is not machine for write in other.sent if write.reaches(machine.node)]


async def check(tb, case, seed):
    """Every tile of a case: what it sends, and so the home's rows, which the machines hold to golden attention."""
    work = SequenceWork(CONFIG, case, seed, NODES[: case.tiles], CACHE)
    images, programs = ([make(tile) for tile in range(case.tiles)] for make in (work.image, work.program))
    machines = work.machines(images, programs)
    for image, machine in zip(images, machines, strict=True):
        compare(machine.sent, await tb.run(work, image, machine, brought(machine, machines)))
        assert int(tb.dut.error.value) == 0


@cocotb.test()
@cocotb.parametrize(form=[*CASES, *(LONG_CASES if LONG else ())])
async def test_forms(dut, form):
    """Windows, sinks, latent keys, caches of FP8; one position and several; tokens appended, then attended to."""
    tb = AttentionTB(dut)
    await tb.reset()
    await check(tb, (CASES | LONG_CASES)[form], SEED)


@cocotb.test()
@cocotb.parametrize(form=[*SHARED, *(LONG_SHARED if LONG else ())])
async def test_shared_sequence(dut, form):
    """Leaves on several tiles: every tile's partial results, and the merged rows."""
    tb = AttentionTB(dut)
    await tb.reset()
    await check(tb, (SHARED | LONG_SHARED)[form], SEED)


@cocotb.test()
async def test_attention_refusals(dut):
    """Commands of attention that the tile cannot do stop it with an error and send nothing; then it works."""
    tb = AttentionTB(dut)
    await tb.reset()
    channels, rows = CONFIG.attention_channels, CONFIG.attention_rows
    attend = Attend(2, 1, 300, channels, channels, 0, 0, leaves=(0, 1)).words(CONFIG)[0]
    sinks = Sinks(2, 1, 0).words(CONFIG)[0]
    append = Append(1, 0, Rows(0), KEY, channels, latent=True).words(CONFIG)[0]
    cases = [
        (changed(attend, "command.sink", 1, AttendInstruction), TileError.SIZE),
        (changed(attend, "command.first_leaf", 2, AttendInstruction), TileError.SIZE),
        (changed(attend, "command.last_leaf", CONFIG.attention_leaves, AttendInstruction), TileError.SIZE),
        (changed(attend, "command.element", 15, AttendInstruction), TileError.SIZE),
        (changed(sinks, "rows", 0, SinkInstruction), TileError.SIZE),
        (changed(sinks, "rows", rows + 1, SinkInstruction), TileError.SIZE),
        (changed(sinks, "group", 0, SinkInstruction), TileError.SIZE),
        (changed(append, "token.key_blocks", channels // 32 - 1, AppendInstruction), TileError.SIZE),
    ]
    work = SequenceWork(CONFIG, Case(1), SEED, NODES[:1], CACHE)
    idle = TileMachine(CONFIG, np.zeros(0, np.uint8), node=NODES[0])
    for word, error in cases:
        idle.program = [word, encode(CONFIG, Halt())]
        work.granules = []
        assert not await tb.run(work, work.image(0), idle, []), "a refused program sent something"
        assert int(dut.error.value) == error.value, f"{word:x}: expected {error}, found {int(dut.error.value)}"
    await check(tb, CASES["sink"], SEED)


@cocotb.test()
async def test_random_sequences(dut):
    """Random forms, lengths, tiles and runs, with pauses on every stream."""
    tb, coverage, choice = AttentionTB(dut, 0.3), Coverage(TESTPLAN), random.Random(SEED)
    await tb.reset()
    for index in range(40 if LONG else 8):
        tiles, positions = choice.choice((1, 2, 2, 4)), choice.randint(1, 4)
        group = choice.randint(1, CONFIG.attention_rows // positions)
        latent, channels = index % 2 == 0, CONFIG.attention_channels
        length = choice.randint(positions, 520)
        case = Case(
            length, positions, group, KEY if latent else 32, channels if latent else 32,
            choice.choice(FORMATS), choice.choice((0, 0, 100, 128, 300)), latent, choice.random() < 0.5,
            choice.randint(0, min(12, length)), tiles, choice.choice((1, 1, 2)),
        )  # fmt: skip
        await check(tb, case, SEED + index)
        coverage.hit("attention_tiles", "one" if tiles == 1 else "several")
        for name, there in (("window", case.window), ("sink", case.sink), ("latent", latent)):
            coverage.hit("attention_forms", name if there else f"no_{name}")
        coverage.hit("attention_rows", "one_position" if positions == 1 else "several")
        coverage.hit("attention_kv", "fp8" if case.format == FP8 else "mxint8")
    holes = coverage.holes("attention_tiles", "attention_forms", "attention_rows", "attention_kv")
    assert not holes, f"never seen: {holes}"


@cocotb.test()
async def test_changed_partial_is_noticed(dut):
    """One bit of a partial result from another tile is another: the home's rows have to differ."""
    tb = AttentionTB(dut)
    await tb.reset()
    work = SequenceWork(CONFIG, Case(200, tiles=2), SEED, NODES[:2], CACHE)
    images, programs = ([make(tile) for tile in range(2)] for make in (work.image, work.program))
    home, other = work.machines(images, programs)
    others = brought(home, [home, other])
    index = next(i for i, write in enumerate(others) if write.counter == PARTIALS)
    values = others[index].values
    others[index] = replace(others[index], values=(values[0] ^ 1 << 23, *values[1:]))
    found = await tb.run(work, images[0], home, others)
    wrong = [(want, have) for want, have in zip(home.sent, found, strict=True) if want != have]
    assert len(wrong) == 1 and wrong[0][0].destination == (HOST.x, HOST.x, HOST.y, HOST.y, HOST.port), wrong
