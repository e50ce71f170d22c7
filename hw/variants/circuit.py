"""A combinational netlist as a component with pipeline registers."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from amaranth.hdl import Cat, Const, Module, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw.numerics.formats import FormatSet

__all__ = ["Gates", "PipelinedCircuit", "VariantBlockDot", "crossings", "levels", "thrifty_cuts"]


class _Cell(Protocol):
    @property
    def kind(self) -> str: ...

    @property
    def inputs(self) -> tuple[int, ...]: ...

    @property
    def output(self) -> int: ...


class Gates(Protocol):
    """A circuit: nets are integers, 0 and 1 the constants; cells in topological order; lowest bits first."""

    @property
    def inputs(self) -> Mapping[str, Sequence[int]]: ...

    @property
    def outputs(self) -> Mapping[str, Sequence[int]]: ...

    @property
    def cells(self) -> Sequence[_Cell]: ...


KINDS: dict[str, Callable[..., Value]] = {
    "$_BUF_": lambda a: a,
    "$_NOT_": lambda a: ~a,
    "$_AND_": lambda a, b: a & b,
    "$_NAND_": lambda a, b: ~(a & b),
    "$_OR_": lambda a, b: a | b,
    "$_NOR_": lambda a, b: ~(a | b),
    "$_XOR_": lambda a, b: a ^ b,
    "$_XNOR_": lambda a, b: ~(a ^ b),
    "$_ANDNOT_": lambda a, b: a & ~b,
    "$_ORNOT_": lambda a, b: a | ~b,
    "$_MUX_": lambda a, b, s: (a & ~s) | (b & s),
}
_DELAY = {"$_XOR_": 2, "$_XNOR_": 2, "$_MUX_": 2, "$_BUF_": 0}
"""Levels of a gate where it is not one: only used to cut the circuit into stages of like depth."""


def levels(gates: Gates) -> dict[int, int]:
    """Level of every net: inputs and constants 0, a gate's output by `_DELAY` after its latest input."""
    level = {0: 0, 1: 0} | {net: 0 for nets in gates.inputs.values() for net in nets}
    for cell in gates.cells:
        level[cell.output] = max(level[net] for net in cell.inputs) + _DELAY.get(cell.kind, 1)
    return level


def crossings(gates: Gates) -> list[int]:
    """For every level, the registers that a cut after it takes: nets from there or before that are used behind it."""
    level = levels(gates)
    last = dict.fromkeys(level, 0)  # deepest level at which a net is used
    for cell in gates.cells:
        for net in cell.inputs:
            last[net] = max(last[net], level[cell.output])
    deepest = max(level.values())
    for nets in gates.outputs.values():
        last.update(dict.fromkeys(nets, deepest + 1))
    counts = [0] * (deepest + 1)
    for net, end in last.items():
        if net > 1:
            for place in range(level[net], min(end, deepest + 1)):
                counts[place] += 1
    return counts


def thrifty_cuts(gates: Gates, latency: int, longest: int) -> tuple[int, ...]:
    """The cuts with the fewest registers such that no stage is deeper than `longest` levels.

    Raises ValueError where `latency` stages of that depth do not hold the circuit.
    """
    counts = crossings(gates)
    deepest = len(counts) - 1
    best: dict[int, tuple[int, tuple[int, ...]]] = {0: (0, ())}  # end of the last stage: registers so far, cuts
    for stage in range(latency - 1):
        found: dict[int, tuple[int, tuple[int, ...]]] = {}
        for place in range(stage + 1, deepest):
            ways = [(cost, cuts) for end, (cost, cuts) in best.items() if end < place <= end + longest]
            if ways:
                cost, cuts = min(ways)
                found[place] = (cost + counts[place], (*cuts, place))
        best = found
    ends = [way for end, way in best.items() if deepest - end <= longest]
    if not ends:
        raise ValueError(f"{latency} stages of at most {longest} levels do not hold a circuit of {deepest} levels")
    return min(ends)[1]


