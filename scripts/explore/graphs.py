"""Graph text: JSON that says a circuit in few words; checked in linear time and rendered by this code alone.

{"kind": "prefix", "nodes": [[i, k, j], ...]}                     an adder (`add_` specifications)
{"kind": "prefix", "name": "sklansky"}                            a classical one
{"kind": "compressor", "rows": "and" | "booth", "tree": [["f", x, y, z], ["h", x, y], ...],
 "adder": "sklansky" | [[i, k, j], ...]}                          sums of products (`mul_`, `mac_`, `dot_`)
{"kind": "compressor", "rows": "and", "tree": "dadda" | "wallace" | "arrival" | "three_greedy",
 "adder": ... | "arrival" | "arrival_1" | "arrival_2" | "arrival_4"}  the adder for the times at which the tree ends
{"kind": "table", "rows": [result, ...]}                          up to 12 operand bits: one result a row
"""

from golden.specifications import Specification
from scripts.explore import compressor, prefix, trees
from scripts.explore.builder import Builder
from scripts.explore.prefix import GraphError
from scripts.verify.netlist import Netlist

TREES = {
    "dadda": lambda made: trees.dadda(made.heights),
    "wallace": lambda made: trees.wallace(made.heights),
    "arrival": lambda made: trees.by_arrival(made.heights, made.arrival),
    "three_greedy": lambda made: trees.three_greedy(made.heights, made.arrival),
}
TABLE_BITS = 12
KEYS = {"prefix": {"kind", "nodes", "name"}, "compressor": {"kind", "rows", "tree", "adder"}, "table": {"kind", "rows"}}


def render(graph: object, specification: Specification) -> Netlist:
    """The circuit that the graph says; raises `GraphError` with the element that is wrong."""
    kind = graph.get("kind") if isinstance(graph, dict) else None
    if not isinstance(graph, dict) or kind not in KEYS:
        raise GraphError(f"a graph is an object with kind one of {', '.join(KEYS)}")
    if unknown := sorted(set(graph) - KEYS[kind]):
        raise GraphError(f"unknown key {unknown[0]!r} of a {kind} graph; known: {', '.join(sorted(KEYS[kind]))}")
    return {"prefix": _prefix, "compressor": _compressor, "table": _table}[kind](graph, specification)


def certified(graph: object) -> bool:
    """Whether the check of such a graph is a proof that the circuit adds up right."""
    return isinstance(graph, dict) and graph.get("kind") in ("prefix", "compressor")


def _prefix(graph: dict, specification: Specification) -> Netlist:
    if not specification.name.startswith("add_"):
        raise GraphError(f"a prefix graph is an adder, {specification.name} is not")
    width = specification.inputs[0].width
    if "name" in graph:
        if graph["name"] not in prefix.CLASSICAL:
            raise GraphError(f"name must be one of {', '.join(prefix.CLASSICAL)}, not {graph['name']!r}")
        nodes = prefix.CLASSICAL[graph["name"]](width)
    else:
        nodes = prefix.check(width, graph.get("nodes", ()))
    ports = {port.name: port.bits for port in specification.inputs}
    if set(ports) != {"a", "b"}:
        raise GraphError("a prefix graph has no carry input")
    build = Builder(ports)
    total = prefix.add(build, build.inputs["a"], build.inputs["b"], nodes)
    outputs = {"y": total[:width], "cout": total[width:]}
    return build.netlist({port.name: outputs[port.name] for port in specification.outputs})


def _compressor(graph: dict, specification: Specification) -> Netlist:
    rows, tree = graph.get("rows", "and"), graph.get("tree", "dadda")
    if isinstance(tree, str):
        if tree not in TREES:
            raise GraphError(f"tree must be one of {', '.join(TREES)} or a list of elements, not {tree!r}")
        tree = TREES[tree](compressor.sources(specification, rows))
    return compressor.render(specification, rows, tree, graph.get("adder", "sklansky"))


def _table(graph: dict, specification: Specification) -> Netlist:
    """Multiplexers over the rows; row r is the result for operand bits r (first port lowest), outputs first lowest."""
    bits, rows = specification.input_bits, graph.get("rows")
    wide = sum(port.bits for port in specification.outputs)
    if bits > TABLE_BITS:
        raise GraphError(f"a table has at most {TABLE_BITS} operand bits, {specification.name} has {bits}")
    if not isinstance(rows, list) or len(rows) != 1 << bits:
        raise GraphError(f"a table for {specification.name} has {1 << bits} rows")
    for index, value in enumerate(rows):
        if type(value) is not int or not 0 <= value < 1 << wide:
            raise GraphError(f"row {index} must be an integer of {wide} bits, not {value!r}")
    build = Builder({port.name: port.bits for port in specification.inputs})
    selects = [net for port in specification.inputs for net in build.inputs[port.name]]
    result = []
    for position in range(wide):
        level = [value >> position & 1 for value in rows]
        for select in selects:
            level = [build.mux(select, level[i], level[i + 1]) for i in range(0, len(level), 2)]
        result.append(level[0])
    outputs, at = {}, 0
    for port in specification.outputs:
        outputs[port.name] = result[at : at + port.bits]
        at += port.bits
    return build.netlist(outputs)
