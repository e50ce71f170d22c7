"""The cycle formula against the hardware's own constants, its fit against runs made from known constants; steps."""

import json
import random
from dataclasses import replace

import pytest

from scripts.extrapolate import chips, shapes
from scripts.extrapolate.chips import TileShape
from scripts.extrapolate.cycles import ACCUMULATE_GAP, Constants, Run, fit, runs, work
from scripts.extrapolate.energy import energy, watts
from scripts.extrapolate.step import PARTS, Batch, Step, crowding, gather, step
from scripts.extrapolate.toml_object import DescriptionError
from scripts.extrapolate.validate import table, tile_runs
from tb.tile_memory import CONFIGS

TILE = TileShape(rows=8, columns=4, slots=8)
PLAIN = Constants(50, 1.05, 1.0, (), (), 0.0, 0.0)
SMOLLM = {"q": (576, 576), "k": (576, 192), "v": (576, 192), "o": (576, 576), "gate": (576, 1536), "up": (576, 1536),
          "down": (1536, 576)}  # fmt: skip


def test_accumulate_gap_is_the_hardwares():
    from hw.numerics.accumulate import FusedAccumulate

    assert FusedAccumulate.latency + 2 == ACCUMULATE_GAP


def test_work_of_a_product_by_hand():
    """576 outputs on 4 tiles of 4 columns: 36 slot columns, so 4 groups of 8 and one of 4; 18 K blocks.

    The last group waits: 4 slots are 2 cycles short of the gap, for all K blocks but the first.
    """
    decode = work(1, 576, 576, TILE, 4)
    assert (decode.array, decode.ordered) == (36 * 18 + 2 * 17, 2 * 17)
    assert decode.stream == 36 * 4 * 18 * 33 / 32
    assert decode.bytes == 576 * 576 * 8.25 / 8
    assert decode.macs == 576 * 576
    prefill = work(17, 576, 576, TILE, 4)
    assert prefill.array == 3 * 36 * 18, "three passes fill the gap"
    assert prefill.stream == decode.stream


def test_work_waits_for_the_accumulator_where_few_outputs_interleave():
    """8 outputs on 1 tile of 4 columns: 2 slots, so each K block but the last takes the gap, not 2 cycles."""
    small = work(1, 640, 8, TILE, 1)
    assert small.array == 19 * ACCUMULATE_GAP + 2
    assert small.ordered == 19 * (ACCUMULATE_GAP - 2)
    assert work(1, 640, 8, TILE, 1, passes=2).array == 19 * ACCUMULATE_GAP + 4


def test_work_pads_to_whole_columns():
    assert work(1, 32, 5, TILE, 4).bytes == 4 * 4 * 32 * 8.25 / 8
    with pytest.raises(ValueError, match="not 0, 32, 5, 4"):
        work(0, 32, 5, TILE, 4)


def made_runs(constants, noise=0.0, seed=1):
    draw, found = random.Random(seed), []
    for mode, m in (("decode", 1), ("prefill", 40)):
        for name, (k, n) in SMOLLM.items():
            cycles = constants.cycles(work(m, k, n, TILE, 4)) * draw.uniform(1 - noise, 1 + noise)
            found.append(Run(name, mode, (work(m, k, n, TILE, 4),), cycles))
    return found


def test_fit_finds_the_constants_behind_the_runs():
    found = fit(made_runs(replace(PLAIN, start=73, memory_factor=1.08)))
    assert found.start == pytest.approx(73, abs=1)
    assert found.memory_factor == pytest.approx(1.08, abs=0.002)
    assert found.worst_error < 1e-3


def test_fit_never_sees_the_shapes_it_is_tested_on():
    """Ruining the tested runs changes the error, not the constants; `up` has gate's shape and is not fitted on."""
    clean = made_runs(PLAIN, noise=0.01)
    spoiled = [replace(r, cycles=2 * r.cycles) if r.name in ("gate", "up", "down") else r for r in clean]
    first, second = fit(clean), fit(spoiled)
    assert (first.start, first.memory_factor) == (second.start, second.memory_factor)
    assert not {"decode gate", "decode up", "decode down"} & set(first.fitted_on)
    assert first.worst_error < 0.03
    assert second.worst_error > 0.4


