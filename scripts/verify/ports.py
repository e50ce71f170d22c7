"""Which port of a circuit is which port of a specification: guessed from names and widths, or read from a small file.

The file is TOML; every part is optional:

    top = "fp_add"                 # top module
    latency = 3                    # cycles from operands to result; found if absent
    [ports]                        # specification port = circuit port, a slice of it, or a list, lowest bits first
    a = "opa_i"
    y = ["sum", "carry"]
    [clock]
    port = "clk"
    [reset]
    port = "rst_n"
    active = 0
    [constants]                    # inputs held at a value: rounding mode, enables, valid
    rm = 0
    [parameters]
    W = 16
"""

import dataclasses
import re
import tomllib
from collections.abc import Mapping

import numpy as np

from golden.specifications import Specification, Values
from golden.specifications.core import Port

Slice = tuple[str, int, int]
"""(circuit port, lowest bit, number of bits)."""

ALIASES = {
    "a": "a x lhs op1 opa op_a operand_a operanda in1 in_a ina input_a in0 src1 s1 multiplicand i1 din data d in n",
    "b": "b y rhs op2 opb op_b operand_b operandb in2 in_b inb input_b src2 s2 multiplier i2",
    "c": "c acc addend opc op_c operand_c in3 in_c accumulator accumulate z",
    "n": "n shamt amount shift sh amt b",
    "y": "y z out result res q p product prod sum s o r dout output diff count data_out c dot",
    "cin": "cin ci carry_in c_in",
    "cout": "cout co carry_out c_out carry",
    "borrow": "borrow bout borrow_out",
    "sa": "sa scale_a scalea",
    "sb": "sb scale_b scaleb",
}
CLOCKS = ("clk", "clock", "ck", "aclk", "clk_in", "sysclk")
RESETS = (
    "rst",
    "reset",
    "rst_n",
    "resetn",
    "reset_n",
    "nreset",
    "nrst",
    "rstn",
    "arst",
    "arst_n",
    "arstn",
    "aresetn",
    "areset",
    "srst",
    "clr",
    "clear",
)


class MapError(ValueError):
    """Ports cannot be matched, or the map file is wrong; the message shows what there is and a map to start from."""


@dataclasses.dataclass(frozen=True)
class PortMap:
    """`inputs` and `outputs`: specification port to slices of circuit ports, lowest bits first."""

    inputs: dict[str, list[Slice]]
    outputs: dict[str, list[Slice]]
    clock: str = ""
    reset: str = ""
    reset_active: int = 1
    constants: dict[str, int] = dataclasses.field(default_factory=dict)
    latency: int | None = None


@dataclasses.dataclass(frozen=True)
class MapFile:
    """A map file as it was read; everything may be absent."""

    top: str = ""
    latency: int | None = None
    ports: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    clock: str = ""
    reset: str = ""
    reset_active: int | None = None
    constants: dict[str, int] = dataclasses.field(default_factory=dict)
    parameters: dict[str, int] = dataclasses.field(default_factory=dict)


def _integers(name: str, table: object) -> dict[str, int]:
    if not isinstance(table, dict):
        raise MapError(f"[{name}] must be a table, not {table!r}")
    for key, value in table.items():
        if not isinstance(value, int) or value < 0:
            raise MapError(f"[{name}] {key} must be a non-negative integer, not {value!r}")
    return {key: int(value) for key, value in table.items()}


