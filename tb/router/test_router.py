"""Directed and random tests of one router: links are driven with credits, as its neighbours would."""

import os
import random
from collections import defaultdict, deque
from pathlib import Path

import cocotb
import pyuvm
from cocotb.triggers import ClockCycles, RisingEdge
from pyuvm import uvm_test

from golden.noc import tree
from hw.noc import flit_layout
from hw.noc.flit import Direction
from tb.common.clock import start_clock
from tb.common.coverage import Coverage, load_testplan
from tb.common.stream import decode, encode
from tb.router import CONFIG

SEED = int(os.environ.get("SERRANO_SEED", "1"))
TESTPLAN = load_testplan(Path(__file__).with_name("testplan.toml"))
LAYOUT = flit_layout(CONFIG)
HERE = (1, 1)
NEIGHBOUR = {Direction.EAST: (2, 1), Direction.WEST: (0, 1), Direction.NORTH: (1, 2), Direction.SOUTH: (1, 0)}
PORTS = [*NEIGHBOUR, Direction.LOCAL]


def outputs(arrival: Direction, nodes: list[tuple[int, int]]) -> set[Direction]:
    """Outputs of a flit that came in at `arrival` from the neighbour there, or from this node: golden tree of links."""
    source = NEIGHBOUR.get(arrival, HERE)
    links = tree(source, nodes)
    if arrival != Direction.LOCAL and (source, HERE) not in links:
        return set()  # its way does not lead over this router
    found = {side for side, node in NEIGHBOUR.items() if side != arrival and (HERE, node) in links}
    return found | ({Direction.LOCAL} if HERE in nodes else set())


def flit(tag: int, first: tuple[int, int], last_node: tuple[int, int], traffic: int, last: bool) -> int:
    destination = {"x_first": first[0], "x_last": last_node[0], "y_first": first[1], "y_last": last_node[1]}
    return encode(LAYOUT, {"header": {"destination": destination, "traffic": traffic, "last": last}, "payload": tag})


class Links:
    """Drives every input link within its credits and takes every output link, giving credits back after `delay`."""

    def __init__(self, dut, delay=lambda: 0, coverage=None):
        self.dut, self.delay, self.coverage = dut, delay, coverage
        self.queues = {port: deque() for port in PORTS}  # (channel, bits)
        self.credits = {port: [CONFIG.depth] * CONFIG.virtual_channels for port in PORTS}
        self.received = {port: [] for port in PORTS}  # (tag, cycle)
        self.sent = {}
        self.owed = defaultdict(list)  # cycle: (port, channel)
        self.cycle = 0

    async def reset(self):
        dut = self.dut
        dut.x.value, dut.y.value = HERE
        for port in PORTS:
            self.signal("i", port, "valid").value = 0
            self.signal("o", port, "credit").value = 0
        dut.rst.value = 1
        start_clock(dut.clk)
        await ClockCycles(dut.clk, 2)
        dut.rst.value = 0
        cocotb.start_soon(self._run())

    def signal(self, side, port, name):
        return getattr(self.dut, f"{side}__{port.value}__{name}")

    async def _run(self):
        edge = RisingEdge(self.dut.clk)
        while True:
            for port in PORTS:
                self._send(port)
            returned = defaultdict(int)
            for port, channel in self.owed.pop(self.cycle, []):
                returned[port] |= 1 << channel
            for port in PORTS:
                self.signal("o", port, "credit").value = returned[port]
            await edge
            self.cycle += 1
            for port in PORTS:
                self._take(port)

    def _send(self, port):
        queue, credits = self.queues[port], self.credits[port]
        ready = bool(queue) and credits[queue[0][0]] > 0
        if queue and not ready and self.coverage:
            self.coverage.hit("back_pressure", "out_of_credit")
        self.signal("i", port, "valid").value = int(ready)
        if ready:
            channel, bits = queue.popleft()
            credits[channel] -= 1
            self.signal("i", port, "channel").value = channel
            self.signal("i", port, "flit").value = bits
            self.sent[decode(LAYOUT, bits)["payload"]] = self.cycle

    def _take(self, port):
        returned = int(self.signal("i", port, "credit").value)
        for channel in range(CONFIG.virtual_channels):
            self.credits[port][channel] += returned >> channel & 1
            assert self.credits[port][channel] <= CONFIG.depth, f"{port.name}: more credits than places"
        if int(self.signal("o", port, "valid").value):
            channel = int(self.signal("o", port, "channel").value)
            self.received[port].append(
                (decode(LAYOUT, int(self.signal("o", port, "flit").value))["payload"], self.cycle)
            )
            when = self.cycle + self.delay()
            while any(owed == (port, channel) for owed in self.owed[when]):
                when += 1
            self.owed[when].append((port, channel))

    async def settle(self, limit=3000):
        """Until everything is sent and every credit is back."""
        for _ in range(limit):
            await RisingEdge(self.dut.clk)
            full = all(credit == CONFIG.depth for credits in self.credits.values() for credit in credits)
            if full and not any(self.queues.values()):
                break
        else:
            raise AssertionError(f"after {limit} cycles flits or credits are missing: {self.credits}")
        await ClockCycles(self.dut.clk, 4)


