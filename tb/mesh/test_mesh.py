"""Directed and random tests of a whole mesh: every flit exactly once, in order, whole, and in time."""

import itertools
import json
import random
from collections import defaultdict
from pathlib import Path

import cocotb
import pyuvm
from cocotb.triggers import ClockCycles, RisingEdge
from pyuvm import uvm_component, uvm_env, uvm_subscriber, uvm_test

from golden import noc as golden
from tb.common.clock import start_clock
from tb.common.coverage import Coverage
from tb.common.stream import StreamAgent, StreamPort, StreamSequence, never, randomly
from tb.mesh.traffic import (
    CONFIG,
    ENDPOINTS,
    FLIT,
    SEED,
    TB,
    TESTPLAN,
    check,
    check_latency,
    flit,
    goal,
    random_traffic,
    receivers,
)


@cocotb.test()
async def test_every_pair(dut):
    """Each source to each endpoint on each class, one at a time: content, and latency to the cycle."""
    tb = TB(dut)
    await tb.reset()
    sent, latencies = [], {}
    for (s, source), (t, target) in itertools.product(enumerate(ENDPOINTS), enumerate(ENDPOINTS)):
        traffic = (s + t) % CONFIG.classes
        value = flit(goal(target[:2], port=target[2]), (s * 16 + t) * 0x1234567)
        start = tb.now()
        tb.sources[s, traffic].put(value)
        while len(tb.received) == len(sent):
            await RisingEdge(dut.clk)
        sent.append((s, traffic, value))
        hops = abs(source[0] - target[0]) + abs(source[1] - target[1])
        taken = tb.received[-1][2] - start
        # The source drives at once but the first edge at which it can be taken is one cycle on.
        assert taken == golden.latency(hops) + 2, f"{source} to {target}: {taken} cycles"  # the source starts 2 later
        latencies.setdefault(hops, []).append(taken)
    check(sent, tb.received)
    Path("latencies.json").write_text(json.dumps(latencies))  # for `make bench-noc`


@cocotb.test()
async def test_multicast_rectangles(dut):
    """Every rectangle from every source: each target once, nobody else."""
    tb = TB(dut)
    await tb.reset()
    sent, count = [], 0
    corners = list(itertools.product(range(CONFIG.columns), range(CONFIG.rows)))
    for s in range(len(ENDPOINTS)):
        for first, last in itertools.product(corners, corners):
            if first[0] > last[0] or first[1] > last[1]:
                continue
            traffic = len(sent) % CONFIG.classes
            value = flit(goal(first, last), len(sent) * 7919 + 1, last=int(first == last or len(sent) & 1))
            tb.sources[s, traffic].put(value)
            sent.append((s, traffic, value))
            count += len(receivers(value["header"]["destination"]))
    await tb.drain(count, 20000)
    check(sent, tb.received)


@cocotb.test()
async def test_multicast_lists(dut):
    """Random sets of nodes, where the configuration has lists."""
    if not CONFIG.lists:
        return
    tb = TB(dut)
    await tb.reset()
    generator, sent, count = random.Random(SEED), [], 0
    for s in range(len(ENDPOINTS)):
        for _ in range(30):
            value = flit(goal((0, 0), nodes=generator.randrange(1, 1 << CONFIG.nodes)), len(sent) + 5)
            tb.sources[s, 0].put(value)
            sent.append((s, 0, value))
            count += len(receivers(value["header"]["destination"]))
    await tb.drain(count, 20000)
    check(sent, tb.received)


@cocotb.test()
async def test_refused(dut):
    """What nobody can receive is taken, dropped and reported, and the flits around it pass."""
    tb = TB(dut)
    await tb.reset()
    good = goal((1, 1))
    bad = [goal((1, 0), (0, 0)), goal((1, 1), (1, 0))]
    if CONFIG.port_width and any(count > 1 for _, count in CONFIG.local_ports):
        node, _ = CONFIG.local_ports[0]
        elsewhere = (0, 0) if node != (0, 0) else (1, 1)
        bad += [goal(elsewhere, port=1), goal((0, 0), (1, 1), port=1)]
    if 1 << CONFIG.x_width > CONFIG.columns:
        bad.append(goal((CONFIG.columns, 0)))
    refused = 0
    for destination in bad:
        for value in (flit(good, 1), flit(destination, 2), flit(good, 3)):
            tb.sources[0, 0].put(value)
    for _ in range(20 * len(bad)):
        await RisingEdge(dut.clk)
        refused += int(dut.refused__0.value) & 1
    assert refused == len(bad)
    await tb.drain(2 * len(bad))
    check([(0, 0, flit(good, n)) for _ in bad for n in (1, 3)], tb.received)