class PipelinedCircuit(wiring.Component):
    """A circuit with `latency` registers on every path; one operand set a cycle, no feedback.

    Parameters
    ----------
    gates : Gates
        The circuit.
    latency : int
        Cycles of `enable` from operands to result, at least 1. The last register is at the outputs.
    cuts : tuple of int
        The last level of every stage but the last, rising; without it, stages of like depth.

    Interface attributes
    --------------------
    One unsigned port for each of the circuit's, and `enable`: registers hold while it is low.
    """

    def __init__(self, gates: Gates, latency: int, cuts: Sequence[int] | None = None):
        if not isinstance(latency, int) or latency < 1:
            raise ValueError(f"latency must be an integer of at least 1 cycle, not {latency!r}")
        unknown = {cell.kind for cell in gates.cells} - set(KINDS)
        if unknown:
            raise ValueError(f"circuit has gates {sorted(unknown)}; allowed are {sorted(KINDS)}")
        deepest = max(levels(gates).values())
        if cuts is None:
            cuts = [-(-deepest * stage // latency) for stage in range(1, latency)]
        if len(cuts) != latency - 1 or any(type(cut) is not int for cut in cuts) or list(cuts) != sorted(cuts):
            raise ValueError(f"cuts must be {latency - 1} rising levels, not {cuts!r}")
        self.gates, self.latency, self.cuts = gates, latency, tuple(cuts)
        super().__init__(
            {
                **{name: In(len(nets)) for name, nets in gates.inputs.items()},
                **{name: Out(len(nets)) for name, nets in gates.outputs.items()},
                "enable": In(1, init=1),
            }
        )

    def _stages(self) -> dict[int, int]:
        """The pipeline stage of every gate's output, 0 to latency - 1, by its level."""
        level = levels(self.gates)
        return {cell.output: bisect.bisect_left(self.cuts, level[cell.output]) for cell in self.gates.cells}

    def elaborate(self, platform: object) -> Module:
        m = Module()
        stage = self._stages()
        values: dict[tuple[int, int], Value] = {}  # (net, stage in which it is wanted)
        for name, nets in self.gates.inputs.items():
            port = Value.cast(getattr(self, name))
            values.update({(net, 0): port[index] for index, net in enumerate(nets)})

        def at(net: int, wanted: int) -> Value:
            """The net as it is in stage `wanted`: through one register a stage."""
            if net < 2:
                return Const(net, 1)
            if (net, wanted) not in values:
                held = Signal(name=f"n{net}_s{wanted}", reset_less=True)
                with m.If(self.enable):
                    m.d.sync += held.eq(at(net, wanted - 1))
                values[net, wanted] = held
            return values[net, wanted]

        for cell in self.gates.cells:
            place = stage[cell.output]
            result = Signal(name=f"n{cell.output}")
            m.d.comb += result.eq(KINDS[cell.kind](*(at(net, place) for net in cell.inputs)))
            values[cell.output, place] = result
        for name, nets in self.gates.outputs.items():
            m.d.comb += getattr(self, name).eq(Cat(at(net, self.latency) for net in nets))
        return m


class VariantBlockDot(wiring.Component):
    """`hw.numerics.dot.BlockDot` for elements that are signed bytes, around a circuit of `dot_s8x32`.

    Latency: 3 cycles of `enable`, one block a cycle, as `BlockDot` has it for these formats.

    Interface attributes
    --------------------
    a, b, enable, sums: as `BlockDot` has them.
    """

    LATENCY = 3

    def __init__(self, formats: FormatSet, gates: Gates, cuts: Sequence[int] | None = None):
        if not self.fits(formats, gates):
            ports = {name: len(nets) for name, nets in (*gates.inputs.items(), *gates.outputs.items())}
            raise ValueError(
                f"a variant needs formats of signed bytes and a circuit of as many bits, not "
                f"{', '.join(formats.names)} and a circuit with ports {ports}"
            )
        self.formats, self.latency = formats, self.LATENCY
        self._circuit = PipelinedCircuit(gates, self.latency, cuts)
        super().__init__(
            {
                "a": In(formats.lanes),
                "b": In(formats.lanes),
                "enable": In(1, init=1),
                "sums": Out(data.ArrayLayout(signed(formats.dot_bits + 1), 1)),
            }
        )

    @staticmethod
    def fits(formats: FormatSet, gates: Gates) -> bool:
        """Whether the circuit has the ports of the block dot of these formats, and they hold nothing else."""
        lanes = formats.lanes.size
        ports = {name: len(nets) for name, nets in (*gates.inputs.items(), *gates.outputs.items())}
        extra = formats.coarse_bits or formats.infinities or formats.halves
        return not extra and lanes == 32 * 8 and ports == {"a": lanes, "b": lanes, "y": formats.dot_bits + 1}

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.circuit = circuit = self._circuit
        m.d.comb += [
            circuit.a.eq(self.a),
            circuit.b.eq(self.b),
            circuit.enable.eq(self.enable),
            self.sums[0].eq(circuit.y),
        ]
        return m
