"""The vector unit: accuracy of its table functions, cycles of its commands, and its share of a decode layer."""

from __future__ import annotations

import json
import math
import tempfile
from pathlib import Path

import numpy as np

from golden.exp2 import exp2
from golden.fp32_ops import to_float
from golden.reciprocal import reciprocal
from golden.rsqrt import rsqrt
from scripts import simulator
from scripts.figures import Figure
from scripts.simulator import Testbench
from tb.vector.models import UNIT

LANES, TILES = 8, 4
HIDDEN, HEADS, KV_HEADS, HEAD, INNER = 576, 9, 3, 64, 1536  # SmolLM2-135M
TEST_LENGTH, LAYER_LENGTH = 128, 1024
"""Longest reduction of the measured unit, and of one that holds a hidden size."""


def _ulps(found: np.ndarray, exact: np.ndarray) -> float:
    spacing = np.ldexp(1.0, np.maximum(np.frexp(exact)[1] - 1, -126) - 23)
    return float((np.abs(to_float(found).astype(np.float64) - exact) / spacing).max())


def accuracy() -> list[Figure]:
    """Largest error in ulp: all significands for reciprocal and rsqrt, 16 million arguments for exp2."""
    significands = np.arange(1 << 23, dtype=np.uint32)
    one, two = significands | np.uint32(0x3F800000), significands + np.uint32(0x40000000)
    wide = [to_float(x).astype(np.float64) for x in (one, two)]
    arguments = np.random.default_rng(1).uniform(-126, 128, 1 << 24).astype(np.float32)
    exact = np.exp2(arguments.astype(np.float64))
    roots = [_ulps(rsqrt(x), 1 / np.sqrt(w)) for x, w in zip((one, two), wide, strict=True)]
    errors = {
        "exp2": (_ulps(exp2(arguments.view(np.uint32)), exact), "16.8 M random arguments"),
        "reciprocal": (_ulps(reciprocal(one), 1 / wide[0]), "all 2**23 significands"),
        "rsqrt": (max(roots), "all 2**24 significands"),
    }
    return [Figure(f"vector.{name}_ulp", round(value, 4), "ulp", "<= 2", how=f"largest error against float64, {how}")
            for name, (value, how) in errors.items()]  # fmt: skip


def command_cycles() -> tuple[int, int]:
    """Cycles of a command beyond its beats, without and with a reduction, from RTL; checks that they are constant."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        bench = Testbench("measure_vector", UNIT, "tb.vector_unit.measure", environment={"VECTOR_RESULT": str(result)})
        simulator.check(bench)
        measured = json.loads(result.read_text())
    overhead = {}
    for kind in ("NONE", "SUM"):
        values = {m["cycles"] - m["beats"] for m in measured if m["reduce"] == kind}
        if max(values) - min(values) > 1:
            raise ValueError(f"Cycles of a {kind} command are not its beats and a constant: {sorted(values)}")
        overhead[kind] = max(values)
    return overhead["NONE"], overhead["SUM"]


def _passes(plain: int, reducing: int) -> dict[str, int]:
    """Exposed cycles of a decode step's vector work on one of `TILES` tiles, by function."""

    def cycles(elements: int, passes: int = 1, reductions: int = 0) -> int:
        return passes * (math.ceil(elements / LANES) + plain) + reductions * (math.ceil(elements / LANES) + reducing)

    heads = math.ceil((HEADS + KV_HEADS) / TILES)
    norm = cycles(HIDDEN, 1, 1) + cycles(1)
    return {
        "two norms": 2 * norm,
        "rotation": cycles(heads * HEAD),
        "two residuals": 2 * cycles(HIDDEN),
        "gate": cycles(math.ceil(INNER / TILES), 3),
    }


def layer_share(tail: int, granules: int) -> Figure:
    """attention.exposed_vector_share: the vector work that nothing hides, over the cycles of a decode layer.

    tail: cycles of one key head's attention beyond its KV granules; granules: these granules. Both from RTL.
    """
    plain, reducing = command_cycles()
    # The tree of a unit with longer rows is deeper: four cycles for every doubling.
    reducing += 4 * (LAYER_LENGTH // TEST_LENGTH).bit_length() - 4
    parts = {**_passes(plain, reducing), "attention beyond its KV": tail}
    weights = HIDDEN * (HIDDEN * 2 + 2 * KV_HEADS * HEAD) + 3 * HIDDEN * INNER
    streaming = weights * 33 // 32 // 32 // TILES
    exposed = sum(parts.values())
    shown = ", ".join(f"{name} {value}" for name, value in parts.items())
    how = (f"derived: SmolLM2 decode on {TILES} tiles, {LANES} lanes; {shown} cycles, of which every tile does norms "
           f"and residuals whole; {streaming} cycles of weight granules, {granules} of KV; a command costs its "
           f"beats and {plain} cycles, {reducing} with a reduction; both and attention measured on RTL")  # fmt: skip
    share = exposed / (exposed + streaming + granules)
    return Figure("attention.exposed_vector_share", share, "", "<= 0.05", how=how)


def figures(long: bool = False) -> list[Figure]:
    """All figures of `make bench-vector`."""
    plain, reducing = command_cycles()
    how = "RTL, two lanes, command to last write, beyond one cycle a beat"
    return [
        *accuracy(),
        Figure("vector.command_overhead", plain, "cycles", how=how),
        Figure("vector.reduction_overhead", reducing, "cycles", how=f"{how}; rows of up to {TEST_LENGTH}"),
    ]