@cocotb.test()
async def test_classes_do_not_block(dut):
    """A class whose receivers never take anything does not stop the others."""
    if CONFIG.classes == 1:
        return
    tb = TB(dut)
    await tb.reset()
    for index in range(len(ENDPOINTS)):
        tb.sinks[index, 0].pause = itertools.repeat(True)
    await RisingEdge(dut.clk)
    sent = []
    for s, (t, target) in itertools.product(range(len(ENDPOINTS)), enumerate(ENDPOINTS)):
        for n in range(4):
            tb.sources[s, 0].put(flit(goal(target[:2], port=target[2]), n))
        sent.append((s, 1, flit(goal(target[:2], port=target[2]), 100 * s + t)))
        tb.sources[s, 1].put(sent[-1][2])
    await tb.drain(len(sent))
    check(sent, tb.received)


@cocotb.test()
@cocotb.parametrize(idle=[0.0, 0.6], pause=[0.0, 0.7])
async def test_random_mix(dut, idle, pause):
    """Unicast packets and multicast from everywhere at once, with random stalls on every port."""
    tb = TB(dut, idle, pause)
    await tb.reset()
    sent = random_traffic(random.Random(SEED), 200)
    tb.send(sent)
    await tb.drain(sum(len(receivers(value["header"]["destination"])) for *_, value in sent), 20000)
    check(sent, tb.received)
    # Packets of several flits arrive whole: no flit of another packet of the class in between.
    inside = {}
    for target, traffic, _, value in tb.received:
        header = value["header"]
        if len(receivers(header["destination"])) > 1:
            continue
        flow = str(header["source"])
        assert inside.get((target, traffic), flow) == flow, "a packet was broken up"
        inside.pop((target, traffic), None)
        if not header["last"]:
            inside[target, traffic] = flow


@cocotb.test()
@cocotb.parametrize(rate=[0.01, 0.03])
async def test_latency(dut, rate):
    """Light random traffic: whom nobody stops is there to the cycle, whom others stop soon after."""
    tb = TB(dut)
    await tb.reset()
    sent = random_traffic(random.Random(SEED + 4), 300)
    tb.send(sent, rate)
    await tb.drain(sum(len(receivers(value["header"]["destination"])) for *_, value in sent), 20000)
    waits, bounds = check_latency(sent, tb.offered, tb.entered, check(sent, tb.received))
    assert bounds.count(0) > len(sent) / 3, "hardly a flit was alone"
    close = sum(0 < wait >= bound - 3 for wait, bound in zip(waits, bounds, strict=True))
    assert close > 3, "few flits waited for others, or the bounds are far from what they waited"


@cocotb.test()
async def test_no_cycle_is_lost(dut):
    """Everybody sends to one endpoint, packets of one to five flits: from the first to the last, one in each cycle."""
    tb = TB(dut)
    await tb.reset()
    sent, choice = [], random.Random(SEED)
    for x, y, port in ENDPOINTS:
        begin, last = len(sent), len(sent)
        for source, traffic, length in itertools.product(range(len(ENDPOINTS)), range(CONFIG.classes), (1, 5, 2)):
            values = [
                flit(goal((x, y), port=port), choice.getrandbits(24), last=n == length - 1) for n in range(length)
            ]
            sent += [(source, traffic, value) for value in values]
        tb.send(sent[begin:])
        await tb.drain(len(sent))
        times = sorted(when for *_, when, _ in tb.received[last:])
        cycles = times[-1] - times[0] + 1
        # With several lanes a packet waits where flits of its flow stand in another lane.
        limit = len(times) if CONFIG.channels == 1 else 1.1 * len(times)
        assert cycles <= limit, f"{len(times)} flits in {cycles} cycles at {x, y, port}"
    check(sent, tb.received)


def counted(dut, node, port):
    """(flits, stalls) of an output of a router."""
    bits = int(getattr(dut, f"counters__{node}__{port}").value)
    return bits & 0xFFFFFFFF, bits >> 32


