"""A flat gate-level netlist as Yosys writes it, and what can be done with it without any simulator.

Nets are integers; 0 and 1 are the constants. Cells are kept in topological order. Every cell type has its truth
function in one table, so a netlist can be evaluated on Python integers (one bit a vector), printed as Verilog or C++,
mutated, and reduced when inputs are tied.
"""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping

#: Combinational cell types: input names in order, and the function as text (valid in C++, Verilog and Python alike).
GATES: dict[str, tuple[tuple[str, ...], str]] = {
    "$_BUF_": (("A",), "{0}"),
    "$_NOT_": (("A",), "~{0}"),
    "$_AND_": (("A", "B"), "{0} & {1}"),
    "$_NAND_": (("A", "B"), "~({0} & {1})"),
    "$_OR_": (("A", "B"), "{0} | {1}"),
    "$_NOR_": (("A", "B"), "~({0} | {1})"),
    "$_XOR_": (("A", "B"), "{0} ^ {1}"),
    "$_XNOR_": (("A", "B"), "~({0} ^ {1})"),
    "$_ANDNOT_": (("A", "B"), "{0} & ~{1}"),
    "$_ORNOT_": (("A", "B"), "{0} | ~{1}"),
    "$_MUX_": (("A", "B", "S"), "({0} & ~{2}) | ({1} & {2})"),
    "$_NMUX_": (("A", "B", "S"), "~(({0} & ~{2}) | ({1} & {2}))"),
    "$_AOI3_": (("A", "B", "C"), "~(({0} & {1}) | {2})"),
    "$_OAI3_": (("A", "B", "C"), "~(({0} | {1}) & {2})"),
    "$_AOI4_": (("A", "B", "C", "D"), "~(({0} & {1}) | ({2} & {3}))"),
    "$_OAI4_": (("A", "B", "C", "D"), "~(({0} | {1}) & ({2} | {3}))"),
}
FLIP_FLOP = "$_DFF_P_"
ZERO, ONE = 0, 1


class NetlistError(ValueError):
    """The netlist holds something that this tool does not model: the message names it."""


@dataclasses.dataclass(frozen=True)
class Cell:
    """One gate or flip-flop (`$_DFF_P_`, with one input D). `inputs` are nets in the order of `GATES`."""

    kind: str
    inputs: tuple[int, ...]
    output: int


@dataclasses.dataclass
class Netlist:
    """A flat circuit. `inputs` and `outputs` map port names to nets, least significant bit first.

    `undefined` counts constant x or undriven bits, which are read as 0. `names` maps the names of internal signals to
    nets. `clock` is the net that every flip-flop is clocked by (None without flip-flops).
    """

    inputs: dict[str, list[int]]
    outputs: dict[str, list[int]]
    cells: list[Cell]
    names: dict[str, list[int]] = dataclasses.field(default_factory=dict)
    undefined: int = 0
    clock: int | None = None

    @property
    def gates(self) -> list[Cell]:
        return [cell for cell in self.cells if cell.kind != FLIP_FLOP]

    @property
    def registers(self) -> list[Cell]:
        return [cell for cell in self.cells if cell.kind == FLIP_FLOP]


def sort(cells: Iterable[Cell], sources: Iterable[int]) -> list[Cell]:
    """Cells in topological order (registers first); raises `NetlistError` for a combinational loop."""
    cells = list(cells)
    known = {ZERO, ONE, *sources}
    ordered = [cell for cell in cells if cell.kind == FLIP_FLOP]
    known.update(cell.output for cell in ordered)
    waiting: dict[int, list[Cell]] = {}
    missing: dict[int, int] = {}
    ready = []
    for cell in cells:
        if cell.kind == FLIP_FLOP:
            continue
        unknown = {net for net in cell.inputs if net not in known}
        missing[cell.output] = len(unknown)
        for net in unknown:
            waiting.setdefault(net, []).append(cell)
        if not unknown:
            ready.append(cell)
    ready.reverse()
    while ready:
        cell = ready.pop()
        ordered.append(cell)
        for user in waiting.get(cell.output, ()):
            missing[user.output] -= 1
            if not missing[user.output]:
                ready.append(user)
    if len(ordered) != len(cells):
        stuck = len(cells) - len(ordered)
        raise NetlistError(f"combinational loop: {stuck} gates depend on their own outputs")
    return ordered


