"""Rows of several sequences in one layer have the bits of each alone, in any chunks, on any number of tiles."""

import dataclasses

import numpy as np
import pytest

from golden.layer_batch import lower_batch
from hw.config import ConfigError
from tb.chip.layer_work import golden_machines, golden_memory, random_batches
from tests.test_layer import chip


@pytest.mark.parametrize("columns", [1, 2, 4])
def test_batches_and_chunks_give_the_rows_of_each_sequence_alone(columns):
    config, machines = chip(columns, slots=16, attention_rows=8, attention_leaves=2), ()
    config = dataclasses.replace(config, hbm=dataclasses.replace(config.hbm, capacity=1 << 22))
    for layer, segments, expected in random_batches(1):
        plan = lower_batch(config, layer, segments)
        machines = golden_machines(plan, machines)
        memory = np.zeros((plan.result_granules, 8), np.uint32)
        for address, values in golden_memory(machines).items():
            memory[address] = values
        found = plan.values(memory)
        assert set(found) == set(expected)
        for name, rows in found.items():
            assert np.array_equal(rows, expected[name]), f"{segments}: {name}"


def test_caches_that_do_not_fit_are_one_line():
    config = chip(1, slots=16, attention_rows=8, attention_leaves=2)
    layer, segments, _ = next(iter(random_batches(1)))
    far = tuple(dataclasses.replace(segment, sequence=segment.sequence + 200) for segment in segments)
    with pytest.raises(ConfigError, match=r"256 page table entries do not map cache 20[01] of 2 leaves"):
        lower_batch(config, layer, far)
    small = dataclasses.replace(config, hbm=dataclasses.replace(config.hbm, capacity=1 << 18))
    with pytest.raises(ConfigError, match="among the weights"):
        lower_batch(small, layer, tuple(dataclasses.replace(s, sequence=s.sequence + 5) for s in segments))
