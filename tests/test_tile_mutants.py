"""Break the tile in one place; its testbench has to go red."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BENCH = "tile_2x2_formats"
MUTANTS = {
    "destination of the next group": (
        "hw/tile/drain.py", "payload.destination.eq(destination)", "payload.destination.eq(job.destination)",
    ),
    "sums read too early": ("hw/tile/array.py", "gap=accumulate_latency + 2", "gap=accumulate_latency - 1"),
    "group sent too early": ("hw/tile/array.py", "latency=to_result", "latency=to_result - 4"),
    "sum not cleared for a new group": ("hw/tile/issue.py", "self.issue.first.eq(k == 0)", "self.issue.first.eq(0)"),
    "weights of the wrong cycle": (
        "hw/tile/array.py", '"weight_codes", _TO_DECODER', '"weight_codes", _TO_DECODER + 1',
    ),
    "bank reused before it is sent": ("hw/tile/issue.py", "& occupied.bit_select(bank, 1)", "& 0"),
    "scale words move on by one": ("hw/tile/unpack.py", "words >> 2 * bits, words", "words >> bits, words"),
    "two blocks counted as one": ("hw/tile/unpack.py", "remaining - Mux(two, 2, 1)", "remaining - 1"),
    "the second block of two is the first": (
        "hw/tile/collect.py", "payload[self.columns - 1].eq(block[1])", "payload[self.columns - 1].eq(block[0])",
    ),
    "blocks counted twice": ("hw/tile/sequencer.py", "taken.eq(instruction.count)", "taken.eq(0)"),
}  # fmt: skip


def run(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "scripts", "test", "tile", "--bench", BENCH]
    return subprocess.run(command, cwd=folder, text=True, capture_output=True)


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mutants") / "serrano"
    shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(".venv", "build", ".git", "__pycache__"))
    return folder


@pytest.mark.long
def test_the_tile_passes_unchanged(copy):
    done = run(copy)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_have_a_place(name):
    path, old, _ = MUTANTS[name]
    assert (ROOT / path).read_text().count(old) == 1, f"{path} no longer has the place that '{name}' changes"


@pytest.mark.long
@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_tile_is_noticed(copy, name):
    path, old, new = MUTANTS[name]
    source = copy / path
    text = source.read_text()
    source.write_text(text.replace(old, new))
    try:
        done = run(copy)
    finally:
        source.write_text(text)
    assert done.returncode != 0, f"'{name}' went unnoticed"
    assert "failed" in done.stdout + done.stderr, done.stdout + done.stderr
