"""Built-in search: classical circuits first, then mutations of the best found so far. No network, one seed.

`python -m scripts.explore.proposers.evolve [--seed N]`
"""

import random
from collections import deque

import typer

from golden.specifications import Specification
from scripts.explore import compressor, graphs, prefix, trees
from scripts.explore.judge import block
from scripts.explore.pareto import front
from scripts.explore.prefix import GraphError
from scripts.explore.proposers.client import serve

Genome = dict
OPENING = 8
"""Classical circuits at the start; the others come in between the mutations."""
ADDERS = ("sklansky", "ladner_fischer", "ladner_fischer_1", "ladner_fischer_2", "brent_kung", "kogge_stone", "serial")


def supported(specification: Specification) -> str:
    """The family of a specification that the search knows; raises `ValueError` for another."""
    family = specification.name.split("_")[0]
    if family not in ("add", "mul", "mac", "dot"):
        raise ValueError(
            f"the built-in search knows add, mul, mac and dot, not {specification.name}; give PROPOSER, such as "
            "'files my-folder'"
        )
    return family


def classical(specification: Specification) -> list[Genome]:
    """Textbook circuits: where the search starts, those that most often reach the front before the others."""
    if supported(specification) == "add":
        return [{"kind": "prefix", "name": name} for name in ADDERS]
    first = [("three_greedy", adder) for adder in prefix.ARRIVAL]
    others = [(tree, adder) for adder in (*prefix.ARRIVAL, *ADDERS) for tree in graphs.TREES]
    return [
        {"kind": "compressor", "rows": rows, "tree": tree, "adder": adder}
        for tree, adder in dict.fromkeys(first + others)
        for rows in compressor.ROWS
    ]


def spelled(genome: Genome, specification: Specification) -> Genome:
    """The same graph with names replaced by nodes and elements, so that it can be mutated."""
    if genome["kind"] == "prefix":
        width = specification.inputs[0].width
        nodes = genome.get("nodes") or prefix.CLASSICAL[genome["name"]](width)
        return {"kind": "prefix", "nodes": [list(node) for node in nodes]}
    made = compressor.sources(specification, genome["rows"])
    tree = genome["tree"]
    elements, left = compressor.check(made.heights, graphs.TREES[tree](made) if isinstance(tree, str) else tree)
    nodes = compressor.adder_nodes(genome["adder"], left, elements, made.arrival)
    return {
        "kind": "compressor",
        "rows": genome["rows"],
        "tree": [list(element) for element in elements],
        "adder": [list(node) for node in nodes],
    }


def mutate_prefix(nodes: list, width: int, generator: random.Random) -> list:
    """Some spans more, some fewer; legal again by adding what the rest needs."""
    rows: list[set[int]] = [set() for _ in range(width)]
    for i, _, j in nodes:
        rows[i].add(j)
    for _ in range(generator.choice((1, 1, 2, 3))):
        i = generator.randrange(2, width) if width > 2 else 1
        if generator.random() < 0.5 and len(rows[i]) > 1:
            rows[i].discard(generator.choice(sorted(rows[i] - {0}) or [0]))
        elif i > 1:
            rows[i].add(generator.randrange(1, i))
    needed: list[set[int]] = [set() for _ in range(width)]
    for i, k, j in prefix.from_rows([sorted(row) for row in rows]):
        needed[k - 1].add(j)
        needed[i].add(k)
    # A span that no other needs and that is no result is left out.
    rows = [{j for j in row if j == 0 or j in needed[i]} for i, row in enumerate(rows)]
    return [list(node) for node in prefix.from_rows([sorted(row) for row in rows])]


