"""A layer as one program a tile: the golden machines of all tiles together give the layer's own bits."""

import dataclasses

import numpy as np
import pytest

from golden.layer import layer_problem, lower_layer
from golden.model import PRODUCTS
from hw.config import ChipConfig, ConfigError
from hw.noc.config import MeshConfig
from hw.tile.config import TileConfig
from hw.tile.isa import Memory, RemoteWrite
from tb.chip.layer_work import MODEL, golden_machines, golden_memory, random_work

TILE = TileConfig(rows=2, columns=2, slots=4, passes=8, activation_depth=256, instruction_depth=256, vector_depth=4096)


def chip(columns: int, **tile) -> ChipConfig:
    mesh = MeshConfig(columns, 1, payload=RemoteWrite, local_ports={(0, 0): 2})
    return ChipConfig(mesh=mesh, tile=dataclasses.replace(TILE, **tile))


@pytest.fixture(scope="module")
def work():
    return random_work(1)


def run_machines(plan, before=()):
    """The host's result memory after the golden machines have run a plan, the tags that it got, and the machines.

    `before`: machines that ran the positions before, whose KV caches go on.
    """
    machines = golden_machines(plan, before)
    memory = np.zeros((plan.result_granules, 8), np.uint32)
    for address, values in golden_memory(machines).items():
        memory[address] = values
    tags = [write.values[0] for machine in machines for write in machine.sent if write.memory == Memory.SIGNAL]
    return memory, tags, machines


@pytest.mark.parametrize(("mode", "columns"), [("prefill", 2), ("decode", 1), ("decode", 4)])
def test_the_machines_give_the_layer(work, mode, columns):
    """On any number of tiles: the layer's bits."""
    layer, expected = work[mode]
    plan = lower_layer(chip(columns), layer)
    memory, tags, _ = run_machines(plan)
    assert sorted(tags) == sorted([0, 1, 2] * columns)
    assert {placed.name for placed in plan.placed} == {*PRODUCTS, "rotated q and k", "output"} == set(expected)
    for name, found in plan.values(memory).items():
        assert np.array_equal(found, expected[name]), name


@pytest.mark.parametrize(("columns", "rows"), [(1, 8), (2, 16), (4, 6)])
def test_the_machines_attend_too(work, columns, rows):
    """With an attention engine nothing comes from outside, and a step sees what the chunk before it has appended."""
    config, machines = chip(columns, slots=16, attention_rows=rows), ()
    for mode in ("prefill", "decode"):
        layer, expected = work[mode]
        plan = lower_layer(config, layer)
        assert not any(blocks for _, blocks in plan.steps)
        memory, tags, machines = run_machines(plan, machines)
        assert sorted(tags) == sorted([1, 2] * columns)
        for name, found in plan.values(memory).items():
            assert np.array_equal(found, expected[name]), f"{mode} {name}"


@pytest.mark.parametrize(("columns", "heads", "key_heads"), [(1, 4, 2), (2, 4, 4), (2, 4, 2)])
def test_a_tile_owns_several_key_heads_or_one(columns, heads, key_heads):
    """One tile with two key heads, two with two each, two with one each: caches and queries do not mix."""
    model = dataclasses.replace(MODEL, heads=heads, kv_heads=key_heads)
    config, machines = chip(columns, slots=16, attention_rows=8), ()
    for layer, expected in random_work(2, 4, model).values():
        plan = lower_layer(config, layer)
        memory, _, machines = run_machines(plan, machines)
        for name, found in plan.values(memory).items():
            assert np.array_equal(found, expected[name]), name


def test_chips_that_cannot_run_a_layer():
    assert "no vector unit" in layer_problem(chip(2, vector_depth=0), MODEL)
    assert "half a head (32 channels)" in layer_problem(chip(8), MODEL)
    assert "leave gaps in the results of q" in layer_problem(
        dataclasses.replace(chip(2), tile=dataclasses.replace(TILE, columns=3)), MODEL
    )
    assert layer_problem(chip(2), MODEL) is None


def test_memories_that_are_too_small_are_one_line(work):
    layer, _ = work["prefill"]
    with pytest.raises(ConfigError, match="do not fit in a vector memory of 512 granules"):
        lower_layer(chip(2, vector_depth=512), layer)
    with pytest.raises(ConfigError, match="at most 64 instructions, not"):
        lower_layer(chip(2, instruction_depth=64), layer)
    with pytest.raises(ConfigError, match=r"results take \d+ granules; chip.result_granules is 64"):
        lower_layer(dataclasses.replace(chip(2), result_granules=64), layer)
