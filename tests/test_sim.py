"""`make sim` around the RTL: what it refuses, and that a wrong bit is found, named and counted."""

import numpy as np
import pytest

from golden.compiler import RECORD_GRANULES, Plan, lower
from golden.formats import MXINT8
from golden.machine import TileMachine
from golden.model import Product, Quantised
from hw.config import ChipConfig
from hw.tile.config import TileConfig
from hw.tile.isa import COUNTERS, Memory
from scripts import sim
from scripts.sim.measure import first_difference, product_records
from scripts.sim.work import PromptError, Work, prepare

CHIP = ChipConfig(tile=TileConfig(rows=2, columns=2, slots=4, passes=4, activation_depth=64))


@pytest.fixture(scope="module")
def done():
    """Two phases, run by the golden machines: the work, its plan, and the result memory with made-up counters."""
    numbers = np.random.default_rng(1)
    phases, expected = [], {}
    for name, outputs in (("first", 30), ("second", 7)):
        activations = Quantised.of(numbers.standard_normal((3, 64), np.float32), MXINT8)
        weights = Quantised.of(numbers.standard_normal((outputs, 64), np.float32), MXINT8)
        phases.append([Product(name, 0, activations, weights)])
        expected[name] = phases[-1][0].golden()
    plan = lower(CHIP, phases)
    memory = np.zeros((plan.result_granules, 8), np.uint32)
    for tile, program in enumerate(plan.programs):
        machine = TileMachine(CHIP.tile, plan.images[tile], program)
        for phase in plan.phases:
            for block in phase.blocks:
                machine.receive(*block)
        assert machine.run()
        for write in machine.sent:
            if write.memory == Memory.RESULTS and write.values is not None:
                memory[write.address] = write.values
    give_counters(plan, memory)
    work = Work("", [], 0, "", {"decode": phases}, {"decode": expected})
    return work, plan, memory


def give_counters(plan: Plan, memory: np.ndarray) -> None:
    """Tile t has taken 100 + t cycles and 10 granules for each product so far."""
    for number, phase in enumerate(plan.phases, 1):
        for tile, address in enumerate(phase.products[0].records):
            values = dict.fromkeys(COUNTERS, 0) | {"cycles": number * (100 + tile), "weight_granules": number * 10}
            words = np.zeros(8 * RECORD_GRANULES, np.uint32)
            words[: len(COUNTERS)] = list(values.values())
            memory[address : address + RECORD_GRANULES] = words.reshape(-1, 8)


def test_the_golden_machines_bits_are_exact(done):
    work, plan, memory = done
    assert first_difference(work, "decode", plan, memory) == ({"first", "second"}, None)


def test_one_wrong_bit_is_found_and_named(done):
    work, plan, memory = done
    placed = plan.phases[1].products[0]
    broken = memory.copy()
    broken[placed.offsets[1] + 2 * placed.stride, 1] ^= 1  # tile 1's second output of position 2
    exact, difference = first_difference(work, "decode", plan, broken)
    assert exact == {"first"}
    output = placed.shards[1].start + 1
    expected = int(work.expected["decode"]["second"][2, output])
    assert difference == {
        "product": "decode second", "index": [2, output], "expected": f"0x{expected:08x}",
        "found": f"0x{expected ^ 1:08x}",
    }  # fmt: skip


def test_a_products_window_is_from_the_end_of_the_one_before(done):
    _, plan, memory = done
    first, second = product_records("decode", plan, memory, {"first"})
    assert [first["bit_exact"], second["bit_exact"]] == [True, False]
    assert first["cycles"] == second["cycles"] == 103  # the slowest tile
    assert first["hbm_bytes"] == second["hbm_bytes"] == 4 * 10 * 32
    assert first["macs"] == 3 * 64 * 30
    assert 0 < first["array_utilisation"] < 1
    assert 0 < first["hbm_utilisation"] < 1


@pytest.mark.parametrize(
    ("prompt", "layer", "message"),
    [("Too short.", 0, "at least 17 tokens; this one has"), (sim.DEFAULT_PROMPT, 30, "LAYER must be 0 to 29, not 30")],
)
def test_prompts_and_layers_that_cannot_run(prompt, layer, message):
    with pytest.raises(PromptError, match=message):
        prepare(prompt, layer)


def test_a_bad_configuration_is_one_line_and_exit_code_2(tmp_path, capsys):
    path = tmp_path / "mine.toml"
    path.write_text("[tile]\nrows = 0\n")
    assert sim.main(config=path) == 2
    printed = capsys.readouterr().out.strip()
    assert "tile.rows must be an integer from 1 to 64, not 0" in printed
    assert len(printed.splitlines()) == 1