def mutate_tree(heights: list[int], tree: list, generator: random.Random) -> list:
    """Exchange nets of one column between elements; sound by `compressor.check`."""
    column = [place for place, height in enumerate(heights) for _ in range(height)]
    for element in tree:
        place = column[element[1]]
        column += [place, place + 1]
    tree = [list(element) for element in tree]
    for _ in range(generator.choice((1, 2, 4, 8))):
        for _ in range(20):
            one, two = generator.randrange(len(tree)), generator.randrange(len(tree))
            x, y = generator.randrange(1, len(tree[one])), generator.randrange(1, len(tree[two]))
            a, b = tree[one][x], tree[two][y]
            first = sum(heights)
            if one != two and column[a] == column[b] and a < first + 2 * two and b < first + 2 * one:
                tree[one][x], tree[two][y] = b, a
                break
    return tree


class Evolve:
    """(mu + 1) evolution on the Pareto front of area and delay, with random restarts of the tree."""

    def __init__(self, hello: dict, seed: int) -> None:
        self.specification = block(hello["specification"]["name"])
        self.generator = random.Random(seed)
        self.waiting = deque(classical(self.specification))
        self.asked = 0
        self.open: dict[int, tuple[Genome, str]] = {}
        self.points: list[dict] = []
        # After a kill: what was proposed then is not proposed again, and its figures are known by number.
        for number, entry in enumerate(hello["history"]):
            genome, why = self._next()
            self.open[number] = (genome, why)
            self.learn({"number": number, **entry["result"]})

    def propose(self, number: int) -> dict:
        genome, why = self._next()
        self.open[number] = (genome, why)
        return {"kind": "graph", "graph": genome, "origin": "evolve", "rationale": why}

    def learn(self, result: dict) -> None:
        genome, _ = self.open.pop(result["number"], (None, ""))
        if genome is None or result["verdict"] != "correct":
            return
        for point in result["points"]:
            self.points.append({**point, "genome": genome})
        self.points = self._keep()

    def _keep(self) -> list[dict]:
        """The front, and the best by area times delay behind it."""
        best = front(self.points)
        rest = sorted((p for p in self.points if p not in best), key=lambda p: (p["area"] * p["delay"], p["flavour"]))
        return best + rest[:12]

    def _next(self) -> tuple[Genome, str]:
        self.asked += 1
        if self.waiting and (self.asked <= OPENING or not self.points or self.generator.random() < 0.3):
            return self.waiting.popleft(), "a classical circuit"
        if not self.points:
            return classical(self.specification)[0], "nothing is known yet"
        parent = spelled(self.generator.choice(self.points)["genome"], self.specification)
        for _ in range(10):
            try:
                return self._mutate(parent)
            except GraphError:
                continue
        return parent, "no mutation was sound"

    def _mutate(self, parent: Genome) -> tuple[Genome, str]:
        generator = self.generator
        if parent["kind"] == "prefix":
            nodes = mutate_prefix(parent["nodes"], self.specification.inputs[0].width, generator)
            return {"kind": "prefix", "nodes": nodes}, "spans added and removed"
        made = compressor.sources(self.specification, parent["rows"])
        way = generator.random()
        if way < 0.3:
            child = {**parent, "tree": mutate_tree(made.heights, parent["tree"], generator)}
            why = "nets exchanged in the tree"
        elif way < 0.6:
            ripple = generator.choice((0, 0, generator.randrange(len(made.columns))))
            chance = generator.choice((0.0, 0.05, 0.2))
            tree = trees.three_greedy(made.heights, made.arrival, ripple, generator, chance)
            child = {**parent, "tree": tree, "adder": generator.choice((*prefix.ARRIVAL, *ADDERS))}
            why = "a new tree by arrival times"
        elif way < 0.75:
            child = {**parent, "adder": generator.choice(list(prefix.ARRIVAL))}
            why = "an adder for the times at which the tree ends"
        else:
            _, left = compressor.check(made.heights, parent["tree"])
            width = compressor.adder_span(left)[1]
            nodes = mutate_prefix(parent["adder"], width, generator) if width > 2 else parent["adder"]
            child, why = {**parent, "adder": nodes}, "spans of the final adder added and removed"
        return spelled(child, self.specification), why


def main(seed: int = typer.Option(1, help="Seed of the search.")) -> None:
    """Built-in evolutionary search."""
    serve(lambda hello: Evolve(hello, seed))


if __name__ == "__main__":
    typer.run(main)
