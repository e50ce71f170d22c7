"""Attention on the array, measured on RTL whose every result is compared with golden attention.

The KV memory of the testbench gives a granule every cycle that it is asked for: that is the deliverable bandwidth.
Cycles are those of a layer's commands, one for each key head, from the first command to the last output.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from golden.attention import LEAF
from scripts import simulator
from scripts.bench.vector import layer_share
from scripts.figures import Figure
from scripts.simulator import Testbench
from tb.vector_attention import SIZES, Size

SIZE, MLA, TALL = (SIZES[f"attention_tile_{name}"] for name in ("wide", "latent", "16"))
FULL_CONTEXT = 8192
USERS = 4


KEY_HEADS = {3: 3, 8: 8}
"""Key heads of a layer by heads that share one: SmolLM2 9 / 3, GPT-OSS 64 / 8."""


def measure(size: Size, cases: list[tuple[dict[str, Any], int]]) -> list[dict[str, Any]]:
    """Run cases (fields of `tb.vector_attention.environment.Case`, and how many queued) and return their counts."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        environment = {
            "ATTENTION_SIZE": size.name, "ATTENTION_CASES": json.dumps(cases), "ATTENTION_RESULT": str(result),
        }  # fmt: skip
        bench = Testbench(f"measure_{size.name}", size.model, "tb.vector_attention.measure", environment=environment)
        simulator.check(bench)
        return json.loads(result.read_text())


def decode_share(long: bool) -> list[Figure]:
    """Granules of KV a cycle, for both group sizes and contexts from 1k on."""
    contexts = [1024, FULL_CONTEXT] if long else [1024, 2048]
    cases = [({"length": length, "group": group}, heads) for length in contexts for group, heads in KEY_HEADS.items()]
    shares = {(r["length"], r["group"]): r["granules"] / r["cycles"] for r in measure(SIZE, cases)}
    config = SIZE.config
    shown = ", ".join(f"{length} keys, group {group}: {share:.3f}" for (length, group), share in shares.items())
    how = (f"worst of: {shown}; all key heads of a layer (3 and 8), head 64, MXINT8, {config.rows}x{config.columns} "
           "units; granules / cycles")  # fmt: skip
    return [Figure("attention.decode_kv_share", min(shares.values()), "", ">= 0.95", how=how)]


def mla_share(long: bool) -> list[Figure]:
    """16 heads on one latent: cycles of the binding resource over cycles taken."""
    name = "attention.mla_bound_share"
    if not long:
        return []
    case = {"length": 8 * LEAF, "group": 16, "key_size": 576, "value_size": 512, "latent": True}
    alone, counts = measure(MLA, [(case, 1), (case, USERS)])
    share = counts["granules"] / counts["cycles"]
    how = (f"{USERS} users of context {case['length']}, 16 heads, key 576, value 512: {counts['granules']} granules "
           f"(the bound: the latent is read twice, for scores and for values) / {counts['cycles']} cycles; one user "
           f"alone: {alone['granules'] / alone['cycles']:.3f}")  # fmt: skip
    return [Figure(name, share, "", ">= 0.90", how=how)]


def prefill_utilisation(long: bool) -> list[Figure]:
    """Block dots done over those that the array could do, over both products, at the end of a prompt."""
    size, rows, group = (TALL, 16, 4) if long else (SIZE, 8, 4)
    lengths = (512, 1024) if long else (512,)
    cases = [({"length": length, "count": rows // group, "group": group}, 2) for length in lengths]
    config = size.config
    measured = [r["block_dots"] / (r["cycles"] * config.rows * config.columns) for r in measure(size, cases)]
    shown = ", ".join(f"{length} positions: {value:.3f}" for length, value in zip(lengths, measured, strict=True))
    how = (f"last chunk of {rows} rows ({group} heads) on {config.rows}x{config.columns} units; {shown}; bound by the "
           "drain of the array (one slot a cycle) and eight vector lanes, see docs/attention.md")  # fmt: skip
    return [Figure("attention.prefill_utilisation", min(measured), "", ">= 0.90", how=how)]


def exposed_share() -> Figure:
    """The vector work of a decode layer that no streaming hides; one key head of SmolLM2 on a tile, 1024 keys."""
    counts = measure(SIZE, [({"length": 1024, "group": 3}, 1)])[0]
    return layer_share(counts["cycles"] - counts["granules"], counts["granules"])


def figures(long: bool = False) -> list[Figure]:
    """All figures of `make bench-attention`; LONG=1 adds 8192 keys, MLA, and 16 rows of prefill."""
    return [*decode_share(long), *mla_share(long), *prefill_utilisation(long), exposed_share()]
