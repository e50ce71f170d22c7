"""What a specification is: ports, a function in three languages, and classes of differences.

The function is written for NumPy (the specification), for C++ (its compiled mirror, for billions of vectors; the two
are compared on every run) and, where one line says it, for Verilog (the other side of an equivalence proof).
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np

Values = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Port:
    """A port of a specification: `elements` values of `width` bits, element 0 in the lowest bits.

    `format` says how a value is read: `u`, `s`, or the name of a floating-point format. An `optional` input that the
    circuit lacks is 0, an optional output that it lacks is not compared.
    """

    name: str
    width: int
    format: str = "u"
    elements: int = 1
    optional: bool = False

    @property
    def bits(self) -> int:
        return self.width * self.elements


@dataclasses.dataclass(frozen=True)
class Specification:
    """One function that a circuit can be held to.

    Parameters
    ----------
    name : str
        Name in the catalogue.
    title : str
        One line for people.
    inputs, outputs : tuple of Port
        Ports in order.
    function : callable
        `Values -> Values`: for each port an array of unsigned integers, shape `(n,)` or `(n, elements)`.
    cpp : str
        C++ statements that assign every output from the inputs, all `u64`; ports with several elements are read as
        `a(i)`. Helpers: `reference.hpp`. Results are masked to the port's width afterwards.
    verilog : str
        Statements of a Verilog module body with the same ports, or empty where the language has no short way.
    classify : str
        C++ expression that gives the class (an index into `classes`) of a difference; reads the inputs, `want` and
        `got` (the first output).
    classes : tuple of str
        Names of classes of differences. The first is "other".
    corners : frozenset of str
        Classes after which a circuit still counts as right except in a corner.
    bound : float or None
        For approximate functions: allowed error in units in the last place of the result; `cpp` then sets `y` to the
        correctly rounded result and `error` to the distance of `got` from the exact value.
    """

    name: str
    title: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    function: Callable[[Values], Values]
    cpp: str
    verilog: str = ""
    classify: str = "0"
    classes: tuple[str, ...] = ("other",)
    corners: frozenset[str] = frozenset()
    bound: float | None = None

    @property
    def input_bits(self) -> int:
        return sum(port.bits for port in self.inputs)

    def port(self, name: str) -> Port:
        """The port called `name`; raises `KeyError`."""
        for port in (*self.inputs, *self.outputs):
            if port.name == name:
                return port
        raise KeyError(f"{self.name} has no port {name!r}")

    def reduced(self, ports: set[str]) -> "Specification":
        """The specification for a circuit that has only `ports`: absent inputs are 0, absent outputs not compared.

        Raises `ValueError` if a port that is not optional is missing.
        """
        absent = [port for port in (*self.inputs, *self.outputs) if port.name not in ports]
        if not absent:
            return self
        if needed := [port.name for port in absent if not port.optional]:
            raise ValueError(f"{self.name} needs a port {needed[0]!r}")
        inputs, outputs = (tuple(p for p in group if p.name in ports) for group in (self.inputs, self.outputs))

        def function(values: Values) -> Values:
            count = len(next(iter(values.values())))
            zeros = {port.name: np.zeros(count, np.uint64) for port in absent if port in self.inputs}
            found = self.function({**values, **zeros})
            return {port.name: found[port.name] for port in outputs}

        cpp = "".join(f"u64 {port.name} = 0; " for port in absent) + self.cpp
        verilog = (
            "".join(f"wire {port.name}{' = 0' if port in self.inputs else ''}; " for port in absent) + self.verilog
        )
        return dataclasses.replace(
            self, inputs=inputs, outputs=outputs, function=function, cpp=cpp, verilog=verilog if self.verilog else ""
        )


def mask(width: int) -> int:
    """The largest unsigned value of `width` bits."""
    return (1 << width) - 1


def signed(value: np.ndarray, width: int) -> np.ndarray:
    """Two's complement bit patterns of `width` bits (at most 64) as int64."""
    shift = np.int64(64 - width)
    return (np.asarray(value, np.uint64).view(np.int64) << shift) >> shift


def pattern(value: np.ndarray, width: int) -> np.ndarray:
    """Integers as bit patterns of `width` bits, uint64."""
    return np.asarray(value).astype(np.int64).view(np.uint64) & np.uint64(mask(width))


def corner_values(port: Port) -> list[int]:
    """Operands that faults like: ends of the range, powers of two and their neighbours, alternating bits."""
    top, width = mask(port.width), port.width
    values = {0, 1, 2, 3, top, top - 1, top >> 1, (top >> 1) + 1, top // 3, top - top // 3}
    for bit in range(width):
        values |= {1 << bit, (1 << bit) - 1, top ^ (1 << bit)}
    return sorted(value & top for value in values)


def operands(ports: Sequence[Port], count: int, seed: int, extra: Mapping[str, Sequence[int]] | None = None) -> Values:
    """`count` operand sets: the first ones directed (pairs of corner values), the rest uniform or near corners."""
    generator = np.random.default_rng(seed)
    result = {}
    for index, port in enumerate(ports):
        corners = np.array(corner_values(port) + list((extra or {}).get(port.name, ())), np.uint64)
        shape = (count, port.elements) if port.elements > 1 else (count,)
        values = generator.integers(0, mask(port.width), shape, np.uint64, endpoint=True)
        pick = corners[generator.integers(0, len(corners), shape)]
        share = generator.random(shape)
        values = np.where(share < 0.3, pick, values)
        near = (pick + generator.integers(0, 3, shape).astype(np.uint64) - np.uint64(1)) & np.uint64(mask(port.width))
        values = np.where(share > 0.9, near, values)
        if port.elements == 1 and len(ports) <= 2:  # every pair of corners first
            grid = min(count, len(corners) ** len(ports))
            order = np.arange(grid)
            values[:grid] = corners[(order // len(corners) ** index) % len(corners)]
        result[port.name] = values
    return result


def describe(port: Port, value: int) -> str:
    """A value in hex and decoded, as `0x3fc00000 (1.5)`."""
    from golden.specifications.floats import ELEMENTS

    text = f"{value:#0{2 + -(-port.width // 4)}x}"
    if port.format == "u":
        return f"{text} ({value})"
    if port.format == "s":
        return f"{text} ({value - (value >> (port.width - 1) << port.width)})"
    element = ELEMENTS[port.format]
    sign, significand, shift, kind = (part.item() for part in element.decode(np.array(value, np.uint64)))
    number = {0: repr(float(significand) * 2.0 ** (shift + element.lsb)), 1: "inf", 2: "nan"}[int(kind)]
    return f"{text} ({'-' if sign else ''}{number})"
