"""Judge one candidate: admit or render it, prove or exhaust it, measure it. The result is plain data, and the same for
the same circuit wherever and whenever it is made."""

import dataclasses
import json

import numpy as np

from golden import specifications
from golden.specifications import Specification, Values
from golden.specifications.core import describe
from scripts.explore import admit, graphs, measure
from scripts.explore.measure import MeasureError, Recipe
from scripts.explore.prefix import GraphError
from scripts.verify import netlist as netlists
from scripts.verify import proof
from scripts.verify.engine import EXHAUSTIVE_BITS, Comparison, Engine
from scripts.verify.netlist import Netlist
from scripts.verify.ports import to_bits

WIDE_INTEGER_BITS = 16
"""Operand bits up to which all operand sets are evaluated at once on Python integers, with nothing to compile."""
RANDOM = 1 << 14
PROOF_SECONDS = 60.0


@dataclasses.dataclass(frozen=True)
class Candidate:
    """What a proposer hands in. `kind`: `graph` (content is JSON text) or `verilog`."""

    kind: str
    content: str
    origin: str = ""
    rationale: str = ""


@dataclasses.dataclass(frozen=True)
class Judged:
    """`result` as it is stored and sent back; `netlist` the canonical form's hash (None if there was no circuit)."""

    result: dict
    netlist: str | None


def block(name: str) -> Specification:
    """The specification of an explored block: combinational, and an adder without carry input.

    Raises `ValueError` for a specification that cannot be explored.
    """
    specification = specifications.find(name)
    if specification.bound is not None:
        raise ValueError(f"{name} has an error bound; bounded functions can be verified but not explored yet")
    return specification.reduced(
        {p.name for p in specification.inputs if not p.optional} | {p.name for p in specification.outputs}
    )


def circuit(candidate: Candidate, specification: Specification) -> Netlist:
    """The candidate's netlist; raises `GraphError`, `admit.Refused` or `sandbox.SandboxUnavailable`."""
    if candidate.kind == "verilog":
        return admit.admit(candidate.content, specification)
    if candidate.kind != "graph":
        raise GraphError(f"kind must be graph or verilog, not {candidate.kind!r}")
    if len(candidate.content) > 16 << 20:
        raise GraphError("graph text longer than 16 MiB")
    try:
        graph = json.loads(candidate.content)
    except (ValueError, RecursionError) as error:
        raise GraphError(f"not JSON: {error}") from error
    return admit.accept(graphs.render(graph, specification), specification)


def judge_named(candidate: Candidate, name: str, recipe: Recipe, known: frozenset[str]) -> Judged:
    """`judge` for a worker process: the block by name, so that everything can be pickled."""
    return judge(candidate, block(name), recipe, known)


def judge(
    candidate: Candidate, specification: Specification, recipe: Recipe, known: frozenset[str] = frozenset()
) -> Judged:
    """Everything about one candidate. `known`: canonical netlists whose result the archive has; theirs is `known`."""
    try:
        netlist = circuit(candidate, specification)
    except (GraphError, admit.Refused) as error:
        return Judged({"verdict": "refused", "reason": str(error)}, None)
    key = netlists.canonical(netlist)
    if key in known:
        return Judged({"verdict": "known"}, key)
    graph = json.loads(candidate.content) if candidate.kind == "graph" else None
    wrong, how = correctness(netlist, specification, graphs.certified(graph))
    if wrong is not None:
        return Judged({"verdict": "wrong", "reason": how, "counterexample": wrong}, key)
    try:
        points = measure.measure(netlist, specification, recipe)
    except MeasureError as error:
        return Judged({"verdict": "unmeasured", "reason": str(error)}, key)
    return Judged(
        {
            "verdict": "correct",
            "proof": how,
            "gates": len(netlist.cells),
            "points": [dataclasses.asdict(point) for point in points],
        },
        key,
    )