def test_no_memory_is_faster_than_its_peak():
    """Runs that a start alone explains, and noise that would ask for a factor below one."""
    quick = [replace(run, cycles=run.cycles * 0.97) for run in made_runs(replace(PLAIN, memory_factor=1.0))]
    assert fit(quick).memory_factor == 1.0


def test_runs_leave_out_waits_for_the_host():
    record = {"name": "q", "mode": "decode", "M": 1, "K": 576, "N": 576, "cycles": 3000,
              "stalls": {"weights": 10, "activations": 250, "idle": 50}}  # fmt: skip
    assert runs([record], TILE, 4, 1.0, 64)[0] == Run("q", "decode", (work(1, 576, 576, TILE, 4),), 2700, buffered=64)
    with pytest.raises(DescriptionError, match="lacks 'stalls'"):
        runs([{k: v for k, v in record.items() if k != "stalls"}], TILE, 4, 1.0, 64)
    with pytest.raises(DescriptionError, match="too few runs"):
        fit(runs([record], TILE, 4, 1.0, 64))


@pytest.fixture(scope="module")
def chip():
    return chips.load("full_size")


@pytest.mark.parametrize("name", ["gpt_oss_120b", "deepseek_r1", "kimi_k2_5", "smollm2_135m"])
def test_no_step_beats_its_rooflines(chip, name):
    """Memory: all bytes at peak bandwidth; array: all multiply-accumulates at full use. Parts sum to the whole."""
    model = shapes.load(name)
    for batch in (
        Batch(1, 8192),
        Batch(64, 4096),
        Batch(prefill=2048, history=4096),
        Batch(32, 4096, 1024, 2048, True),
    ):
        found = step(model, chip, PLAIN, batch)
        seconds = found.cycles / chip.clock_hz
        assert seconds > found.hbm_bytes / chip.bandwidth
        assert seconds > found.macs / chip.macs_per_second
        assert found.cycles == pytest.approx(sum(getattr(found, part) for part in PARTS))
        assert all(getattr(found, part) >= 0 for part in PARTS)


def test_step_reads_at_least_the_published_bytes(chip):
    """Padding to whole columns may add to the shape's own weight bytes, never take away."""
    for name in ("gpt_oss_120b", "deepseek_r1", "kimi_k2_5"):
        model = shapes.load(name)
        least = model.weight_bytes() + model.kv_read(8192)
        assert least <= step(model, chip, PLAIN, Batch(1, 8192)).hbm_bytes < 1.7 * least


def test_decode_is_not_given_prefills_utilisation(chip):
    model = shapes.load("deepseek_r1")
    use = []
    for batch in (Batch(1, 8192), Batch(prefill=2048, history=4096)):
        found = step(model, chip, PLAIN, batch)
        use.append(found.macs / (found.cycles / chip.clock_hz) / chip.macs_per_second)
    assert use[0] < 0.02 < use[1]


def test_more_of_anything_is_not_slower(chip):
    """Clock, bandwidth, links and ingress: doubling one never makes a step longer; it shortens the part that it is."""
    model, batch = shapes.load("kimi_k2_5"), Batch(8, 8192)
    base = step(model, chip, PLAIN, batch)
    faster = [
        (replace(chip, ingress=2 * chip.ingress), "network"),
        (replace(chip, domain=replace(chip.domain, link_nanoseconds=chip.domain.link_nanoseconds / 2)), "link"),
        (replace(chip, tile=replace(chip.tile, lanes=2 * chip.tile.lanes)), "vector"),
    ]
    for other, part in faster:
        found = step(model, other, PLAIN, batch)
        assert found.cycles < base.cycles
        assert getattr(found, part) < getattr(base, part)


def test_one_chip_has_no_links(chip):
    alone = replace(chip, domain=replace(chip.domain, chips=1, expert_groups=1))
    found = step(shapes.load("gpt_oss_120b"), alone, PLAIN, Batch(1, 8192))
    assert found.link == found.link_bytes == 0


