"""From a candidate's graph text to what `hw.variants` takes."""

import json
from pathlib import Path

from scripts.explore import graphs
from scripts.explore.archive import Archive
from scripts.explore.judge import Candidate, block, circuit, correctness
from scripts.verify.netlist import Netlist


def gates(graph: dict | str | Path, specification: str) -> Netlist:
    """The checked circuit of a graph (object, JSON text, or file); raises `ValueError` if it is wrong."""
    found = block(specification)
    if isinstance(graph, Path):
        graph = graph.read_text()
    netlist = graphs.render(json.loads(graph) if isinstance(graph, str) else graph, found)
    wrong, how = correctness(netlist, found, certified=True)
    if wrong is not None:
        raise ValueError(f"the graph does not compute {specification}: {how}: {wrong}")
    return netlist


def archived(archive: Path, key: str, specification: str) -> Netlist:
    """The circuit of an archived candidate, admitted again; raises `KeyError` for an unknown id."""
    found = Archive(archive).candidate(key)
    if found is None:
        raise KeyError(f"no candidate {key!r} in {archive}")
    return circuit(Candidate(found["kind"], found["content"]), block(specification))
