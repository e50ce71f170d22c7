"""One-gate mutants of a netlist, and whether the comparison that `verify` makes catches them."""

import dataclasses
import random
from collections.abc import Iterator

import numpy as np

from golden import specifications
from golden.specifications import Specification, Values
from scripts.verify import proof
from scripts.verify.engine import EXHAUSTIVE_BITS, Engine
from scripts.verify.netlist import ONE, ZERO, Cell, Netlist, evaluate, prune
from scripts.verify.ports import to_bits

TWO = ("$_AND_", "$_NAND_", "$_OR_", "$_NOR_", "$_XOR_", "$_XNOR_", "$_ANDNOT_", "$_ORNOT_")


@dataclasses.dataclass(frozen=True)
class Mutant:
    """`text` says what was changed."""

    text: str
    netlist: Netlist


@dataclasses.dataclass
class Score:
    """`equivalent` mutants compute the same function, proved by SAT: they are no faults and count nowhere else."""

    faults: int = 0
    caught: int = 0
    equivalent: int = 0
    unsettled: int = 0
    missed: list[str] = dataclasses.field(default_factory=list)

    @property
    def share(self) -> float:
        return self.caught / self.faults if self.faults else 0.0


def mutants(netlist: Netlist, count: int, seed: int) -> Iterator[Mutant]:
    """`count` different ones: another gate type, an input stuck at 0 or 1, an output stuck, or two inputs exchanged."""
    generator = random.Random(seed)
    seen: set[tuple] = set()
    while len(seen) < count:
        index = generator.randrange(len(netlist.cells))
        cell = netlist.cells[index]
        way = generator.choice(("type", "stuck input", "stuck output", "exchange"))
        pins, kind = list(cell.inputs), cell.kind
        if way == "type" and len(pins) == 2:
            kind = generator.choice([other for other in TWO if other != kind])
        elif way == "stuck input":
            pins[generator.randrange(len(pins))] = generator.choice((ZERO, ONE))
        elif way == "exchange" and kind == "$_MUX_":
            pins[0], pins[1] = pins[1], pins[0]
        elif way == "stuck output":
            kind, pins = "$_BUF_", [generator.choice((ZERO, ONE))]
        else:
            continue
        key = (index, kind, tuple(pins))
        if key in seen:
            continue
        seen.add(key)
        cells = list(netlist.cells)
        cells[index] = Cell(kind, tuple(pins), cell.output)
        yield Mutant(
            f"{way}: gate {index} {cell.kind}{cell.inputs} becomes {kind}{tuple(pins)}",
            prune(dataclasses.replace(netlist, cells=cells)),
        )


def _columns(specification: Specification, values: Values) -> dict[str, list[int]]:
    columns = {}
    for port in specification.inputs:
        packed = np.packbits(to_bits(values[port.name], port).T, axis=1, bitorder="little")
        columns[port.name] = [int.from_bytes(row.tobytes(), "little") for row in packed]
    return columns


def _stage(specification: Specification, vectors: int, seed: int) -> tuple[dict, dict, int]:
    """(operands, right results, number) as Python integers, one bit an operand set."""
    values = specifications.operands(specification.inputs, vectors, seed)
    want = specification.function(values)
    right = {}
    for port in specification.outputs:
        packed = np.packbits(to_bits(want[port.name], port).T, axis=1, bitorder="little")
        right[port.name] = [int.from_bytes(row.tobytes(), "little") for row in packed]
    return _columns(specification, values), right, vectors


def _caught(netlist: Netlist, specification: Specification, columns: dict, right: dict, vectors: int) -> bool:
    state = evaluate(netlist, columns, vectors)
    return any(
        state[net] != bits
        for port in specification.outputs
        for net, bits in zip(netlist.outputs[port.name], right[port.name], strict=True)
    )


def score(
    netlist: Netlist, specification: Specification, count: int, seed: int, vectors: int = 4096, seconds: float = 30.0
) -> Score:
    """Hold `count` mutants of a right netlist to the specification, as `verify` does.

    First `vectors` operand sets, then sixteen times as many; what they leave is compared with the right netlist by
    SAT, and what that does not settle is exhausted (or tested on 2^24 sets).
    """
    stages = [_stage(specification, vectors, seed), _stage(specification, 16 * vectors, seed + 1)]
    result = Score()
    for mutant in mutants(netlist, count, seed):
        if any(_caught(mutant.netlist, specification, *stage) for stage in stages):
            result.faults, result.caught = result.faults + 1, result.caught + 1
            continue
        same = proof.equivalent(mutant.netlist, netlist, specification, seconds)
        if same.equal:
            result.equivalent += 1
            continue
        engine = Engine(mutant.netlist, specification, optimise="-O1")
        found = engine.exhaustive() if specification.input_bits <= EXHAUSTIVE_BITS else engine.random(seed, 1 << 24)
        if found.wrong:
            result.faults, result.caught = result.faults + 1, result.caught + 1
        elif same.equal is False:
            result.faults += 1
            result.missed.append(mutant.text)
        else:
            result.unsettled += 1
    return result
