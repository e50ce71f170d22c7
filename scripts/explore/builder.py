"""Build a gate-level `Netlist` by hand: what renders graph text into a circuit."""

from scripts.verify.netlist import ONE, ZERO, Cell, Netlist, prune, simplify

DELAY = {"$_XOR_": 1.0, "$_XNOR_": 1.0, "$_MUX_": 1.0, "$_NOT_": 0.2}
"""Delay of a gate in XOR gates where it is not `SIMPLE`: what trees and adders are arranged by, not a measurement."""
SIMPLE = 0.6


class Builder:
    """Gates on nets; equal gates are shared and gates with constant inputs simplified.

    `arrival` holds the time of every net after the inputs, in delays of an XOR gate.
    """

    def __init__(self, inputs: dict[str, int]) -> None:
        self._next = 2
        self.inputs: dict[str, list[int]] = {}
        self._cells: list[Cell] = []
        self._known: dict[tuple, int] = {}
        self.arrival: dict[int, float] = {ZERO: 0.0, ONE: 0.0}
        for name, width in inputs.items():
            self.inputs[name] = list(range(self._next, self._next + width))
            self.arrival.update(dict.fromkeys(self.inputs[name], 0.0))
            self._next += width

    def gate(self, kind: str, *pins: int) -> int:
        """The output net of a gate of `kind` (a key of `netlist.GATES`)."""
        small = simplify(kind, pins)
        if isinstance(small, int):
            return small
        kind, pins = small
        if kind in ("$_AND_", "$_OR_", "$_XOR_", "$_XNOR_", "$_NAND_", "$_NOR_"):
            pins = tuple(sorted(pins))
        key = (kind, *pins)
        if key not in self._known:
            self._known[key] = self._next
            self._cells.append(Cell(kind, pins, self._next))
            self.arrival[self._next] = max(self.arrival[pin] for pin in pins) + DELAY.get(kind, SIMPLE)
            self._next += 1
        return self._known[key]

    def and_(self, a: int, b: int) -> int:
        return a if a == b else self.gate("$_AND_", a, b)

    def or_(self, a: int, b: int) -> int:
        return a if a == b else self.gate("$_OR_", a, b)

    def xor(self, a: int, b: int) -> int:
        return ZERO if a == b else self.gate("$_XOR_", a, b)

    def not_(self, a: int) -> int:
        return self.gate("$_NOT_", a)

    def mux(self, select: int, zero: int, one: int) -> int:
        return zero if zero == one else self.gate("$_MUX_", zero, one, select)

    def full_adder(self, a: int, b: int, c: int) -> tuple[int, int]:
        """(sum, carry)."""
        half = self.xor(a, b)
        return self.xor(half, c), self.or_(self.and_(a, b), self.and_(half, c))

    def half_adder(self, a: int, b: int) -> tuple[int, int]:
        return self.xor(a, b), self.and_(a, b)

    def netlist(self, outputs: dict[str, list[int]]) -> Netlist:
        """The finished circuit, without gates that no output needs."""
        return prune(Netlist(self.inputs, outputs, self._cells))


__all__ = ["ONE", "ZERO", "Builder"]
