"""Break the tile in one place; its testbench has to go red."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ARRAY, VECTOR, PROGRAMS = ("tile", "tile_2x2_formats"), ("tile", "tile_2x4_attention"), ("tile", "tile_attention")
GROUPS = ("tile", "tile_2x3_groups")  # two blocks a granule do not divide into sets of three
ATTENTION = ("vector_attention", "")
"""Block and testbench that have to notice."""
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
        "hw/tile/sets.py", "port.data.eq(self._kept(block[1])), port.en.eq(taken)", "port.en.eq(taken)",
    ),
    "a set read while it is written": ("hw/tile/sets.py", "here.eq(whole != pop)", "here.eq(whole + complete != pop)"),
    "more weights asked for than there is room for": (
        "hw/tile/sequencer.py", "promised <= config.weight_blocks - FRAME", "promised <= config.weight_blocks",
    ),
    "blocks counted twice": ("hw/tile/sequencer.py", "taken.eq(instruction.count)", "taken.eq(0)"),
}  # fmt: skip
GROUPS_MUTANTS = {
    "a set begun over the one before": ("hw/tile/sets.py", "port.addr.eq(behind)", "port.addr.eq(produce)"),
}  # fmt: skip
VECTOR_MUTANTS = {
    "blocks of later passes over those of the first": (
        "hw/tile/vector.py", "with m.If(~blocks | wrap)", "with m.If(~blocks)",
    ),
    "a move begins in the array row of the one before": (
        "hw/tile/vector.py", "[row.eq(0), array_row.eq(0), line.eq(0)", "[row.eq(0), line.eq(0)",
    ),
    "a signal before the vector side is done": (
        "hw/tile/sequencer.py", "self.quiet & ~jobs.o.valid & self.vector_idle", "self.quiet & ~jobs.o.valid",
    ),
    "all arrivals on one counter": ("hw/tile/sequencer.py", "(self.arrival_counter == index)", "(index == 0)"),
    "granules to the wrong reader": ("hw/tile/streams.py", "second.eq(second)", "second.eq(self.second.valid)"),
    "a refused program's weights stay in the buffer": (
        "hw/tile/sequencer.py", "with m.If(finished & fetched):", "with m.If(finished):",
    ),
    "attention's rows behind those before": ("hw/tile/attention.py", "[begun.eq(0), count.eq(0)]", "begun.eq(0)"),
    "every token at the first one's position": ("hw/tile/attention.py", "token.position + row", "token.position"),
    "the cache read before it is written": ("hw/tile/tile.py", "return writer.idle", "return writer.idle | 1"),
    "a block lost to the engine's": ("hw/tile/tile.py", "ready.eq(~array.local.write_enable)", "ready.eq(1)"),
    "a granule lost to attention's row": ("hw/tile/tile.py", "with m.If(~to[Memory.RESULTS]):", "with m.If(1):"),
}  # fmt: skip
ATTENTION_MUTANTS = {
    "later keys seen": ("hw/vector/slice.py", "(column < low) | (column >= high)", "column < low"),
    "codes that are no numbers kept": ("hw/vector/kv.py", "Mux(none, 0, code)", "Mux(none & 0, 0, code)"),
    "a leaf's values read before they are kept": ("hw/vector/kv_buffer.py", "& (leaves != 0)", ""),
    "two leaves' values in one place": (
        "hw/vector/kv_buffer.py", "square, block[:group_bits], item.sequence[0]", "square, block[:group_bits], 0",
    ),
    "the rest of a latent key kept as values": ("hw/vector/kv_buffer.py", "& (block < command.value_groups)", ""),
}  # fmt: skip
PROGRAM_MUTANTS = {
    "sum and maximum of a partial result exchanged": (
        "hw/vector/slice.py", "(total_of, maximum_of)[index % 2]", "(maximum_of, total_of)[index % 2]",
    ),
    "a partial result divided by its sum": (
        "hw/vector/merge.py", "with m.If(item.command.partial):", "with m.If(item.command.partial & 0):",
    ),
    "a partial result without its sum and maximum": (
        "hw/vector/attention.py", "BLOCK_GRANULES + merge.item.command.partial", "BLOCK_GRANULES",
    ),
    "sinks of later passes over those of the first": (
        "hw/tile/attention.py", "place.pass_.eq(place.pass_ + 1)", "place.pass_.eq(0)",
    ),
    "sinks do not begin again with the group": (
        "hw/tile/attention.py", "Mux(head + 1 == command.group, 0, head + 1)", "head + 1",
    ),
    "a window one position too long": ("hw/vector/slice.py", "high - arrival.window", "high - arrival.window - 1"),
    "a latent token read with a value": ("hw/tile/attention.py", "with m.If(token.latent):", "with m.If(0):"),
    "a sink in a partial result": ("hw/vector/attention.py", "(command.partial & command.sink)", "0"),
}  # fmt: skip
CASES = [
    pytest.param(bench, *mutant, id=name)
    for bench, mutants in (
        (ARRAY, MUTANTS),
        (GROUPS, GROUPS_MUTANTS),
        (VECTOR, VECTOR_MUTANTS),
        (PROGRAMS, PROGRAM_MUTANTS),
        (ATTENTION, ATTENTION_MUTANTS),
    )
    for name, mutant in mutants.items()
]


def run(folder: Path, bench: tuple[str, str]) -> subprocess.CompletedProcess[str]:
    block, name = bench
    command = [sys.executable, "-m", "scripts", "test", block, *(["--bench", name] if name else [])]
    return subprocess.run(command, cwd=folder, text=True, capture_output=True)


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mutants") / "serrano"
    shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(".venv", "build", ".git", "__pycache__"))
    return folder


@pytest.mark.long
@pytest.mark.parametrize("bench", [ARRAY, GROUPS, VECTOR, PROGRAMS, ATTENTION], ids=lambda bench: bench[1] or bench[0])
def test_the_design_passes_unchanged(copy, bench):
    done = run(copy, bench)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("bench", "path", "old", "new"), CASES)
def test_mutants_have_a_place(bench, path, old, new):
    assert (ROOT / path).read_text().count(old) == 1, f"{path} no longer has the place that this mutant changes"


@pytest.mark.long
@pytest.mark.parametrize(("bench", "path", "old", "new"), CASES)
def test_a_broken_design_is_noticed(copy, bench, path, old, new):
    source = copy / path
    text = source.read_text()
    source.write_text(text.replace(old, new))
    try:
        done = run(copy, bench)
    finally:
        source.write_text(text)
    assert done.returncode != 0, "the mutant went unnoticed"
    assert "failed" in done.stdout + done.stderr, done.stdout + done.stderr