def test_gather_takes_the_better_way(chip):
    """One position goes out as FP32 directly; many go to their owners first, then as blocks of 32."""
    one, many = gather(7168, 1, chip), gather(7168, 2048, chip)
    assert one.flits == 7168 / 8 * chip.all_tiles
    assert one.link_bytes == 7168 * 4 * 7, "into each of 8 chips what the other 7 hold"
    assert many.flits == pytest.approx((2048 * 7168 / 8 / chip.all_tiles + 2048 * 7168 / 32) * chip.all_tiles)


def test_crowding_of_experts():
    assert crowding(256, 8, 1) == 1
    assert crowding(256, 256, 8) == 1
    assert 2.2 < crowding(256, 8, 8) < 2.9  # 8 balls into 8 bins: the fullest has about 2.6
    assert crowding(256, 128, 8) < 1.3


def test_empty_step_is_refused(chip):
    with pytest.raises(ValueError, match="at least one position"):
        step(shapes.load("gpt_oss_120b"), chip, PLAIN, Batch())


def test_energy_is_a_band_and_adds_up(chip):
    found = step(shapes.load("deepseek_r1"), chip, PLAIN, Batch(1, 8192))
    one, two = energy(found, chip), energy(found.times(2), chip)
    for part in ("hbm", "arithmetic", "sram", "network", "links"):
        low, high = getattr(one, part)
        assert 0 < low < high
        assert getattr(two, part) == pytest.approx((2 * low, 2 * high))
    assert one.hbm == pytest.approx((found.hbm_bytes * 8 * 2.5e-12, found.hbm_bytes * 8 * 6e-12))
    low, high = watts(found, chip, found.cycles / chip.clock_hz)
    assert chip.power.static_watts[0] < low < high < 2000
    assert energy(Step(), chip).total == (0, 0)


def test_unpacker_takes_a_granule_a_cycle():
    """A block or two a granule: memory is the limit, and at one block a cycle it would not be for 4-bit weights."""
    wide, narrow = work(1, 2880, 2880, TILE, 1), work(1, 2880, 2880, TILE, 1, bits=4.25)
    assert wide.unpack == narrow.unpack == 2880 * 90 / 2
    for part in (wide, narrow):
        assert PLAIN.bound(part) == PLAIN.memory_factor * part.stream
    slow = work(1, 2880, 2880, replace(TILE, blocks_per_cycle=1.0), 1, bits=4.25)
    assert PLAIN.bound(slow) == slow.unpack == 2 * narrow.unpack


def test_blocks_a_cycle_are_the_hardwares():
    from hw.tile.unpack import blocks_at_once

    assert TILE.blocks_per_cycle == blocks_at_once(("E2M1",))


def test_buffered_weights_shorten_the_first_product():
    shape = work(1, 576, 576, TILE, 4)
    cold, warm = Run("q", "decode", (shape, shape), 1), Run("q", "decode", (shape, shape), 1, buffered=64)
    assert PLAIN.predict(cold) - PLAIN.predict(warm) == pytest.approx(64 * PLAIN.memory_factor)


def test_runs_of_the_tile_bench(tmp_path):
    """Two products back to back on the bench's tile; the results that leave at the end are not the formula's."""
    config = CONFIGS["tile_1024"]
    tile = TileShape(config.rows, config.columns, config.slots)
    works = [work(16, k, n, tile, 1, bits=4.25) for n, k in ((576, 576), (96, 320))]
    tail = 16 * -(-config.columns * config.slots // 8)
    folder = tmp_path / "tile_1024-made-16-E2M1"
    folder.mkdir()
    record = {
        "work": {"shapes": [[576, 576], [96, 320]], "positions": 16, "weight_format": "E2M1"},
        "counters": {"cycles": round(sum(PLAIN.bound(w) for w in works)) + 50 + tail},
    }
    (folder / "measured.json").write_text(json.dumps(record))
    found = tile_runs(tmp_path)
    assert len(found) == 1
    assert abs(PLAIN.error(found[0])) < 1e-3
    assert table(PLAIN, found).row_count == 1
    with pytest.raises(DescriptionError, match="no run of `make bench-tile`"):
        tile_runs(tmp_path / "absent")
