"""What drives an attention tile: KV memory behind a granule stream, queries, commands, and the golden result."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import ClockCycles, RisingEdge

from golden import model_fast, vector
from golden.attention import LEAF, AttentionShape, PagedCache, attention, query_factor
from golden.attention_layout import leaf_granules, leaf_image
from golden.formats import FORMATS
from golden.fp32_ops import INFINITY, NAN, Bits, from_float
from hw.numerics.formats import ElementFormat
from hw.tile.isa import WeightRange
from hw.vector.append import AppendCommand, MemoryWrite
from hw.vector.attention_tile import ActivationWrite
from hw.vector.engine import result_layout
from hw.vector.leaves import AttentionCommand, AttentionSize
from hw.vector.slice_control import SinkLogit
from tb.common.clock import start_clock
from tb.common.stream import StreamPort, StreamSink, StreamSource, encode, randomly

SEED = int(os.environ.get("SERRANO_SEED", "1"))
TIMEOUT = 400_000


@dataclass
class Case:
    """One command: a chunk of `count` positions that ends at `length`, for `group` query heads of one key head."""

    length: int
    count: int = 1
    group: int = 3
    key_size: int = 64
    value_size: int = 64
    window: int = 0
    latent: bool = False
    sink: bool = False
    offset: float = 0.0
    position: int | None = None
    format: str = "MXINT8"
    append: int = 0  # of the last positions, which the hardware appends
    zero_keys: bool = False
    broken: tuple[int, ...] = ()  # positions with a NaN in the key (the even ones) or an infinity in the value

    @property
    def shape(self) -> AttentionShape:
        return AttentionShape(
            self.group, 1, self.key_size, self.value_size, FORMATS[self.format], self.window, self.latent
        )

    @property
    def positions(self) -> np.ndarray:
        first = self.length - self.count if self.position is None else self.position
        return np.arange(first, first + self.count)


@dataclass
class Prepared:
    """A case with its data: memory image, command, quantised query, sink logits, expected rows."""

    case: Case
    image: dict[int, int]
    command: dict[str, int]
    table: dict[int, int]
    query: tuple[np.ndarray, np.ndarray]
    sinks: Bits | None
    expected: Bits
    tokens: list[tuple[dict[str, int], list[int]]] = field(default_factory=list)


SLOT_BLOCKS, SLOT_LEAVES, SLOT_GRANULES = 80, 128, 1 << 20
CHUNKS = 4
"""Query rows of a prompt's chunks take turns in so many places."""


def prepare(case: Case, generator: np.random.Generator, slot: int = 0) -> Prepared:
    """Random keys, values and queries; pages scattered over memory; what golden attention makes of it.

    Of two commands that are queued at once, each needs a slot (0 or 1) of its own.
    """
    *memory, tokens = _memory(case, generator, slot)
    prepared = _chunk(case, generator, *memory, slot, slot * SLOT_BLOCKS)
    prepared.tokens = tokens
    return prepared


