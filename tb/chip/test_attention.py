"""One sequence's attention on one, two and four tiles of the chip: the same bits, which are golden attention's."""

import os

import cocotb
import numpy as np

from golden.compiler import HOST
from golden.layer import LayerPlan
from tb.chip import default
from tb.chip.execute import execute
from tb.chip.host import Host
from tb.tile.attention_work import Case, SequenceWork

SEED = int(os.environ.get("SERRANO_SEED", "1"))
CONFIG = default()
CASES = {
    "decode": Case(2000, append=3, run=4),
    "prefill": Case(516, positions=8, append=8),
    "window and sinks": Case(700, window=300, sink=True, group=8, append=2),
}
TILES = (1, 2, 4)


def works() -> dict[str, list[SequenceWork]]:
    """Every case on every number of tiles, each with a cache and a place in the host's memory of its own."""
    found: dict[str, list[SequenceWork]] = {}
    cache = result = 0
    for name, case in CASES.items():
        found[name] = []
        for tiles in TILES:
            nodes = [CONFIG.place(tile) for tile in range(tiles)]
            work = SequenceWork(CONFIG.tile, case, SEED, nodes, cache, HOST, result)
            found[name].append(work)
            cache, result = work.end, result + work.expected.size // 8
    return found


# The devices load their images at time zero, before a test can run: they are written when this module is imported.
WORKS = works()
IMAGES = {
    id(work): [work.image(tile) for tile in range(CONFIG.tiles)] for entries in WORKS.values() for work in entries
}
for _tile in range(CONFIG.tiles):
    np.concatenate([images[_tile] for images in IMAGES.values()]).tofile(f"hbm{_tile}.bin")


async def rows_of(host: Host, work: SequenceWork) -> tuple[np.ndarray, int]:
    """The rows that the chip gives, every tile's sent writes counted, and the cycles that it took."""
    programs = [work.program(tile) for tile in range(CONFIG.tiles)]
    granules = work.result + work.expected.size // 8
    plan = LayerPlan(CONFIG, programs, [], work.rows_in(), [("attention", ())], [], granules)
    done = await execute(host, plan)
    machines = work.machines(IMAGES[id(work)][: len(work.nodes)], programs[: len(work.nodes)])
    for counters, machine in zip(done.counters, machines, strict=False):
        assert counters["result_granules"] == len(machine.sent), (counters, len(machine.sent))
        attends = len(machine.sent) > 1  # of some windows a tile has no leaf
        assert bool(counters["attention"]) == bool(counters["cache_granules"]) == attends, counters
    return done.memory[work.result : granules].reshape(work.expected.shape), done.cycles


@cocotb.test()
@cocotb.parametrize(name=list(CASES))
async def test_any_number_of_tiles(dut, name):
    """Decode, a chunk over a leaf's border, and windows with sinks: T tiles give the rows of one."""
    host = Host(dut)
    await host.reset()
    host.pause(0.0 if name == "decode" else 0.3, SEED)
    for work in WORKS[name]:
        rows, cycles = await rows_of(host, work)
        cocotb.log.info("%s on %d tiles: %d cycles", name, len(work.nodes), cycles)
        np.testing.assert_array_equal(rows, work.expected, err_msg=f"{name} on {len(work.nodes)} tiles")
        np.testing.assert_array_equal(rows, WORKS[name][0].expected)
    assert await host.read("error") == 0