def parse(text: str, top: str | None = None) -> Netlist:
    """Read Yosys's JSON for one flat module of `GATES` and `$_DFF_P_`; raises `NetlistError` for anything else."""
    modules = json.loads(text)["modules"]
    if top is None:
        tops = [name for name, module in modules.items() if int(module["attributes"].get("top", "0"), 2)]
        top = tops[0] if len(tops) == 1 else next(iter(modules))
    module = modules[top]
    undefined = 0

    def nets(bits: list) -> list[int]:
        nonlocal undefined
        found = []
        for bit in bits:
            if bit in ("x", "z"):
                undefined += 1
            found.append(bit if isinstance(bit, int) else ONE if bit == "1" else ZERO)
        return found

    inputs: dict[str, list[int]] = {}
    outputs: dict[str, list[int]] = {}
    for name, port in module["ports"].items():
        if port["direction"] == "inout":
            raise NetlistError(f"port {name!r} is inout")
        (inputs if port["direction"] == "input" else outputs)[name] = nets(port["bits"])
    cells, clocks = [], set()
    for cell in module["cells"].values():
        kind, pins = cell["type"], cell["connections"]
        if kind == FLIP_FLOP:
            clocks.update(nets(pins["C"]))
            cells.append(Cell(kind, tuple(nets(pins["D"])), nets(pins["Q"])[0]))
        elif kind in GATES:
            cells.append(
                Cell(kind, tuple(nets([net for pin in GATES[kind][0] for net in pins[pin]])), nets(pins["Y"])[0])
            )
        elif kind not in ("$scopeinfo", "$check", "$print", "$assert", "$cover", "$assume"):
            latch = " (a latch, or state without a clock)" if kind == "$_FF_" or "LATCH" in kind else ""
            raise NetlistError(f"cell type {kind}{latch} is not supported")
    if len(clocks) > 1:
        raise NetlistError(f"{len(clocks)} clocks or clock edges; one is supported")
    names = {name: nets(net["bits"]) for name, net in sorted(module["netnames"].items()) if not net.get("hide_name", 0)}
    driven = {cell.output for cell in cells} | {net for bits in inputs.values() for net in bits}
    loose = {net for cell in cells for net in cell.inputs} | {net for bits in outputs.values() for net in bits}
    loose -= driven | {ZERO, ONE}
    netlist = Netlist(inputs, outputs, cells, names, undefined, next(iter(clocks), None))
    if loose:
        netlist = substitute(netlist, dict.fromkeys(loose, ZERO))
        netlist.undefined = undefined + len(loose)
    netlist.cells = sort(netlist.cells, [net for bits in netlist.inputs.values() for net in bits])
    return netlist


def substitute(netlist: Netlist, mapping: Mapping[int, int]) -> Netlist:
    """The netlist with nets replaced (not transitively)."""

    def swap(bits: Iterable[int]) -> list[int]:
        return [mapping.get(net, net) for net in bits]

    return dataclasses.replace(
        netlist,
        outputs={name: swap(bits) for name, bits in netlist.outputs.items()},
        cells=[Cell(cell.kind, tuple(swap(cell.inputs)), cell.output) for cell in netlist.cells],
        names={name: swap(bits) for name, bits in netlist.names.items()},
    )


def _function(kind: str) -> Callable[..., int]:
    pins, text = GATES[kind]
    letters = "abcd"[: len(pins)]
    return eval(f"lambda {','.join(letters)}: {text.format(*letters)}")  # the text comes from the table above


EVALUATE = {kind: _function(kind) for kind in GATES}


def simplify(kind: str, inputs: tuple[int, ...]) -> tuple[str, tuple[int, ...]] | int:
    """A gate with some constant inputs as a smaller gate, or as the net it equals."""
    free = sorted({net for net in inputs if net not in (ZERO, ONE)})
    if len(free) == len(inputs):
        return kind, inputs
    rows = []
    for row in range(1 << len(free)):
        value = {ZERO: 0, ONE: 1} | {net: row >> index & 1 for index, net in enumerate(free)}
        rows.append(EVALUATE[kind](*(value[net] for net in inputs)) & 1)
    if len(set(rows)) == 1:
        return ONE if rows[0] else ZERO
    if len(free) == 1:
        return free[0] if rows == [0, 1] else ("$_NOT_", (free[0],))
    if len(free) == 2:
        for name in ("$_AND_", "$_NAND_", "$_OR_", "$_NOR_", "$_XOR_", "$_XNOR_", "$_ANDNOT_", "$_ORNOT_"):
            for pair in ((free[0], free[1]), (free[1], free[0])):
                values = [({free[0]: row & 1, free[1]: row >> 1}) for row in range(4)]
                if [EVALUATE[name](value[pair[0]], value[pair[1]]) & 1 for value in values] == rows:
                    return name, pair
        for keep in range(2):
            if rows == [row >> keep & 1 for row in range(4)]:
                return free[keep]
            if rows == [1 - (row >> keep & 1) for row in range(4)]:
                return "$_NOT_", (free[keep],)
    return kind, inputs