def correctness(netlist: Netlist, specification: Specification, certified: bool = False) -> tuple[dict | None, str]:
    """(counterexample or None, how that is known). Raises `MeasureError` never; what is not settled counts as wrong."""
    if specification.input_bits <= WIDE_INTEGER_BITS:
        count = 1 << specification.input_bits
        return _compare(netlist, specification, _counter(specification, count)), f"exhaustive: all {count} operand sets"
    sample = specifications.operands(specification.inputs, RANDOM, seed=1)
    wrong = _compare(netlist, specification, sample)
    if wrong is not None:
        return wrong, f"{RANDOM} operand sets, seed 1"
    if certified:
        return None, f"by construction (linear-time certificate); also {RANDOM} operand sets, seed 1"
    if specification.input_bits <= EXHAUSTIVE_BITS:
        result = Engine(netlist, specification).exhaustive()
        return _first(result, specification), f"exhaustive: all {result.checked} operand sets"
    result = Engine(netlist, specification).random(1, 1 << 22)
    if result.wrong:
        return _first(result, specification), f"{result.checked} operand sets, seed 1"
    if specification.verilog:
        settled = proof.prove(netlist, specification, PROOF_SECONDS)
        if settled.equal:
            return None, settled.by
        if settled.counterexample:
            return {"operands": _shown(specification, settled.counterexample)}, settled.by
        return {"operands": {}}, f"not proved and therefore not accepted: {settled.by}"
    return {"operands": {}}, "too wide to exhaust and without a reference to prove against: not accepted"


def _counter(specification: Specification, count: int) -> Values:
    """All operand sets; the first port counts fastest."""
    counter, values, at = np.arange(count, dtype=np.uint64), {}, 0
    for port in specification.inputs:
        parts = [
            (counter >> np.uint64(at + i * port.width)) & np.uint64((1 << port.width) - 1) for i in range(port.elements)
        ]
        values[port.name] = np.stack(parts, axis=1) if port.elements > 1 else parts[0]
        at += port.bits
    return values


def _columns(matrix: np.ndarray) -> list[int]:
    packed = np.packbits(matrix.T, axis=1, bitorder="little")
    return [int.from_bytes(row.tobytes(), "little") for row in packed]


def _compare(netlist: Netlist, specification: Specification, values: Values) -> dict | None:
    """The first operand set on which the netlist is wrong, as feedback, or None."""
    want = specification.function(values)
    count = len(next(iter(want.values())))
    state = netlists.evaluate(
        netlist, {p.name: _columns(to_bits(values[p.name], p)) for p in specification.inputs}, count
    )
    different = 0
    for port in specification.outputs:
        for net, bits in zip(netlist.outputs[port.name], _columns(to_bits(want[port.name], port)), strict=True):
            different |= state[net] ^ bits
    if not different:
        return None
    row = (different & -different).bit_length() - 1
    found = {
        port.name: sum((state[net] >> row & 1) << i for i, net in enumerate(netlist.outputs[port.name]))
        for port in specification.outputs
    }
    operands = {port.name: np.atleast_1d(values[port.name][row]).tolist() for port in specification.inputs}
    return {
        "operands": _shown(specification, operands),
        "expected": {port.name: describe(port, int(want[port.name][row])) for port in specification.outputs},
        "found": {port.name: describe(port, found[port.name]) for port in specification.outputs},
        "wrong": different.bit_count(),
        "tried": count,
    }


def _shown(specification: Specification, operands: dict[str, list[int]]) -> dict:
    shown = {port.name: [describe(port, value) for value in operands[port.name]] for port in specification.inputs}
    return {name: texts if len(texts) > 1 else texts[0] for name, texts in shown.items()}


def _first(result: Comparison, specification: Specification) -> dict | None:
    if not result.wrong:
        return None
    first = result.differences[0]
    return {
        "operands": _shown(specification, first.inputs),
        "expected": {port.name: describe(port, first.want[port.name]) for port in specification.outputs},
        "found": {port.name: describe(port, first.got[port.name]) for port in specification.outputs},
        "wrong": result.wrong,
        "tried": result.checked,
    }
