"""A run's summary with made-up numbers, for the tests of the report. Nothing here was measured."""

import copy
import random
from typing import Any

from scripts.extrapolate.chips import TileShape
from scripts.extrapolate.cycles import work

SHAPES = {"q": (576, 576), "k": (576, 192), "v": (576, 192), "o": (576, 576), "gate": (576, 1536), "up": (576, 1536),
          "down": (1536, 576)}  # fmt: skip


def _product(name: str, mode: str) -> dict[str, Any]:
    k, n = SHAPES[name]
    m = 1 if mode == "decode" else 16
    cycles = k * n // 128 if mode == "decode" else k * n // 32
    return {
        "name": name, "mode": mode, "M": m, "K": k, "N": n, "cycles": cycles, "macs": m * k * n,
        "array_utilisation": m * k * n / (cycles * 1024), "hbm_bytes": k * n * 33 // 32,
        "hbm_utilisation": 0.93 if mode == "decode" else 0.23,
        "stalls": {"weights": cycles // 16, "activations": cycles // 50, "results": cycles // 90},
        "bit_exact": True,
    }  # fmt: skip


def _scenario(model: str, chip: str, rate: float, watts: float) -> dict[str, Any]:
    return {
        "model": model, "chip": chip, "note": "Made up for a test.",
        "quantities": [
            {"name": "decode, one user", "value": rate, "low": 0.8 * rate, "high": 1.1 * rate, "unit": "tok/s/user",
             "kind": "derived", "source": "cycles of this run"},
            {"name": "chip power", "value": watts, "low": 0.6 * watts, "high": 1.7 * watts, "unit": "W",
             "kind": "assumed", "source": "energy a bit"},
            {"name": "HBM bandwidth", "value": 8.0, "unit": "TB/s", "kind": "published", "source": "a data sheet"},
            {"name": "share: weights", "value": 70.0, "unit": "%", "kind": "derived"},
            {"name": "share: attention", "value": 30.0, "unit": "%", "kind": "assumed"},
            {"name": "cycles a layer", "value": 123456, "unit": "cycles", "kind": "measured"},
        ],
    }  # fmt: skip


def sample() -> dict[str, Any]:
    """A fresh copy of a summary that follows the schema."""
    return copy.deepcopy({
        "schema": "serrano.summary", "version": 1, "made_at": "2026-01-02T03:04:05+00:00",
        "command": "make sim PROMPT='Why is the sky <blue>?'", "commit": "0123abc", "passed": True,
        "config": {"name": "sample", "path": "sample.toml", "values": {"mesh": {"rows": 2, "columns": 2}}},
        "model": {"name": "Sample-1M", "file": "sample.gguf", "format": "MXINT8"},
        "prompt": {"text": "Why is the sky <blue>?", "tokens": 8}, "layer": 0, "seed": 1,
        "products": [_product(name, mode) for mode in ("decode", "prefill") for name in SHAPES],
        "stages": [
            {"name": "emit", "seconds": 4.2, "cached": False},
            {"name": "build", "seconds": 0.1, "cached": True},
            {"name": "simulate", "seconds": 21.5, "cached": False},
            {"name": "compare", "seconds": 1.2, "cached": False},
        ],
        "simulation": {"cycles": 412345, "seconds": 21.5, "cycles_per_second": 19179.0, "simulator": "Verilator",
                       "clock_hz": 1e9},
        "outside_rtl": [{"what": "RMSNorm, RoPE, softmax, SwiGLU", "where": "golden model"}],
        "difference": None,
        "extrapolation": [_scenario("Sample-1M", "the simulated chip", 5210.0, 0.8),
                          _scenario("Sample-100B", "a full-size chip", 310.0, 640.0)],
        "figures": [
            {"id": "slice.bit_exact", "value": "14 of 14", "unit": "", "bar": "all", "holds": True, "reference": "",
             "how": "every output compared"},
            {"id": "slice.warm_seconds", "value": 71.5, "unit": "s", "bar": "<= 60", "holds": False,
             "reference": "issue's table", "how": "made up"},
        ],
    })  # fmt: skip


def fitted(tile: TileShape) -> dict[str, Any]:
    """Cycles near the formula's, with a wait for the host that must not count as the product's."""
    made, draw = sample(), random.Random(1)
    made["config"]["values"] = {"name": "small", "clock_hz": 10**9, "mesh": {"columns": 2, "rows": 2},
                                "tile": {"rows": tile.rows, "columns": tile.columns, "slots": tile.slots},
                                "hbm": {"generation": "hbm4"}}  # fmt: skip
    for product in made["products"]:
        part = work(product["M"], product["K"], product["N"], tile, 4)
        own = 50 + max(part.array, 1.06 * part.stream) * draw.uniform(0.99, 1.01)
        product["cycles"], product["stalls"] = round(own) + 300, {"activations": 300}
    return made
