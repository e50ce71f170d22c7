"""The barrier, on a network of queues with random delays (Amaranth's simulator)."""

import random

import pytest
from amaranth.hdl import Module
from amaranth.sim import Simulator

from golden.noc import targets
from hw.noc import Kind, MeshConfig
from hw.noc.barrier import Barrier

CONFIG = MeshConfig(2, 2, payload=8)


class Node:
    """A barrier and its random user: arrives now and then, and sends data flits to itself in between."""

    def __init__(self, index: int, rounds: int, events: list, generator: random.Random):
        self.index, self.rounds, self.events, self.generator = index, rounds, events, generator
        self.unit = Barrier(CONFIG)
        self.queue: list = []  # flits that the network has for it
        self.pending, self.done, self.held = True, 0, False
        self.sent = self.received = 0

    def drive(self, ctx, cycle: int) -> None:
        unit, chance = self.unit, self.generator.random
        arrive = self.pending and self.done < self.rounds and chance() < 0.2 and ctx.get(unit.ready)
        ctx.set(unit.arrive, arrive)
        if arrive:
            self.events.append((cycle, "arrive", self.index))
            self.pending = False
        if not self.held:  # a data flit, kept until it is taken
            self.held = chance() < 0.3
            x, y = self.index % 2, self.index // 2
            own = {"x_first": x, "x_last": x, "y_first": y, "y_last": y}
            ctx.set(unit.node_send.valid, self.held)
            ctx.set(unit.node_send.payload.header, {"destination": own, "last": chance() < 0.5})
        ctx.set(unit.send.ready, chance() < 0.5)
        ctx.set(unit.node_receive.ready, 1)
        ready = bool(self.queue) and chance() < 0.6
        ctx.set(unit.receive.valid, ready)
        if ready:
            ctx.set(unit.receive.payload, self.queue[0])

    def observe(self, ctx, cycle: int):
        """Returns the flit that leaves in this cycle, if any."""
        unit = self.unit
        self.held &= not ctx.get(unit.node_send.ready)
        if ctx.get(unit.released):
            self.events.append((cycle, "release", self.index))
            self.pending, self.done = True, self.done + 1
        if ctx.get(unit.receive.valid) and ctx.get(unit.receive.ready):
            self.queue.pop(0)
            self.received += ctx.get(unit.node_receive.valid)
        return ctx.get(unit.send.payload) if ctx.get(unit.send.valid) and ctx.get(unit.send.ready) else None


def run(rounds: int, seed: int, lose: bool = False) -> list[tuple[int, str, int]]:
    """Events (cycle, "arrive" or "release", node) of `rounds` barriers among data flits; `lose`: drop an arrival."""
    generator, events = random.Random(seed), []
    nodes = [Node(index, rounds, events, generator) for index in range(CONFIG.nodes)]
    m = Module()
    for node in nodes:
        m.submodules[f"unit_{node.index}"] = node.unit

    async def network(ctx) -> None:
        lost = not lose
        for cycle in range(500):
            for node in nodes:
                node.drive(ctx, cycle)
            for node in nodes:
                flit = node.observe(ctx, cycle)
                if flit is None:
                    continue
                node.sent += flit.header.kind == Kind.DATA
                if flit.header.kind == Kind.BARRIER and not lost:
                    lost = True
                    continue
                names = ("x_first", "x_last", "y_first", "y_last")
                goal = {name: int(flit.header.destination[name]) for name in names}
                for x, y in targets(goal, CONFIG.columns, CONFIG.rows):
                    nodes[y * CONFIG.columns + x].queue.append(flit)
            await ctx.tick()

    simulator = Simulator(m)
    simulator.add_clock(1e-9)
    simulator.add_testbench(network)
    simulator.run()
    assert all(node.sent and node.received for node in nodes)
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
