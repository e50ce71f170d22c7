"""Programs of attention on the golden machines: any number of tiles gives the bits of golden attention."""

import dataclasses

import pytest

from golden.attention_program import SharedSequence
from hw.tile.attention_program import Append, Attend, Sinks
from hw.tile.config import TileConfig
from hw.tile.program import Destination, ProgramError
from hw.tile.vector_program import Rows
from tb.tile.attention_work import Case, SequenceWork

TILE = TileConfig(
    rows=4, columns=4, slots=8, passes=8, activation_depth=256, instruction_depth=256, vector_depth=8192,
    formats=("MXINT8", "E4M3"), attention_rows=24, attention_channels=64,
)  # fmt: skip
CASES = {
    "decode": Case(700, group=3),
    "prefill": Case(650, positions=7, append=7),
    "a chunk over a leaf's border": Case(389, positions=8, append=20),
    "window": Case(700, window=200, positions=3, append=3),
    "window of a leaf": Case(516, window=128, group=8),
    "sinks": Case(700, sink=True, positions=2, group=8, append=2),
    "window and sinks": Case(900, window=300, sink=True, positions=2, group=8, append=2),
    "latent": Case(600, key_size=96, latent=True, group=16),
    "E4M3": Case(700, format="E4M3", positions=2, append=2),
    "latent, E4M3, sinks": Case(400, key_size=96, latent=True, format="E4M3", sink=True, positions=2, append=40),
    "one leaf": Case(5, positions=5, append=5),
    "one key": Case(1),
}


@pytest.mark.parametrize(("tiles", "run"), [(1, 1), (2, 1), (4, 1), (2, 2), (3, 1)])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_any_number_of_tiles_gives_the_same_bits(case, tiles, run):
    case = dataclasses.replace(case, tiles=tiles, run=run)
    work = SequenceWork(TILE, case, 7, [(tile, 0) for tile in range(tiles)], cache=10)
    images, programs = ([make(tile) for tile in range(tiles)] for make in (work.image, work.program))
    machines = work.machines(images, programs)
    assert len(machines) == tiles


def wrong(command: Append | Attend | Sinks, **changes) -> str:
    with pytest.raises(ProgramError) as error:
        dataclasses.replace(command, **changes).words(TILE)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_what_a_tile_cannot_do_is_refused_in_one_line():
    attend = Attend(6, 3, 700, 64, 64, 0, 0)
    attend.words(TILE)
    assert "MXINT8, E4M3, not E2M1" in wrong(attend, format="E2M1")
    assert "A latent value is a part of its key" in wrong(attend, latent=True, key_size=32)
    assert "A sink is merged behind all leaves" in wrong(attend, sink=0, leaves=(0, 3))
    assert "not of 3 to 2" in wrong(attend, leaves=(3, 2))
    assert "Leaves 1 to 2 are not all that is seen of a node of the tree, leaves 0 to 3" in wrong(attend, leaves=(1, 2))
    for leaves in ((0, 0), (0, 3), (4, 5), (0, 5)):
        dataclasses.replace(attend, leaves=leaves).words(TILE)
    dataclasses.replace(attend, leaves=(3, 5), window=300).words(TILE)
    assert "sink_slot must be" in wrong(attend, sink=2)
    assert "window must be" in wrong(attend, window=1 << 17)
    assert "groups of 0" in wrong(attend, group=0)
    assert "up to leaf 16" in wrong(attend, position=2047)
    room = Attend(6, 3, 700, 64, 64, 0, TILE.vector_depth - 48)
    room.words(TILE)
    assert "do not fit in a vector memory" in wrong(room, leaves=(0, 3))
    append = Append(1, 0, Rows(TILE.vector_depth - 12), 96, 64, latent=True)
    append.words(TILE)
    assert "do not fit" in wrong(append, latent=False)
    sinks = Sinks(24, 8, TILE.vector_depth - 1)
    sinks.words(TILE)
    assert "1 to 24 rows" in wrong(sinks, rows=25)
    assert "groups of at least 1" in wrong(sinks, group=0)
    assert "do not fit" in wrong(sinks, group=9)
    assert "slot must be" in wrong(sinks, slot=2)
    with pytest.raises(ProgramError, match="no attention engine"):
        sinks.words(dataclasses.replace(TILE, attention_rows=0))


def test_a_leaf_buffer_is_there_or_not():
    with pytest.raises(ValueError, match="attention_leaf_buffer must be true or false, not 2"):
        dataclasses.replace(TILE, attention_leaf_buffer=2)


def test_sequences_are_checked():
    shape, tiles = Case(1).shape, (Destination(0, 0),)
    with pytest.raises(ValueError, match="a power of two of leaves, not 3"):
        SharedSequence(TILE, shape, tiles, run=3)
    with pytest.raises(ValueError, match="at least one tile"):
        SharedSequence(TILE, shape, ())
    with pytest.raises(ValueError, match="one key head, not of 3"):
        SharedSequence(TILE, dataclasses.replace(shape, kv_heads=3), tiles)