def check(links: Links, expected: dict[Direction, dict[tuple[Direction, int], list[int]]]):
    """Each output got exactly its flits, those of one arrival and class in the order in which they were sent."""
    compared = 0
    for port in PORTS:
        tags = [tag for tag, _ in links.received[port]]
        wanted = [tag for flow in expected[port].values() for tag in flow]
        assert sorted(tags) == sorted(wanted), f"{port.name}: expected {sorted(wanted)}, found {sorted(tags)}"
        for flow, sent in expected[port].items():
            assert [tag for tag in tags if tag in set(sent)] == sent, f"{port.name}: flow {flow} out of order"
        compared += len(tags)
    assert compared, "nothing was compared"


@cocotb.test()
async def test_every_turn(dut):
    links = Links(dut)
    await links.reset()
    expected, tag = defaultdict(lambda: defaultdict(list)), 0
    for arrival in PORTS:
        for node in [(x, y) for x in range(3) for y in range(3)]:
            for traffic in range(CONFIG.classes):
                goal = outputs(arrival, [node])
                if not goal:
                    continue
                tag += 1
                links.queues[arrival].append((traffic, flit(tag, node, node, traffic, True)))
                await links.settle()
                for port in goal:
                    expected[port][arrival, traffic].append(tag)
                    assert links.received[port][-1][0] == tag
                    cycles = links.received[port][-1][1] - links.sent[tag] - 1
                    assert cycles == 2, f"{arrival.name} to {port.name}: {cycles} cycles"
    check(links, expected)


@cocotb.test()
async def test_one_output_for_all(dut):
    links = Links(dut)
    await links.reset()
    expected, tag = defaultdict(lambda: defaultdict(list)), 0
    for _ in range(20):
        for arrival in PORTS[:4]:
            tag += 1
            links.queues[arrival].append((1, flit(tag, HERE, HERE, 1, True)))
            expected[Direction.LOCAL][arrival, 1].append(tag)
    await links.settle()
    check(links, expected)
    cycles = [cycle for _, cycle in links.received[Direction.LOCAL]]
    assert cycles == list(range(cycles[0], cycles[0] + tag)), "an output with work to do was idle"


@pyuvm.test()
class test_random(uvm_test):
    """Packets of one to three flits and multicast rectangles from every side, credits given back late."""

    lose = False

    async def run_phase(self):
        self.raise_objection()
        choice = random.Random(SEED)
        self.coverage = Coverage(TESTPLAN)
        self.links = Links(cocotb.top, lambda: choice.choice([0, 0, 1, 6]), self.coverage)
        await self.links.reset()
        self.expected = defaultdict(lambda: defaultdict(list))
        self.tag = 0
        for _ in range(150):
            self.packet(choice)
        if self.lose:
            self.links.queues[Direction.LOCAL].pop()
        await self.links.settle()
        self.drop_objection()

    def packet(self, choice):
        arrival, traffic = choice.choice(PORTS), choice.randrange(CONFIG.classes)
        xs, ys = sorted(choice.choices(range(3), k=2)), sorted(choice.choices(range(3), k=2))
        if choice.random() < 0.7:
            xs, ys = [xs[0]] * 2, [ys[0]] * 2
        nodes = [(x, y) for x in range(xs[0], xs[1] + 1) for y in range(ys[0], ys[1] + 1)]
        goal = outputs(arrival, nodes)
        if not goal:
            return
        flits = 1 if len(nodes) > 1 else choice.randint(1, 3)
        kind = "multicast" if len(nodes) > 1 else "one_flit" if flits == 1 else "several_flits"
        self.coverage.hit("exactly_once", kind)
        for index in range(flits):
            self.tag += 1
            bits = flit(self.tag, (xs[0], ys[0]), (xs[1], ys[1]), traffic, index == flits - 1)
            self.links.queues[arrival].append((traffic, bits))
            for port in goal:
                self.expected[port][arrival, traffic].append(self.tag)

    def check_phase(self):
        check(self.links, self.expected)
        holes = self.coverage.holes()
        assert self.lose or not holes, f"never seen: {holes}"


@pyuvm.test(expect_error=AssertionError)
class test_lost_flit_fails(test_random):
    """One flit is taken back before it is sent: the comparison has to notice."""

    lose = True
