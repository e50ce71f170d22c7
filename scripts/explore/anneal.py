"""Small prefix graphs of bounded depth, from Sklansky's by simulated annealing in compiled C++."""

import hashlib
import math
import os
import subprocess
import tempfile
from pathlib import Path

from scripts.explore import prefix
from scripts.explore.prefix import Node
from scripts.verify.cache import cache

SOURCE = Path(__file__).resolve().parent / "prefix_anneal.cpp"
#: Temperature by width, found by trial: too cold never leaves Sklansky's neighbourhood, too hot never gets small.
TEMPERATURES = {32: 0.14, 64: 0.075, 128: 0.06}


def program() -> Path:
    """The compiled search; compiled when it is first used."""
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:24]
    path = cache() / f"anneal-{digest}"
    if not path.exists():
        with tempfile.TemporaryDirectory(dir=path.parent) as work:
            subprocess.run(
                ["g++", "-std=gnu++17", "-O3", "-march=native", "-o", f"{work}/anneal", str(SOURCE)], check=True
            )
            os.replace(f"{work}/anneal", path)
    return path


def search(
    width: int,
    depth: int | None = None,
    *,
    seed: int = 1,
    steps: int = 20_000_000,
    target: int = 0,
    temperature: float | None = None,
) -> list[Node]:
    """The smallest graph found of `width` (3 to 128) and at most `depth` levels (the least possible if not given).

    The search stops at `target` nodes. The graph is checked before it is returned.
    """
    least = math.ceil(math.log2(width))
    depth = least if depth is None else depth
    if not 3 <= width <= 128 or depth < least:
        raise ValueError(f"width must be 3 to 128 and depth at least {least}, not {width} and {depth}")
    heat = temperature or TEMPERATURES[min(TEMPERATURES, key=lambda known: abs(known - width))]
    command = [str(program()), *map(str, (width, depth, seed, heat, steps, target))]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    nodes = prefix.from_rows([[int(word) for word in line.split()] for line in lines[1 : width + 1]])
    prefix.check(width, nodes)
    if prefix.depth(width, nodes) > depth or len(nodes) != int(lines[0]):
        raise RuntimeError("the search returned a graph that is not what it says")
    return nodes


def best(width: int, target: int, *, seeds: int = 8, steps: int = 60_000_000) -> tuple[list[Node], int]:
    """(smallest graph of least depth, seeds tried): seeds 1, 2, ... until `target` nodes are reached."""
    found: list[Node] | None = None
    for seed in range(1, seeds + 1):
        nodes = search(width, seed=seed, steps=steps, target=target)
        if found is None or len(nodes) < len(found):
            found = nodes
        if len(found) <= target:
            return found, seed
    assert found is not None
    return found, seeds