def tie(netlist: Netlist, values: Mapping[str, int]) -> Netlist:
    """The netlist with input ports held at constants; gates that become constant vanish, unread gates too.

    A register whose D is a constant is replaced by it: after the first cycles it has that value for good.
    """
    mapping: dict[int, int] = {}
    inputs = dict(netlist.inputs)
    for name, value in values.items():
        for index, net in enumerate(inputs.pop(name)):
            mapping[net] = value >> index & 1
    cells = netlist.cells
    while True:
        kept, before = [], len(mapping)
        for cell in cells:
            pins = tuple(mapping.get(net, net) for net in cell.inputs)
            if cell.kind == FLIP_FLOP:
                if pins[0] in (ZERO, ONE):
                    mapping[cell.output] = pins[0]
                else:
                    kept.append(Cell(cell.kind, pins, cell.output))
                continue
            small = simplify(cell.kind, pins)
            if isinstance(small, int):
                mapping[cell.output] = small
            else:
                kept.append(Cell(*small, cell.output))
        cells = kept
        if len(mapping) == before:
            break
    tied = substitute(dataclasses.replace(netlist, inputs=inputs, cells=cells), mapping)
    return prune(tied)


def prune(netlist: Netlist) -> Netlist:
    """The netlist without cells that no output depends on."""
    drivers = {cell.output: cell for cell in netlist.cells}
    used, stack = set(), [net for bits in netlist.outputs.values() for net in bits]
    while stack:
        net = stack.pop()
        if net in used:
            continue
        used.add(net)
        if net in drivers:
            stack.extend(drivers[net].inputs)
    return dataclasses.replace(netlist, cells=[cell for cell in netlist.cells if cell.output in used])


def evaluate(netlist: Netlist, values: Mapping[str, list[int]], lanes: int) -> dict[int, int]:
    """All nets of a combinational netlist. `values`: for each port, one Python integer a bit, of `lanes` bits."""
    ones = (1 << lanes) - 1
    state = {ZERO: 0, ONE: ones}
    for name, bits in netlist.inputs.items():
        state.update(zip(bits, values[name], strict=True))
    for cell in netlist.cells:
        if cell.kind == FLIP_FLOP:
            raise NetlistError("the netlist has registers")
        state[cell.output] = EVALUATE[cell.kind](*(state[net] for net in cell.inputs)) & ones
    return state


def canonical(netlist: Netlist) -> str:
    """Text that is the same for netlists with the same structure, whatever the nets and cells are called.

    Nets are renumbered from the inputs, gates hashed bottom-up with commutative inputs sorted; equal gates merge.
    """
    label: dict[int, str] = {ZERO: "0", ONE: "1"}
    for name, bits in sorted(netlist.inputs.items()):
        label.update({net: f"{name}.{index}" for index, net in enumerate(bits)})
    commutative = {"$_AND_", "$_NAND_", "$_OR_", "$_NOR_", "$_XOR_", "$_XNOR_"}
    for cell in netlist.cells:
        pins = [label[net] for net in cell.inputs] if cell.kind != FLIP_FLOP else [f"q{cell.output}"]
        if cell.kind in commutative:
            pins.sort()
        label[cell.output] = hashlib.sha256(f"{cell.kind}({','.join(pins)})".encode()).hexdigest()[:24]
    gates = sorted({label[cell.output] for cell in netlist.cells})
    ends = [f"{name}={','.join(label[net] for net in bits)}" for name, bits in sorted(netlist.outputs.items())]
    return hashlib.sha256("\n".join(gates + ends).encode()).hexdigest()


def verilog(netlist: Netlist, module: str) -> str:
    """The netlist as plain structural Verilog that holds nothing of the source's text but the port names."""
    ports = [f"input [{len(bits) - 1}:0] {name}" for name, bits in netlist.inputs.items()]
    ports += [f"output [{len(bits) - 1}:0] {name}" for name, bits in netlist.outputs.items()]
    wire = {ZERO: "1'b0", ONE: "1'b1"}
    for name, bits in netlist.inputs.items():
        wire.update({net: f"{name}[{index}]" for index, net in enumerate(bits)})
    lines = [f"module {module}({', '.join(ports)});"]
    for cell in netlist.cells:
        wire[cell.output] = f"n{cell.output}"
        lines.append(f"  {'reg' if cell.kind == FLIP_FLOP else 'wire'} n{cell.output};")
    for cell in netlist.cells:
        if cell.kind == FLIP_FLOP:
            lines.append(f"  always @(posedge {wire[netlist.clock or 0]}) n{cell.output} <= {wire[cell.inputs[0]]};")
        else:
            text = GATES[cell.kind][1].format(*(wire[net] for net in cell.inputs))
            lines.append(f"  assign n{cell.output} = {text};")
    for name, bits in netlist.outputs.items():
        lines += [f"  assign {name}[{index}] = {wire[net]};" for index, net in enumerate(bits)]
    return "\n".join([*lines, "endmodule", ""])