def read(text: str) -> MapFile:
    """Parse a map file; raises `MapError` naming the key that is wrong."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise MapError(f"the map is not TOML: {error}") from error
    known = {"top", "latency", "ports", "clock", "reset", "constants", "parameters"}
    if unknown := sorted(set(data) - known):
        raise MapError(f"unknown key {unknown[0]!r} in the map; known: {', '.join(sorted(known))}")
    latency = data.get("latency")
    if latency is not None and (not isinstance(latency, int) or not 0 <= latency <= 256):
        raise MapError(f"latency must be 0 to 256 cycles, not {latency!r}")
    ports = {}
    for name, value in data.get("ports", {}).items():
        ports[name] = value if isinstance(value, list) else [value]
        if not all(isinstance(part, str) for part in ports[name]):
            raise MapError(f"[ports] {name} must be a port name or a list of them, not {value!r}")
    clock, reset = data.get("clock", {}), data.get("reset", {})
    if not isinstance(clock, dict) or not isinstance(reset, dict):
        raise MapError('clock and reset are tables: [clock] port = "clk"; [reset] port = "rst_n", active = 0')
    active = reset.get("active")
    if active not in (None, 0, 1):
        raise MapError(f"[reset] active must be 0 or 1, not {active!r}")
    return MapFile(
        str(data.get("top", "")),
        latency,
        ports,
        clock.get("port", ""),
        reset.get("port", ""),
        active,
        _integers("constants", data.get("constants", {})),
        _integers("parameters", data.get("parameters", {})),
    )


def _stem(name: str) -> str:
    name = name.lower()
    for expression in (r"^(i|o|io|in|out)_(?=.)", r"_(i|o|in|out)$"):
        shorter = re.sub(expression, "", name)
        if shorter:
            name = shorter
    return name


def _slices(parts: list[str], ports: Mapping[str, tuple[str, int]], direction: str, want: str) -> list[Slice]:
    found = []
    for part in parts:
        match = re.fullmatch(r"(.+?)(?:\[(\d+)(?::(\d+))?\])?", part)
        name = match[1] if match else part
        if name not in ports or ports[name][0] != direction:
            having = ", ".join(f"{port} ({size[1]} bits)" for port, size in ports.items() if size[0] == direction)
            raise MapError(f"{want}: the circuit has no {direction} {name!r}; it has {having or 'none'}")
        low, high = 0, ports[name][1] - 1
        if match and match[2] is not None:
            high = int(match[2])
            low = int(match[3]) if match[3] is not None else high
        if not 0 <= low <= high < ports[name][1]:
            raise MapError(f"{want}: {part!r} is outside {name}[{ports[name][1] - 1}:0]")
        found.append((name, low, high - low + 1))
    return found


def _guess(port: Port, free: dict[str, int]) -> str | None:
    """The free circuit port that is called like the specification's port and is as wide."""
    for wanted in [port.name, *ALIASES.get(port.name, "").split()]:
        for exact in (lambda name: name.lower(), _stem):
            for name, width in free.items():
                if exact(name) == wanted and width == port.bits:
                    return name
    return None


def _control(names: tuple[str, ...], free: dict[str, int]) -> str:
    for name, width in free.items():
        if width == 1 and (name.lower() in names or _stem(name) in names):
            return name
    return ""


def _fill(specification_ports: tuple[Port, ...], given: dict[str, list[Slice]], free: dict[str, int]) -> None:
    """Guess what the file does not say: by name, then by width where that leaves one choice, in order."""
    for slices in given.values():
        for name, _, _ in slices:
            free.pop(name, None)
    open_ports = [port for port in specification_ports if port.name not in given]
    for by_name in (True, False):
        for port in [port for port in open_ports if port.name not in given]:
            same = [name for name, width in free.items() if width == port.bits]
            rivals = [other for other in open_ports if other.name not in given and other.bits == port.bits]
            guess = _guess(port, free) if by_name else None
            if not by_name and not port.optional and len(same) == len([r for r in rivals if not r.optional]):
                guess = same[0]
            if guess:
                given[port.name] = [(guess, 0, free.pop(guess))]


def match(specification: Specification, ports: Mapping[str, tuple[str, int]], file: MapFile | None = None) -> PortMap:
    """Match the circuit's `ports` (name to direction and width) with the specification; raises `MapError`."""
    file = file or MapFile()
    known = {port.name for port in (*specification.inputs, *specification.outputs)}
    if unknown := sorted(set(file.ports) - known):
        raise MapError(f"{specification.name} has no port {unknown[0]!r}; it has {', '.join(sorted(known))}")
    free_in = {name: width for name, (way, width) in ports.items() if way == "input" and name not in file.constants}
    free_out = {name: width for name, (way, width) in ports.items() if way == "output"}
    for name in file.constants:
        if ports.get(name, ("", 0))[0] != "input":
            raise MapError(f"[constants] {name}: the circuit has no such input")
    inputs = {
        p.name: _slices(file.ports[p.name], ports, "input", p.name)
        for p in specification.inputs
        if p.name in file.ports
    }
    outputs = {
        p.name: _slices(file.ports[p.name], ports, "output", p.name)
        for p in specification.outputs
        if p.name in file.ports
    }
    clock = file.clock or _control(CLOCKS, free_in)
    free_in.pop(clock, None)
    reset = file.reset or _control(RESETS, free_in)
    free_in.pop(reset, None)
    for name, what in ((clock, "clock"), (reset, "reset")):
        if name and ports.get(name) != ("input", 1):
            raise MapError(f"[{what}] port {name!r} is not a one-bit input of the circuit")
    _fill(specification.inputs, inputs, free_in)
    _join_carry(specification, outputs, free_out)
    _fill(specification.outputs, outputs, free_out)
    _check(specification, ports, inputs, outputs, free_in)
    active = file.reset_active
    if active is None:
        active = 0 if re.search(r"n$|^n", _stem(reset)) and reset else 1
    return PortMap(inputs, outputs, clock, reset, active, dict(file.constants), file.latency)