def prepare_prompt(case: Case, generator: np.random.Generator, size: AttentionSize, every: int = 1) -> list[Prepared]:
    """The prefill of `length` positions in chunks of `count`, or every so many of them, on one cache."""
    memory = _memory(case, generator, 0)[:4]
    chunks = []
    for first in range(0, case.length, case.count * every):
        blocks = -(-case.count * case.group // size.tile.rows) * (case.key_size // 32)
        base = len(chunks) % CHUNKS * blocks
        chunks.append(_chunk(replace(case, position=first), generator, *memory, 0, base))
        memory = (*memory[:2], {}, {})
    return chunks


def _memory(case: Case, generator: np.random.Generator, slot: int) -> tuple[PagedCache, np.ndarray, dict, dict, list]:
    """A filled cache, its page table, its granules by address, the hardware's page table, tokens to append."""
    shape = case.shape
    pages = -(-case.length // LEAF)
    cache, order = PagedCache(shape, pages), generator.permutation(pages)
    keys = from_float(generator.normal(size=(case.length, 1, case.key_size)))
    values = from_float(generator.normal(size=(case.length, 1, case.value_size)) * 3)
    if case.offset:
        keys[..., 0] = from_float(case.offset)
    if case.zero_keys:
        keys[:] = 0
    for position in case.broken:
        part, wrong = (values, INFINITY) if position % 2 and not case.latent else (keys, NAN)
        part[position, 0, 5] = wrong
    cache.append(order, np.arange(case.length), keys, values)
    size = leaf_granules(shape)
    image, table = {}, {}
    for leaf in range(pages):
        base = int(order[leaf]) * (size + 7) + 1000 + slot * SLOT_GRANULES
        table[slot * SLOT_LEAVES + leaf] = base
        stored = cache.leaf(order, leaf, 0, case.length)
        for part in (stored.key_codes, stored.key_scales, stored.value_codes, stored.value_scales):
            behind = part[
                max(case.length - case.append - leaf * LEAF, 0) :
            ]  # nobody has written there yet: anything can be
            behind[...] = generator.integers(0, 256, behind.shape)
        for index, row in enumerate(leaf_image(stored, shape)):
            image[base + index] = int.from_bytes(row.tobytes(), "little")
    tokens = []
    for position in range(case.length - case.append, case.length):
        numbers = keys[position, 0] if case.latent else np.concatenate([keys[position, 0], values[position, 0]])
        tokens.append((_append_command(case, position, slot), [_beat(part) for part in numbers.reshape(-1, 8)]))
    return cache, order, image, table, tokens


def _append_command(case: Case, position: int, slot: int) -> dict[str, int]:
    return {
        "position": position, "key_blocks": case.key_size // 32, "value_groups": case.value_size // 32,
        "table": slot * SLOT_LEAVES, "latent": int(case.latent), "element": ElementFormat[case.format].value,
    }  # fmt: skip


def _beat(numbers: Bits) -> int:
    return int.from_bytes(numbers.astype("<u4").tobytes(), "little")


def _chunk(case, generator, cache, order, image, table, slot: int, query_base: int) -> Prepared:
    """A case on a cache: queries, command, expected rows."""
    shape, positions = case.shape, case.positions
    query = from_float(generator.normal(size=(case.count, case.group, case.key_size)))
    query = vector.scale(query, query_factor(case.key_size))
    if case.offset:
        query[..., 0] = from_float(1.0)
    sinks = from_float(generator.normal(size=case.group) * 4) if case.sink else None
    last = int(max(positions.max(), 0)) // LEAF
    first = max(int(positions.min()) - case.window + 1, 0) // LEAF if case.window else 0
    command = {
        "rows": case.count * case.group, "group": case.group, "position": int(positions[0]), "window": case.window,
        "first_leaf": first, "last_leaf": last, "key_blocks": case.key_size // 32,
        "value_groups": case.value_size // 32, "query_base": query_base, "table": slot * SLOT_LEAVES,
        "latent": int(case.latent), "sink": int(case.sink), "sink_slot": slot,
        "element": ElementFormat[case.format].value,
    }  # fmt: skip
    expected = attention(query, positions, cache, order, sinks).reshape(-1, case.value_size)
    codes = model_fast.quantise(query.reshape(-1, case.key_size), shape.format)
    return Prepared(case, image, command, table, codes, sinks, expected)


class TB:
    """Owns the agents of an attention tile; `cycles` are those of the last command."""

    def __init__(self, dut: Any, size: AttentionSize, idle: float = 0.0, pause: float = 0.0):
        self.dut, self.size = dut, size
        self.command = StreamSource(StreamPort(dut, "command", AttentionCommand))
        self.query = StreamSource(StreamPort(dut, "query", ActivationWrite), randomly(idle, SEED + 1))
        self.granules = StreamSource(StreamPort(dut, "granules", 256), randomly(idle, SEED + 2))
        self.ranges = StreamSink(StreamPort(dut, "ranges", WeightRange), randomly(pause, SEED + 3), self._read)
        self.append = StreamSource(StreamPort(dut, "append", AppendCommand))
        self.append_values = StreamSource(StreamPort(dut, "append_values", 256), randomly(idle, SEED + 5))
        self.writes = StreamSink(StreamPort(dut, "writes", MemoryWrite), randomly(pause, SEED + 6), self._write)
        self.output = StreamSink(StreamPort(dut, "output", result_layout(8)), randomly(pause, SEED + 4))
        self.image: dict[int, int] = {}
        self.granules_read = self.cycles = 0

    def _read(self, request: dict[str, int]) -> None:
        for address in range(request["address"], request["address"] + request["length"]):
            self.granules.put(self.image[address])
        self.granules_read += request["length"]

    def _writes(self, prepared: Prepared) -> int:
        """Memory writes that append its tokens."""
        case = prepared.case
        blocks, groups = case.key_size // 32, case.value_size // 32
        return len(prepared.tokens) * (2 * blocks + (1 if case.latent else groups + 1))

    def _write(self, write: dict[str, int]) -> None:
        mask = sum(0xFF << 8 * byte for byte in range(32) if write["strobe"] >> byte & 1)
        before = self.image[write["address"]]
        self.image[write["address"]] = before & ~mask | write["data"] & mask

    async def reset(self) -> None:
        dut = self.dut
        dut.pages_enable.value = dut.sink_enable.value = 0
        dut.rst.value = 1
        start_clock(dut.clk)
        await ClockCycles(dut.clk, 2)
        dut.rst.value = 0

    async def set_up(self, prepared: Prepared) -> None:
        """Memory image, page table, query blocks and sink logits of a case."""
        dut, rows = self.dut, self.size.tile.rows
        self.image |= prepared.image
        for leaf, base in prepared.table.items():
            dut.pages_enable.value, dut.pages_address.value, dut.pages_data.value = 1, leaf, base
            await RisingEdge(dut.clk)
        dut.pages_enable.value = 0
        for command, beats in prepared.tokens:
            self.append.put(command)
            for beat in beats:
                self.append_values.put(beat)
        while prepared.tokens and (len(self.writes.received) < self._writes(prepared) or int(dut.appending.value)):
            await RisingEdge(dut.clk)
        self.writes.received.clear()
        codes, scales = prepared.query
        blocks = scales.shape[1]
        for row in range(len(codes)):
            for block in range(blocks):
                elements = codes[row, 32 * block : 32 * block + 32]
                address = prepared.command["query_base"] + row // rows * blocks + block
                await self.query.send({
                    "row": row % rows, "address": address,
                    "block": {"elements": dict(enumerate(map(int, elements))), "scale": int(scales[row, block])},
                })  # fmt: skip
        if prepared.sinks is not None:
            slot, dut.sink_enable.value = prepared.command["sink_slot"], 1
            for row, logit in enumerate(np.tile(prepared.sinks, prepared.case.count)):
                place = {"slot": slot, "slice": row % rows, "pass_": row // rows, "logit": int(logit)}
                dut.sink.value = encode(SinkLogit, place)
                await RisingEdge(dut.clk)
            dut.sink_enable.value = 0

    async def run(self, *prepared: Prepared, ahead: int = 0) -> list[Bits]:
        """Run cases, queued one behind the other; returns each one's rows uint32 [rows, value_size].

        All are set up, or with `ahead` only so many: a later one is set up and queued when the output of the one
        `ahead` before it has come, as a program does whose data take turns.
        """
        dut = self.dut
        self.granules_read = 0
        begin = cocotb.utils.get_sim_time("ns")
        for one in prepared[: ahead or None]:
            self.command.put(one.command)
        rows = []
        for index, one in enumerate(prepared):
            beats, waited = one.expected.size // 8, 0
            while len(self.output.received) < beats:
                await ClockCycles(dut.clk, 1)
                waited += 1
                assert waited < TIMEOUT, f"{len(self.output.received)} of {beats} beats of {one.case} came"
            found = [self.output.received.popleft() for _ in range(beats)]
            assert all(beat["keep"] == 0xFF for beat in found)
            elements = np.array([beat["elements"] for beat in found], dtype=np.uint32)
            rows.append(elements.reshape(-1, one.case.value_size))
            if ahead and index + ahead < len(prepared):
                await self.set_up(prepared[index + ahead])
                self.command.put(prepared[index + ahead].command)
        self.cycles = int(cocotb.utils.get_sim_time("ns") - begin)
        await ClockCycles(dut.clk, 20)
        assert not self.output.received, "more beats than asked for"
        assert not int(dut.busy.value), "still busy"
        return rows

    async def check(self, *prepared: Prepared) -> None:
        """Set up, run, compare every bit. Cases of different slots run with their commands queued."""
        for one in prepared:
            await self.set_up(one)
        for one, found in zip(prepared, await self.run(*prepared), strict=True):
            different = np.argwhere(found != one.expected)
            if len(different):
                first = tuple(int(i) for i in different[0])
                raise AssertionError(
                    f"{one.case}: {len(different)} of {found.size} differ, first at row, channel {first}: "
                    f"expected {one.expected[first]:#010x}, found {found[first]:#010x}"
                )
        assert not int(self.dut.error.value), "a command was refused"
        assert not int(self.dut.unsupported.value), "the array met an unsupported format"