@cocotb.test()
async def test_counters(dut):
    """Flits of every link and endpoint as the golden trees have them; no stall without one, stalls behind a pause."""
    if not CONFIG.counters:
        return
    tb = TB(dut)
    await tb.reset()
    sent = random_traffic(random.Random(SEED + 3), 120)
    links, ejected, arrivals = defaultdict(int), defaultdict(int), 0
    for source, traffic, value in sent:
        tb.sources[source, traffic].put(value)
        goal_fields = value["header"]["destination"]
        nodes = golden.targets(goal_fields, CONFIG.columns, CONFIG.rows)
        for start, end in golden.tree(ENDPOINTS[source][:2], nodes):
            step = (end[0] - start[0], end[1] - start[1])
            links[start, {(1, 0): 0, (-1, 0): 1, (0, 1): 2, (0, -1): 3}[step]] += 1
        for node in nodes:
            ejected[node, 4 + goal_fields["port"]] += 1
        arrivals += len(nodes)
    await tb.drain(arrivals, 20000)
    for number, (x, y, _) in enumerate(ENDPOINTS[: CONFIG.nodes]):
        for port in range(CONFIG.router_ports):
            expected = (links | ejected).get(((x, y), port), 0)
            assert counted(dut, number, port)[0] == expected, f"node {x, y}, port {port}"
    before = counted(dut, 0, 4)[1]
    await ClockCycles(dut.clk, 50)
    assert counted(dut, 0, 4)[1] == before
    tb.sinks[0, 0].pause = itertools.chain([True] * 200, never())
    for n in range(20):
        tb.sources[1, 0].put(flit(goal((0, 0)), n))
    await tb.drain(arrivals + 20)
    assert 100 < counted(dut, 0, 4)[1] - before <= 200


class FlowScoreboard(uvm_component):
    """Compares what arrived with what was sent, at the end of the run; fails when that is nothing."""

    def build_phase(self):
        self.sent, self.received = [], []

    def check_phase(self):
        assert self.sent, "nothing was compared"
        check(self.sent, self.received)


class _Tap(uvm_subscriber):
    """Hands what a monitor saw to the scoreboard, with the place where it was seen."""

    def __init__(self, name, parent, report):
        super().__init__(name, parent)
        self._report = report

    def write(self, value):
        self._report(value)


class MeshEnvironment(uvm_env):
    """An agent on every stream of the mesh, one scoreboard."""

    def build_phase(self):
        dut = cocotb.top
        self.coverage = Coverage(TESTPLAN)
        self.scoreboard = FlowScoreboard("scoreboard", self)
        self.agents, self.taps = {}, {}
        for index, traffic in itertools.product(range(len(ENDPOINTS)), range(CONFIG.classes)):
            for role, name in (("source", "send"), ("sink", "receive")):
                port = StreamPort(dut, f"{name}__{index}__{traffic}", FLIT)
                hook = randomly(0.3, SEED * 100 + len(self.agents))
                key = (name, index, traffic)
                self.agents[key] = StreamAgent("_".join(map(str, key)), self, port, role, hook, dut.rst)
                self.taps[key] = _Tap(
                    "tap_" + "_".join(map(str, key)), self, lambda value, key=key: self.seen(key, value)
                )

    def connect_phase(self):
        for key, agent in self.agents.items():
            agent.analysis_port.connect(self.taps[key].analysis_export)

    def seen(self, key, value):
        name, index, traffic = key
        if name == "receive":
            self.scoreboard.received.append((index, traffic, 0, value))
            return
        count = len(receivers(value["header"]["destination"]))
        self.coverage.hit("targets", "one" if count == 1 else "all" if count == CONFIG.nodes else "several")
        self.coverage.hit("packet", "last" if value["header"]["last"] else "body")


@pyuvm.test()
class test_environment(uvm_test):
    """The random mix through the pyuvm agents; every kind of destination and packet seen."""

    corrupt = 0

    def build_phase(self):
        self.environment = MeshEnvironment("environment", self)

    async def run_phase(self):
        self.raise_objection()
        dut, environment = cocotb.top, self.environment
        dut.rst.value = 1
        start_clock(dut.clk)
        await ClockCycles(dut.clk, 2)
        dut.rst.value = 0
        whole = (CONFIG.columns - 1, CONFIG.rows - 1)
        sent = random_traffic(random.Random(SEED + 1), 120) + [(0, 0, flit(goal((0, 0), whole), 77))]
        streams = defaultdict(list)
        for index, (source, traffic, value) in enumerate(sent):
            streams[source, traffic].append(value)
            wrong = value | {"payload": value["payload"] ^ (self.corrupt if index == 60 else 0)}
            environment.scoreboard.sent.append((source, traffic, wrong))
        runs = [
            cocotb.start_soon(StreamSequence(values).start(environment.agents["send", *where].sequencer))
            for where, values in streams.items()
        ]
        for run in runs:
            await run
        await ClockCycles(dut.clk, 400)
        self.drop_objection()

    def check_phase(self):
        holes = self.environment.coverage.holes()
        assert self.corrupt or not holes, f"never seen: {holes}"


@pyuvm.test(expect_error=AssertionError)
class test_wrong_expectation_fails(test_environment):
    """One expected payload is wrong: the scoreboard has to notice."""

    corrupt = 1
