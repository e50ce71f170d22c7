"""A combinational netlist as a component with pipeline registers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from amaranth.hdl import Cat, Const, Module, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw.numerics.formats import FormatSet

__all__ = ["Gates", "PipelinedCircuit", "VariantBlockDot"]


class _Cell(Protocol):
    kind: str
    inputs: tuple[int, ...]
    output: int


class Gates(Protocol):
    """A circuit: nets are integers, 0 and 1 the constants; cells in topological order; lowest bits first."""

    inputs: Mapping[str, Sequence[int]]
    outputs: Mapping[str, Sequence[int]]
    cells: Sequence[_Cell]


_KINDS = {
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


class PipelinedCircuit(wiring.Component):
    """A circuit with `latency` registers on every path; one operand set a cycle, no feedback.

    Parameters
    ----------
    gates : Gates
        The circuit. It is cut where the number of levels before and after is most alike.
    latency : int
        Cycles of `enable` from operands to result, at least 1. The last register is at the outputs.

    Interface attributes
    --------------------
    One unsigned port for each of the circuit's, and `enable`: registers hold while it is low.
    """

    def __init__(self, gates: Gates, latency: int):
        if not isinstance(latency, int) or latency < 1:
            raise ValueError(f"latency must be an integer of at least 1 cycle, not {latency!r}")
        unknown = {cell.kind for cell in gates.cells} - set(_KINDS)
        if unknown:
            raise ValueError(f"circuit has gates {sorted(unknown)}; allowed are {sorted(_KINDS)}")
        self.gates, self.latency = gates, latency
        super().__init__(
            {
                **{name: In(len(nets)) for name, nets in gates.inputs.items()},
                **{name: Out(len(nets)) for name, nets in gates.outputs.items()},
                "enable": In(1, init=1),
            }
        )

    def _stages(self) -> dict[int, int]:
        """The pipeline stage of every gate's output, 0 to latency - 1, by its level."""
        level = {0: 0, 1: 0} | {net: 0 for nets in self.gates.inputs.values() for net in nets}
        for cell in self.gates.cells:
            level[cell.output] = max(level[net] for net in cell.inputs) + _DELAY.get(cell.kind, 1)
        deepest = max(level.values()) + 1
        return {cell.output: level[cell.output] * self.latency // deepest for cell in self.gates.cells}

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
            m.d.comb += result.eq(_KINDS[cell.kind](*(at(net, place) for net in cell.inputs)))
            values[cell.output, place] = result
        for name, nets in self.gates.outputs.items():
            m.d.comb += getattr(self, name).eq(Cat(at(net, self.latency) for net in nets))
        return m


class VariantBlockDot(wiring.Component):
    """`hw.numerics.dot.BlockDot` for MXINT8 alone, around a circuit of `dot_s8x32`; 3 cycles, one block a cycle.

    Interface attributes
    --------------------
    a, b, enable, sums: as `BlockDot` has them.
    """

    def __init__(self, formats: FormatSet, gates: Gates):
        width = formats.dot_bits + 1
        lanes = formats.lanes.size
        ports = {name: len(nets) for name, nets in (*gates.inputs.items(), *gates.outputs.items())}
        if formats.coarse_bits or formats.infinities or formats.halves or ports != {"a": lanes, "b": lanes, "y": width}:
            raise ValueError(
                f"a variant needs formats of plain integers and a circuit with ports a[{lanes}], b[{lanes}], "
                f"y[{width}], not {', '.join(formats.names)} and {ports}"
            )
        self.formats, self.latency = formats, 3
        self._circuit = PipelinedCircuit(gates, self.latency)
        super().__init__(
            {
                "a": In(formats.lanes),
                "b": In(formats.lanes),
                "enable": In(1, init=1),
                "sums": Out(data.ArrayLayout(signed(width), 1)),
            }
        )

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
