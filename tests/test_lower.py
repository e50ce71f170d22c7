"""The compiler and the golden machine: programs and images that give the products' own bits."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from golden.compiler import lower, results
from golden.formats import MXINT8
from golden.machine import TileMachine
from golden.model import Product, Quantised
from hw.config import ChipConfig, ConfigError
from hw.tile.config import TileConfig
from hw.tile.isa import Memory
from hw.tile.program import Await, Destination, Halt, Matmul, ProgramError, encode, encode_program, slots_for

SMALL = ChipConfig(tile=TileConfig(rows=3, columns=2, slots=4, passes=4, activation_depth=64))


def products(seed, positions, k_blocks, outputs):
    numbers = np.random.default_rng(seed)
    activations = Quantised.of(numbers.standard_normal((positions, 32 * k_blocks), np.float32), MXINT8)
    for index, count in enumerate(outputs):
        weights = Quantised.of(numbers.standard_normal((count, 32 * k_blocks), np.float32), MXINT8)
        yield Product(f"product_{index}", 0, activations, weights)


def run_machines(plan):
    memory = np.zeros((plan.result_granules, 8), np.uint32)
    tags = []
    for tile, program in enumerate(plan.programs):
        machine = TileMachine(plan.config.tile, plan.images[tile], program)
        for number, phase in enumerate(plan.phases):
            assert not machine.run(), "a tile went on without its activations"
            for block in phase.blocks:
                machine.receive(*block)
            assert machine.run() == (number == len(plan.phases) - 1)
        for write in machine.sent:
            if write.memory == Memory.RESULTS and write.values is not None:
                memory[write.address] = write.values
            if write.memory == Memory.SIGNAL:
                tags.append(write.values[0])
    assert sorted(tags) == sorted(list(range(len(plan.phases))) * plan.config.tiles)
    return memory


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 12), st.integers(1, 4), st.lists(st.integers(1, 60), min_size=1, max_size=3), st.integers(1, 20),
    st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_machines_give_the_products(positions, k_blocks, outputs, columns, seed):
    config = dataclasses.replace(SMALL, tile=dataclasses.replace(SMALL.tile, columns=columns))
    phases = [list(products(seed, positions, k_blocks, outputs)), list(products(seed + 1, 1, 1, [5]))]
    plan = lower(config, phases)
    memory = run_machines(plan)
    for phase, wanted in zip(plan.phases, phases, strict=True):
        for placed, product in zip(phase.products, wanted, strict=True):
            assert np.array_equal(results(config, placed, memory), product.golden())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": 13}, "1 to 12 positions on this tile, not 13"),
        ({"rows": 0}, "1 to 12 positions"),
        ({"inputs": 33}, r"a multiple of 32\], not \[10, 33\]"),
        ({"outputs": 0}, r"not \[0, 32\]"),
        ({"weight_format": "E4M3"}, "E4M3 is not built into this tile; it has MXINT8"),
        ({"activation_base": 64}, "do not fit in an activation memory of 64 blocks"),
        ({"weight_address": 1 << 32}, "weight_address must be from 0 to 4294967295"),
        ({"result_address": -1}, "result_address must be from 0 to 4194303, not -1"),
    ],
)
def test_a_product_that_the_tile_cannot_do_is_refused(change, message):
    command = Matmul(1, 32, 10, 0, 0, Destination(0, 0, 1), 0, 8)
    encode(SMALL.tile, command)
    with pytest.raises(ProgramError, match=message):
        encode(SMALL.tile, dataclasses.replace(command, **change))


def test_a_pair_that_no_array_can_multiply_is_refused():
    tile = dataclasses.replace(SMALL.tile, formats=("MXINT8", "Q4_1", "NVFP4"))
    command = Matmul(1, 32, 10, 0, 0, Destination(0, 0, 1), 0, 8, weight_format="Q4_1")
    encode(tile, command)
    with pytest.raises(ProgramError, match="Q4_1 has an offset and can be B only; A can be MXINT8"):
        encode(tile, dataclasses.replace(command, activation_format="Q4_1"))
    with pytest.raises(ProgramError, match="NVFP4 times Q4_1 is not supported; with Q4_1, A can be MXINT8"):
        encode(tile, dataclasses.replace(command, activation_format="NVFP4"))


def test_programs_end_and_fit():
    with pytest.raises(ProgramError, match="must end with Halt"):
        encode_program(SMALL.tile, [Await(1)])
    with pytest.raises(ProgramError, match="at most 64 instructions, not 65"):
        encode_program(SMALL.tile, [Await(1)] * 64 + [Halt()])


def test_groups_are_equal_and_fit():
    for outputs in range(1, 300):
        slots = slots_for(SMALL.tile, outputs)
        columns = -(-outputs // SMALL.tile.columns)
        groups = -(-columns // slots)
        assert 1 <= slots <= SMALL.tile.slots and groups == -(-columns // SMALL.tile.slots)


def test_memories_that_are_too_small_are_one_line():
    large = list(products(1, 12, 4, [200]))
    tiny = dataclasses.replace(SMALL, result_granules=64)
    with pytest.raises(ConfigError, match=r"results take .* granules; chip\.result_granules is 64"):
        lower(tiny, [large])
    shallow = dataclasses.replace(SMALL, tile=dataclasses.replace(SMALL.tile, activation_depth=8))
    with pytest.raises(ConfigError, match="do not fit in an activation memory of 8 blocks"):
        lower(shallow, [large])
