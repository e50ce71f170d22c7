"""A small random layer: the shape of the real one, for tests of whole layers; a plan on the golden machines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from golden.formats import MXINT8
from golden.fp32_ops import Bits
from golden.layer import Layer, LayerPlan, run_layer
from golden.layer_batch import Segment, join_layers
from golden.machine import TileMachine, run_network
from golden.model import KvCache, Quantised, QuantisedLayer
from golden.smollm2 import ModelConfig
from hw.tile.isa import Memory

MODEL = ModelConfig(1, 128, 2, 1, 128, 100, 2048, 10000.0, 1e-5)
"""One layer: 128 channels, two heads that share a key head, 128 gated channels."""


def random_layer(seed: int, model: ModelConfig = MODEL) -> QuantisedLayer:
    """Weights and gains of a layer."""
    numbers = np.random.default_rng(seed)
    matrices = {
        name: Quantised.of(numbers.standard_normal(shape).astype(np.float32) / np.float32(8), MXINT8)
        for name, shape in model.shapes().items()
    }
    gains = (numbers.standard_normal(model.hidden).astype(np.float32) for _ in range(2))
    return QuantisedLayer(matrices, *gains)


def random_work(seed: int, chunk: int = 5, model: ModelConfig = MODEL) -> dict[str, tuple[Layer, dict[str, Bits]]]:
    """A chunk of positions (`prefill`) and a step behind it (`decode`): the work and its results."""
    numbers = np.random.default_rng(seed)
    layer, cache = random_layer(seed, model), KvCache(model)
    return {
        mode: run_layer(model, layer, numbers.standard_normal((positions, model.hidden)).astype(np.float32), cache)
        for mode, positions in (("prefill", chunk), ("decode", 1))
    }


BATCHES = (((0, 0, 3), (1, 0, 2)), ((1, 2, 1), (0, 3, 2)), ((0, 5, 1), (2, 0, 1), (1, 3, 1)))
"""Three users' rows in three runs: (sequence, position, rows) of each; chunks and steps beside one another."""


def random_batches(seed: int) -> Iterator[tuple[Layer, tuple[Segment, ...], dict[str, Bits]]]:
    """The work of `BATCHES`, and its results: of each row those of its sequence alone, all positions at once."""
    numbers, layer = np.random.default_rng(seed), random_layer(seed)
    lengths = [max(p + rows for batch in BATCHES for s, p, rows in batch if s == sequence) for sequence in range(3)]
    alone = [
        run_layer(MODEL, layer, numbers.standard_normal((length, MODEL.hidden)).astype(np.float32), KvCache(MODEL))
        for length in lengths
    ]
    for batch in BATCHES:
        parts = []
        for sequence, position, rows in batch:
            work, results = alone[sequence]
            part = slice(position, position + rows)
            cut = replace(work, x=work.x[part], cosine=work.cosine[part], sine=work.sine[part], position=position)
            parts.append((sequence, cut, {name: result[part] for name, result in results.items()}))
        yield join_layers(parts)


def golden_machines(plan: LayerPlan, before: Sequence[TileMachine] = ()) -> list[TileMachine]:
    """The golden machines of all tiles at the end of a plan.

    `before`: machines that ran the positions before, whose KV caches go on. Raises AssertionError where a tile does not
    halt, does not wait for what the host brings, or is left with arrivals that no AWAIT took.
    """
    machines = [
        TileMachine(plan.config.tile, image, program, plan.config.place(tile), plan.config.hbm.granules)
        for tile, (image, program) in enumerate(zip(plan.images, plan.programs, strict=True))
    ]
    for machine, earlier in zip(machines, before, strict=False):
        machine.attention = earlier.attention
    for machine in machines:
        for start, granules in plan.rows:
            for index, granule in enumerate(granules):
                machine.receive_granule(start + index, granule)
    for number, (_, blocks) in enumerate(plan.steps):
        for block in blocks:
            for machine in machines:
                machine.receive(*block)
        waits = number == 0 and not plan.config.tile.attention_rows
        assert run_network(machines) != waits, "a tile went on without its activations, or did not go on"
    for machine in machines:
        assert not any(machine.received), "arrivals that no AWAIT took"
    return machines


def golden_memory(machines: Sequence[TileMachine]) -> dict[int, tuple[int, ...]]:
    """What they leave in the host's result memory (not the counter records)."""
    memory: dict[int, tuple[int, ...]] = {}
    for machine in machines:
        for write in machine.sent:
            if write.destination[-1] == 1 and write.memory == Memory.RESULTS and write.values is not None:
                assert write.address not in memory, f"granule {write.address} is written twice"
                memory[write.address] = write.values
    return memory
