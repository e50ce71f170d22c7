"""The barrier, on a network of queues with random delays (Amaranth's simulator)."""

import random

import pytest
from amaranth.hdl import Module
from amaranth.sim import Simulator

from golden.noc import targets
from hw.noc import Kind, MeshConfig
from hw.noc.barrier import Barrier

CONFIG = MeshConfig(2, 2, payload=8)


def run(rounds: int, seed: int, lose: bool = False) -> list[tuple[int, str, int]]:
    """Events (cycle, "arrive" or "release", node) of `rounds` barriers among data flits; `lose`: drop an arrival."""
    generator = random.Random(seed)
    m = Module()
    units = [Barrier(CONFIG) for _ in range(CONFIG.nodes)]
    for index, unit in enumerate(units):
        m.submodules[f"unit_{index}"] = unit
    events, data_sent, data_received = [], [], []
    names = ("x_first", "x_last", "y_first", "y_last")

    async def drive(ctx) -> None:
        queues = [[] for _ in units]
        pending, done = [True] * len(units), [0] * len(units)
        lost, held = not lose, [False] * len(units)
        for cycle in range(500):
            for index, unit in enumerate(units):
                arrive = pending[index] and done[index] < rounds and generator.random() < 0.2 and ctx.get(unit.ready)
                ctx.set(unit.arrive, arrive)
                if arrive:
                    events.append((cycle, "arrive", index))
                    pending[index] = False
                if not held[index]:  # a data flit for the node itself, kept until it is taken
                    held[index] = generator.random() < 0.3
                    own = {"x_first": index % 2, "x_last": index % 2, "y_first": index // 2, "y_last": index // 2}
                    ctx.set(unit.node_send.valid, held[index])
                    ctx.set(unit.node_send.payload.header, {"destination": own, "last": generator.random() < 0.5})
                ctx.set(unit.send.ready, generator.random() < 0.5)
                ctx.set(unit.node_receive.ready, 1)
                ready = queues[index] and generator.random() < 0.6
                ctx.set(unit.receive.valid, int(bool(ready)))
                if ready:
                    ctx.set(unit.receive.payload, queues[index][0])
            for index, unit in enumerate(units):
                held[index] &= not ctx.get(unit.node_send.ready)
                if ctx.get(unit.released):
                    events.append((cycle, "release", index))
                    pending[index], done[index] = True, done[index] + 1
                if ctx.get(unit.receive.valid) and ctx.get(unit.receive.ready):
                    queues[index].pop(0)
                    data_received.extend([1] * ctx.get(unit.node_receive.valid))
                if not (ctx.get(unit.send.valid) and ctx.get(unit.send.ready)):
                    continue
                flit = ctx.get(unit.send.payload)
                if flit.header.kind == Kind.DATA:
                    data_sent.append(1)
                elif flit.header.kind == Kind.BARRIER and not lost:
                    lost = True
                    continue
                goal = {name: int(flit.header.destination[name]) for name in names}
                for x, y in targets(goal, CONFIG.columns, CONFIG.rows):
                    queues[y * CONFIG.columns + x].append(flit)
            await ctx.tick()

    simulator = Simulator(m)
    simulator.add_clock(1e-9)
    simulator.add_testbench(drive)
    simulator.run()
    assert data_sent and data_received
    return events


def check(events: list[tuple[int, str, int]], rounds: int) -> None:
    """Round by round: everybody arrives before anybody is released, and everybody is released once."""
    for node in range(CONFIG.nodes):
        assert [what for _, what, who in events if who == node] == ["arrive", "release"] * rounds
    for turn in range(rounds):
        arrivals = [[t for t, what, who in events if who == n and what == "arrive"][turn] for n in range(CONFIG.nodes)]
        releases = [[t for t, what, who in events if who == n and what == "release"][turn] for n in range(CONFIG.nodes)]
        assert max(arrivals) < min(releases)


@pytest.mark.parametrize("number", [1, 2])
def test_barrier(number: int, seed: int) -> None:
    check(run(5, 100 * seed + number), 5)


def test_lost_arrival_is_noticed(seed: int) -> None:
    with pytest.raises(AssertionError):
        check(run(5, seed, lose=True), 5)