def _join_carry(specification: Specification, outputs: dict[str, list[Slice]], free: dict[str, int]) -> None:
    """A single output that is exactly all of the specification's outputs together: the first ones lowest."""
    total = sum(port.bits for port in specification.outputs)
    if not outputs and len(specification.outputs) > 1:
        for name, width in list(free.items()):
            if width == total and len(free) == 1:
                low = 0
                for port in specification.outputs:
                    outputs[port.name] = [(name, low, port.bits)]
                    low += port.bits


def _check(
    specification: Specification,
    ports: Mapping[str, tuple[str, int]],
    inputs: dict[str, list[Slice]],
    outputs: dict[str, list[Slice]],
    free_in: dict[str, int],
) -> None:
    having = ", ".join(f"{way} {name}[{width - 1}:0]" for name, (way, width) in ports.items())
    for group, given in ((specification.inputs, inputs), (specification.outputs, outputs)):
        for port in group:
            if port.name not in given:
                if port.optional:
                    continue
                raise MapError(
                    f"no circuit port for {port.name} ({port.bits} bits) of {specification.name}; the circuit "
                    f'has {having}; name it in a map: [ports] {port.name} = "..."'
                )
            width = sum(part[2] for part in given[port.name])
            if width != port.bits:
                raise MapError(
                    f"{port.name} of {specification.name} has {port.bits} bits, but "
                    f"{given[port.name][0][0]} gives {width}"
                )
    if free_in:
        name = next(iter(free_in))
        raise MapError(
            f"input {name!r} has no use; hold it at a value in a map: [constants] {name} = 0; the circuit has {having}"
        )


def to_bits(values: np.ndarray, port: Port) -> np.ndarray:
    """Values `(n,)` or `(n, elements)` as a matrix of bits `(n, port.bits)`, lowest first."""
    columns = np.asarray(values, np.uint64).reshape(-1, port.elements, 1)
    return (columns >> np.arange(port.width, dtype=np.uint64) & np.uint64(1)).astype(np.uint8).reshape(len(columns), -1)


def from_bits(bits: np.ndarray, port: Port) -> np.ndarray:
    """The inverse of `to_bits` for a port of one element."""
    return (bits.astype(np.uint64) << np.arange(port.bits, dtype=np.uint64)).sum(axis=1, dtype=np.uint64)


def circuit_inputs(
    specification: Specification, mapping: PortMap, ports: Mapping[str, tuple[str, int]], values: Values
) -> dict[str, np.ndarray]:
    """Bits `(n, width)` of every circuit input but clock and reset, from values of the specification's inputs."""
    count = len(next(iter(values.values())))
    result = {
        name: np.zeros((count, width), np.uint8)
        for name, (way, width) in ports.items()
        if way == "input" and name not in (mapping.clock, mapping.reset)
    }
    for name, value in mapping.constants.items():
        result[name][:] = [value >> index & 1 for index in range(ports[name][1])]
    for port in specification.inputs:
        at, bits = 0, to_bits(values[port.name], port)
        for name, low, width in mapping.inputs.get(port.name, []):
            result[name][:, low : low + width] = bits[:, at : at + width]
            at += width
    return result


def specification_outputs(specification: Specification, mapping: PortMap, found: Mapping[str, np.ndarray]) -> Values:
    """Values of the specification's outputs that the circuit has, from bits `(n, width)` of its outputs."""
    return {
        port.name: from_bits(
            np.hstack([found[name][:, low : low + width] for name, low, width in mapping.outputs[port.name]]), port
        )
        for port in specification.outputs
        if port.name in mapping.outputs
    }
