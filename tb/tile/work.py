"""Words on a tile's ports, and random products: weights, activations, program, and what the golden machine sends."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from golden import weights
from golden.formats import FORMATS, ScaleType, pair_problem
from golden.machine import TileMachine, Write
from hw.tile.config import TileConfig
from hw.tile.isa import Memory
from hw.tile.program import Await, Command, Destination, Halt, Matmul, Signal, encode_program
from tb.dot.vectors import random_scales

HOST = Destination(1, 0, 1)
SPECIAL_SCALES = {"nan_scale": 0xFF, "extreme_scale": 0xFE, "tiny_scale": 0x00}


def remote_write(memory: Memory, address: int, codes: Any, scale: int = 0, counter: int = 0) -> dict[str, Any]:
    """A transfer of the port `i`."""
    return {
        "memory": memory.value, "address": address, "counter": counter,
        "data": {"elements": int.from_bytes(bytes(codes), "little"), "scale": scale},
    }  # fmt: skip


START = remote_write(Memory.SIGNAL, 0, bytes(32))


def as_write(value: dict[str, Any]) -> Write:
    """A transfer of the port `o` as the golden machine says it."""
    place, write = value["destination"], value["write"]
    elements = bytes(write["data"]["elements"])
    lanes = tuple(int.from_bytes(elements[4 * i : 4 * i + 4], "little") for i in range(8))
    return Write(
        tuple(place[name] for name in ("x_first", "x_last", "y_first", "y_last", "port")), Memory(write["memory"]),
        write["address"], lanes, write["counter"], write["data"]["scale"],
    )  # fmt: skip


@dataclass
class Work:
    """A program under construction with its memory image and the activation blocks to send."""

    config: TileConfig
    seed: int
    commands: list[Command] = field(default_factory=list)
    image: list[np.ndarray] = field(default_factory=list)
    blocks: list[tuple[int, np.ndarray, int]] = field(default_factory=list)
    specials: set[str] = field(default_factory=set)
    base: int = 0

    def __post_init__(self) -> None:
        self.numbers = np.random.default_rng(self.seed)
        self.choice = random.Random(self.seed)

        names = self.config.formats
        self._pairs = [(a, b) for a in names for b in names if pair_problem(FORMATS[a], FORMATS[b]) is None]

    @property
    def granules(self) -> int:
        return sum(len(part) for part in self.image) // weights.GRANULE

    def product(self, rows: int, inputs: int, outputs: int, record: bool = False, special: bool = False) -> Matmul:
        """Add a product of random blocks; its activations follow those of the products before."""
        result = 4096 * len(self.commands)
        formats = self.choice.choice(self._pairs)
        command = Matmul(
            rows, inputs, outputs, self.granules, self.base, self._destination(), result, 64, *formats,
            record_address=result + 4000 if record else None,
        )  # fmt: skip
        codes, scales = self._blocks(outputs, inputs, command.weight_format, special)
        self.image.append(
            weights.pack(codes, scales, command.group(self.config), self.config.columns, FORMATS[command.weight_format])
        )
        codes, scales = self._blocks(rows, inputs, command.activation_format, special)
        k_blocks = inputs // 32
        for m in range(rows):
            for k in range(k_blocks):
                index = self.base + m // self.config.rows * k_blocks + k
                address = index << 6 | m % self.config.rows
                self.blocks.append((address, codes[m, 32 * k : 32 * k + 32], int(scales[m, k])))
        self.base += -(-rows // self.config.rows) * k_blocks
        self.commands += [Await(rows * k_blocks), command]
        return command

    def _destination(self) -> Destination:
        return Destination(self.choice.randrange(64), self.choice.randrange(64), self.choice.randrange(2))

    def _blocks(self, rows: int, inputs: int, format: str, special: bool) -> tuple[np.ndarray, np.ndarray]:
        codes = self.numbers.integers(0, 1 << FORMATS[format].bits, (rows, inputs), np.uint8)
        if FORMATS[format].scale == ScaleType.E8M0:
            scales = self.numbers.integers(120, 135, (rows, inputs // 32), np.uint8)
        else:
            scales = random_scales(FORMATS[format], rows * inputs // 32, self.numbers).reshape(rows, -1)
        if special and scales.dtype == np.uint8 and self.choice.random() < 0.5:
            name, value = self.choice.choice(list(SPECIAL_SCALES.items()))
            scales[self.choice.randrange(rows), self.choice.randrange(inputs // 32)] = value
            self.specials.add("extreme_scale" if name == "tiny_scale" else name)
        if special and self.choice.random() < 0.5:
            codes[self.choice.randrange(rows), :32] = 0
            self.specials.add("zero_block")
        return codes, scales

    def finish(self) -> list[int]:
        """The encoded program, ended by a signal."""
        self.commands += [Signal(len(self.commands), HOST), Halt()]
        return encode_program(self.config, self.commands)

    def expected(self, program: list[int]) -> list[Write]:
        """What the golden machine sends."""
        machine = TileMachine(self.config, np.concatenate([*self.image, np.zeros(0, np.uint8)]), program)
        for block in self.blocks:
            machine.receive(*block)
        assert machine.run(), "the golden machine did not reach the end of the program"
        return machine.sent
