"""What a variant changes in tile and chip, by hand; and its way into the tile, whole."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from sample_summary import fitted

from hw.variants import SWITCH, thrifty_cuts, write
from scripts.explore import dots, effect, variant
from scripts.explore.effect import Chosen, Effect
from scripts.explore.sequential import Unit
from scripts.extrapolate.chips import TileShape
from scripts.verify.netlist import Netlist

NOTHING = Netlist({}, {}, [])


def chosen(area: float, delay: float, energy: float = 100.0) -> Chosen:
    return Chosen("made", Unit("flat", area, delay, energy, 10), NOTHING)


def found(hand: Chosen, ours: Chosen, clock: float = 800.0) -> Effect:
    fixed = {name: Unit("flat", area, 700, None, 1) for name, area in (("rest", 1), ("accumulate", 4), ("decode", 2))}
    return Effect(clock, "accumulate", hand, ours, fixed, (0.01, 0.01, 0.01))


def test_changes_by_hand():
    made = found(chosen(20, 800, 100), chosen(15, 600, 75))
    assert made.area_change == pytest.approx(-0.25)
    assert made.energy_ratio == pytest.approx(0.75)
    assert made.tile_area(made.hand, 2, 3) == 6 * (20 + 1 + 4) + 5 * 2
    assert made.tile_area(made.variant, 2, 3) == 6 * (15 + 1 + 4) + 5 * 2


def test_the_least_that_keeps_up_else_the_fastest():
    ways = [chosen(10, 900), chosen(20, 700), chosen(15, 800)]
    assert effect._least(ways, 800) is ways[2]
    assert effect._least(ways, 650) is ways[1]


def test_saving_is_at_no_more_delay_on_the_best_given_point():
    def point(area, delay):
        return {"origin": "made", "flavour": "flat", "area": area, "delay": delay}

    given, ours = [point(100, 10), point(80, 20)], [point(90, 9), point(60, 21), point(50, 11)]
    assert dots.saving(given, ours)[0] == pytest.approx(0.1), "100 x 10 is best; 50 is smaller, but slower"
    assert dots.saving(given[1:], ours)[0] == pytest.approx(1 - 50 / 80)
    assert dots.saving([point(10, 1)], ours)[0] == 0


def test_what_is_carried_to_the_chip(tmp_path):
    summary = fitted(TileShape(8, 4, 8))
    path = tmp_path / "summary.json"
    assert effect.carried(found(chosen(1, 1), chosen(1, 1)), path) == []
    path.write_text(json.dumps(summary))
    hand = chosen(20, 800, 100)
    for row in effect.carried(found(hand, hand), path):
        assert row["rate_before"] == row["rate_after"] and row["watts_before"] == row["watts_after"]
    for row in effect.carried(found(hand, chosen(20, 800, 50)), path):
        assert row["rate_before"] == row["rate_after"]
        assert all(after < before for after, before in zip(row["watts_after"], row["watts_before"], strict=True))
    for row in effect.carried(found(hand, chosen(20, 1600)), path):
        assert 0.4 < row["rate_after"] / row["rate_before"] < 1, "a stage of twice the clock"
    for row in effect.carried(found(hand, chosen(20, 400)), path):
        assert row["rate_after"] == row["rate_before"], "a shorter stage than the clock brings nothing"


def test_a_change_below_the_noise_is_told():
    made = replace(found(chosen(1000, 800), chosen(1005, 800, 90)), noise=(0.01, 0.01, 0.01))
    cells = list(effect.table(made, 8, 4, []).columns[3].cells)
    assert cells[0] == "+0.50 % (within the noise)"
    assert cells[2] == "no change" and cells[3] == "-10.00 %"


@pytest.mark.long
def test_a_variant_runs_in_the_tile(tmp_path: Path):
    """The switch as a user turns it: a circuit in a file, and the tile's own tests with it; a wrong one goes red."""
    gates = variant.gates({"kind": "compressor", "rows": "booth", "tree": "dadda"}, "dot_s8x32")
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    write(good, "dot_s8x32", thrifty_cuts(gates, 3, 40), gates, {})
    content = json.loads(good.read_text())
    content["outputs"]["y"][3] = content["outputs"]["y"][4]
    bad.write_text(json.dumps(content))
    command = [sys.executable, "-m", "scripts", "test", "tile", "--bench", "tile_2x3"]
    codes = []
    for path in (good, bad):
        done = subprocess.run(command, env={**os.environ, SWITCH: str(path)}, text=True, capture_output=True)
        codes.append(done.returncode)
        if path is bad:
            assert f"VARIANT={path}" in done.stdout + done.stderr, "the line that reruns it names the circuit"
    assert codes == [0, 1]
