"""From a circuit's netlist to the combinational function between its operands and its result."""

import dataclasses

from scripts.verify.netlist import FLIP_FLOP, ONE, ZERO, Cell, Netlist, prune, sort, substitute, tie
from scripts.verify.simulators import Circuit


def specification_netlist(netlist: Netlist, circuit: Circuit) -> Netlist:
    """The wrapped circuit with the specification's port names, constants and an inactive reset tied."""
    mapping = circuit.mapping
    every = circuit.drives + circuit.reads
    place = {name: f"p{index}" for index, name in enumerate(every)}
    values = {place[name]: value for name, value in mapping.constants.items()}
    if mapping.reset:
        values[place[mapping.reset]] = 1 - mapping.reset_active
    inputs = {
        name: [bit for port, low, width in slices for bit in netlist.inputs[place[port]][low : low + width]]
        for name, slices in mapping.inputs.items()
    }
    outputs = {
        name: [bit for port, low, width in slices for bit in netlist.outputs[place[port]][low : low + width]]
        for name, slices in mapping.outputs.items()
    }
    tied = tie(dataclasses.replace(netlist, outputs=outputs), values)
    return prune(dataclasses.replace(tied, inputs=inputs))


def stages(netlist: Netlist) -> int | None:
    """Registers on every path from an input to an output, if that is one number; else None (also with feedback)."""
    drivers = {cell.output: cell for cell in netlist.cells}
    depth: dict[int, int | None] = {ZERO: None, ONE: None}  # None: constant, belongs to any stage
    for bits in netlist.inputs.values():
        depth.update(dict.fromkeys(bits, 0))
    open_nets: set[int] = set()
    for end in {net for bits in netlist.outputs.values() for net in bits}:
        stack = [end]
        while stack:
            net = stack[-1]
            if net in depth:
                stack.pop()
                continue
            cell = drivers[net]
            missing = [pin for pin in cell.inputs if pin not in depth]
            if missing:
                if net in open_nets:
                    return None  # came back to a net that waits for itself
                open_nets.add(net)
                stack.extend(missing)
                continue
            found = {depth[pin] for pin in cell.inputs} - {None}
            if len(found) > 1:
                return None
            value = found.pop() if found else None
            depth[net] = value + 1 if value is not None and cell.kind == FLIP_FLOP else value
            open_nets.discard(net)
            stack.pop()
    ends = {depth[net] for bits in netlist.outputs.values() for net in bits} - {None}
    if len(ends) > 1:
        return None
    return ends.pop() if ends else 0


def collapse(netlist: Netlist) -> Netlist:
    """The function of a pipeline for which `stages` is a number: every register becomes a wire."""
    mapping = {cell.output: cell.inputs[0] for cell in netlist.registers}

    def through(net: int) -> int:
        while net in mapping:
            net = mapping[net]
        return net

    wires = {net: through(net) for net in mapping}
    flat = substitute(dataclasses.replace(netlist, cells=list[Cell](netlist.gates)), wires)
    flat.cells = sort(flat.cells, [net for bits in flat.inputs.values() for net in bits])
    flat.clock = None
    return flat
