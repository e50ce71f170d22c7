"""The vector unit: accuracy of its table functions, cycles of its commands."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from golden.exp2 import exp2
from golden.fp32_ops import to_float
from golden.reciprocal import reciprocal
from golden.rsqrt import rsqrt
from scripts import simulator
from scripts.figures import Figure
from scripts.simulator import Testbench
from tb.vector.models import UNIT

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


def measured() -> Any:
    """What `tb.vector_unit.measure` found."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        environment = {"VECTOR_RESULT": str(result), "VECTOR_LANES": "2"}
        simulator.check(Testbench("measure_vector", UNIT, "tb.vector_unit.measure", environment=environment))
        return json.loads(result.read_text())


def command_cycles() -> tuple[int, int]:
    """Cycles of a command beyond its beats, without and with a reduction, from RTL; checks that they are constant."""
    overhead, found = {}, measured()
    for kind in ("NONE", "SUM"):
        values = {m["cycles"] - m["beats"] for m in found if m["reduce"] == kind}
        if max(values) - min(values) > 1:
            raise ValueError(f"Cycles of a {kind} command are not its beats and a constant: {sorted(values)}")
        overhead[kind] = max(values)
    return overhead["NONE"], overhead["SUM"]


def figures(long: bool = False) -> list[Figure]:
    """All figures of `make bench-vector`."""
    plain, reducing = command_cycles()
    how = "RTL, two lanes, command to last write, beyond one cycle a beat"
    return [
        *accuracy(),
        Figure("vector.command_overhead", plain, "cycles", how=how),
        Figure("vector.reduction_overhead", reducing, "cycles", how=f"{how}; rows of up to {TEST_LENGTH}"),
    ]
