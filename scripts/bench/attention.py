"""Attention on the array, measured on RTL whose every result is compared with golden attention.

The KV memory of the testbench gives a granule every cycle that it is asked for: that is the deliverable bandwidth.
Cycles are those of a run's commands, from the first command to the last output: the ends are counted.
"""

from __future__ import annotations

import json
import pickle
import tempfile
from pathlib import Path
from typing import Any

from scripts import sim, simulator
from scripts.figures import Figure
from scripts.simulator import Testbench
from tb.vector_attention import SIZES, model

SMALL, LATENT = "attention_tile", "attention_tile_latent"
FULL_CONTEXT = 8192
USERS = 4
KEY_HEADS = {3: 3, 8: 8}
"""Key heads of a layer by heads that share one: SmolLM2 9 / 3, GPT-OSS 64 / 8."""


def measure(name: str, runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Run what `tb.vector_attention.measure` describes on the build `name`, and return the counts."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        environment = {"ATTENTION_SIZE": name, "ATTENTION_RUNS": json.dumps(runs), "ATTENTION_RESULT": str(result)}
        bench = Testbench(
            f"measure_{name}", model(name, SIZES[name]), "tb.vector_attention.measure", environment=environment
        )
        simulator.check(bench)
        return json.loads(result.read_text())


def decode_share(long: bool) -> list[Figure]:
    """Granules of KV a cycle, for both group sizes and contexts from 1k on."""
    contexts = [1024, 2048, FULL_CONTEXT] if long else [1024, 2048]
    formats = {3: "MXINT8", 8: "E4M3"}
    runs = [
        {"case": {"length": length, "group": group, "format": formats[group]}, "repeat": heads}
        for length in contexts
        for group, heads in KEY_HEADS.items()
    ]
    shares = {(r["length"], r["group"]): r["granules"] / r["cycles"] for r in measure(SMALL, runs)}
    tile = SIZES[SMALL].tile
    shown = ", ".join(f"{length} keys, group {group}: {share:.3f}" for (length, group), share in shares.items())
    how = (f"worst of: {shown}; all key heads of a layer (3 and 8), head 64, cache MXINT8 and E4M3, "
           f"{tile.rows}x{tile.columns} units; granules / cycles")  # fmt: skip
    return [Figure("attention.decode_kv_share", min(shares.values()), "", ">= 0.95", how=how)]


def mla_share(long: bool) -> list[Figure]:
    """16 heads on one latent: cycles of the binding resource over cycles taken."""
    case = {"length": 2048 if long else 1024, "group": 16, "key_size": 576, "value_size": 512, "latent": True}
    alone, counts = measure(LATENT, [{"case": case}, {"case": case, "repeat": USERS}])
    share = counts["granules"] / counts["cycles"]
    how = (f"{USERS} users of context {case['length']}, 16 heads, key 576, value 512: {counts['granules']} granules "
           f"(the bound: each latent is read once; the array has work for {counts['issue']}) / {counts['cycles']} "
           f"cycles; one user alone: {alone['granules'] / alone['cycles']:.3f}")  # fmt: skip
    return [Figure("attention.mla_bound_share", share, "", ">= 0.90", how=how)]


def prefill_utilisation(long: bool) -> list[Figure]:
    """Block dots done over those that the array could do, over both products, for whole prompts."""
    tile = SIZES[SMALL].tile
    group, chunk = 4, SIZES[SMALL].max_rows // 4
    every = {512: 1, 2048: 4 if long else 16}
    runs = [{"case": {"length": n, "count": chunk, "group": group}, "prompt": e} for n, e in every.items()]
    measured = measure(SMALL, runs)
    utilisation = [r["block_dots"] / (r["cycles"] * tile.rows * tile.columns) for r in measured]
    shown = "; ".join(
        f"{r['length']} positions, {r['commands']} chunks of {chunk}: {value:.3f} (vector lanes busy with softmax "
        f"{r['vector_softmax'] / r['cycles']:.2f}, merges {r['vector_merge'] / r['cycles']:.2f}, KV memory "
        f"{r['granules'] / r['cycles']:.2f})"
        for r, value in zip(measured, utilisation, strict=True)
    )
    how = f"{group} heads on {tile.rows}x{tile.columns} units; {shown}"
    return [Figure("attention.prefill_utilisation", min(utilisation), "", ">= 0.90", how=how)]


def exposed_share() -> Figure:
    """The cycles of a decode layer in which a tile's memory brings neither weights nor KV, whatever the cause.

    From the counters of the chip of `make sim` and its decode step, from the start of the tiles until the last of them
    has signalled that the layer's output is there: its memory's own latency and refresh, the wait for other tiles and
    the layer's ends are counted too.
    """
    if code := sim.main():
        raise simulator.SimulatorError(f"make sim failed (exit {code}), so there is no layer to measure")
    decode = pickle.loads((sim.OUTPUT / "work" / "executions.pickle").read_bytes())["decode"]
    layer, rows = decode.phase_cycles[0], []
    for tile, counters in enumerate(decode.counters):
        weights, cache = counters["weight_granules"], counters["cache_granules"]
        rows.append((1 - (weights + cache) / layer, f"tile {tile}: {weights} + {cache}"))
    worst = max(rows)
    shown = ", ".join(f"{text} ({share:.4f})" for share, text in rows)
    how = (f"worst tile of `make sim`'s decode step, a whole SmolLM2 layer of {layer} cycles on {len(rows)} tiles; all "
           f"cycles without a granule count; granules of weights + KV (and share without): {shown}")  # fmt: skip
    return Figure("attention.exposed_vector_share", worst[0], "", "<= 0.05", how=how)


def figures(long: bool = False) -> list[Figure]:
    """All figures of `make bench-attention`.

    LONG=1 adds 8192 keys and a longer MLA context, and takes every fourth chunk of 2048 positions, not every 16th.
    """
    return [*decode_share(long), *mla_share(long), *prefill_utilisation(long), exposed_share()]
