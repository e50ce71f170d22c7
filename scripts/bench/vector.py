"""The vector unit: accuracy of its table functions, cycles of its commands, and its share of a decode layer."""

from __future__ import annotations

import json
import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from golden.exp2 import exp2
from golden.fp32_ops import to_float
from golden.reciprocal import reciprocal
from golden.rsqrt import rsqrt
from hw.numerics.quantise import QuantiseLane
from scripts import simulator
from scripts.figures import Figure
from scripts.simulator import Model, Testbench
from tb.vector.models import LAYER_UNIT, UNIT

LANES, TILES = 8, 4
HIDDEN, HEADS, KV_HEADS, HEAD, INNER = 576, 9, 3, 64, 1536  # SmolLM2-135M
LAYER = {
    "hidden": HIDDEN, "head": HEAD, "heads": math.ceil(HEADS / TILES), "kv_heads": math.ceil(KV_HEADS / TILES),
    "inner": INNER // TILES,
}  # fmt: skip
"""What a tile does of a decode layer."""
TEST_LENGTH = 128
"""Longest reduction of the unit whose commands are measured."""


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


def _measured(test: str, model: Model, lanes: int) -> Any:
    """What a test of `tb.vector_unit.measure` found."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        environment = {"VECTOR_RESULT": str(result), "VECTOR_LANES": str(lanes), "VECTOR_LAYER": json.dumps(LAYER)}
        bench = Testbench(f"measure_vector_{test}", model, "tb.vector_unit.measure", environment=environment)
        simulator.check(bench, test=test)
        return json.loads(result.read_text())


def command_cycles() -> tuple[int, int]:
    """Cycles of a command beyond its beats, without and with a reduction, from RTL; checks that they are constant."""
    overhead = {}
    measured = _measured("commands", UNIT, 2)
    for kind in ("NONE", "SUM"):
        values = {m["cycles"] - m["beats"] for m in measured if m["reduce"] == kind}
        if max(values) - min(values) > 1:
            raise ValueError(f"Cycles of a {kind} command are not its beats and a constant: {sorted(values)}")
        overhead[kind] = max(values)
    return overhead["NONE"], overhead["SUM"]


def layer_share(tail: int, granules: int) -> Figure:
    """attention.exposed_vector_share: the vector work that nothing hides, over the cycles of a decode layer.

    tail: cycles of one key head's attention beyond its KV granules; granules: these granules. Both from RTL.
    """
    cycles = _measured("layer", LAYER_UNIT, LANES)
    # On their way to the array rows go through the tile's quantiser: its latency beside the function.
    quantise = QuantiseLane.latency + 1 + 32 // LANES
    append = 2 * HEAD // LANES + QuantiseLane.latency + 1 + 7  # a beat a cycle, then the last of seven writes
    parts = {
        "two norms": 2 * cycles["norm"], "query rotation": cycles["query rotation"],
        "key rotation": cycles["key rotation"], "append": append,
        "two residuals": 2 * cycles["residual"], "gate": cycles["gate"], "four quantisers": 4 * quantise,
        "attention beyond its KV": tail,
    }  # fmt: skip
    weights = HIDDEN * (HIDDEN * 2 + 2 * KV_HEADS * HEAD) + 3 * HIDDEN * INNER
    streaming = weights * 33 // 32 // 32 // TILES
    exposed = sum(parts.values())
    shown = ", ".join(f"{name} {value}" for name, value in parts.items())
    how = (
        f"SmolLM2 decode at 1024 positions, one of {TILES} tiles, {LANES} lanes; {shown} cycles, all measured on RTL "
        "(each function's commands one by one, compared with golden) but the latencies of quantisers and append; every "
        f"tile does norms and residuals whole; over these, {streaming} cycles of weight granules and {granules} of KV, "
        "one a cycle"
    )
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
