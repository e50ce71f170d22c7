"""Traffic of the mesh's testbenches: sources and sinks everywhere, random packets, and the comparison."""

import itertools
import os
from collections import defaultdict, deque
from pathlib import Path

import cocotb
from amaranth.hdl import Shape
from cocotb.triggers import ClockCycles, RisingEdge
from cocotb.utils import get_sim_time

from golden import noc as golden
from hw.noc import flit_layout
from tb.common.clock import start_clock
from tb.common.coverage import load_testplan
from tb.common.stream import StreamPort, StreamSink, StreamSource, never, randomly
from tb.mesh import CONFIGS

CONFIG = CONFIGS[os.environ.get("MESH", "mesh_2x2")]
SEED = int(os.environ.get("SERRANO_SEED", "1"))
TESTPLAN = load_testplan(Path(__file__).with_name("testplan.toml"))
FLIT = flit_layout(CONFIG)
ENDPOINTS = CONFIG.endpoints()
PAYLOAD_BITS = Shape.cast(CONFIG.payload).width


def goal(first, last=None, port=0, nodes=0):
    """Fields of a destination: a node, a rectangle from `first` to `last`, or a list (mask `nodes`)."""
    last = last or first
    fields = {"x_first": first[0], "x_last": last[0], "y_first": first[1], "y_last": last[1], "port": port}
    return fields | ({"nodes": nodes, "listed": int(nodes != 0)} if CONFIG.lists else {})


def receivers(destination):
    """Endpoint indices that get a flit for `destination`."""
    nodes = golden.targets(destination, CONFIG.columns, CONFIG.rows)
    return [ENDPOINTS.index((*node, destination["port"])) for node in nodes]


def flit(destination, payload, last=1, kind=0):
    header = {"destination": destination, "kind": kind, "last": last}
    return {"header": header, "payload": payload & ((1 << PAYLOAD_BITS) - 1)}


def number(received):
    """Payload of a received flit as an integer."""
    value = received["payload"]
    return value if isinstance(value, int) else value["address"] | value["data"] << 16


class TB:
    """Sources and sinks on every endpoint and class; `received` has (endpoint, class, time in cycles, flit)."""

    def __init__(self, dut, idle=0.0, pause=0.0, seed=SEED):
        self.dut, self.received = dut, []
        self.sources, self.sinks = {}, {}
        for index, traffic in itertools.product(range(len(ENDPOINTS)), range(CONFIG.classes)):
            hook = 2 * (index * CONFIG.classes + traffic) + seed * 1000
            port = StreamPort(dut, f"send__{index}__{traffic}", FLIT)
            self.sources[index, traffic] = StreamSource(port, randomly(idle, hook) if idle else never())
            self.sinks[index, traffic] = StreamSink(
                StreamPort(dut, f"receive__{index}__{traffic}", FLIT),
                randomly(pause, hook + 1) if pause else never(),
                lambda value, where=(index, traffic): self.received.append((*where, self.now(), value)),
            )

    def now(self):
        return round(get_sim_time("ns"))

    async def reset(self):
        self.dut.rst.value = 1
        start_clock(self.dut.clk)
        await ClockCycles(self.dut.clk, 2)
        self.dut.rst.value = 0
        await RisingEdge(self.dut.clk)
        self.received.clear()  # what an earlier test left behind came out before the reset took hold

    def send(self, sent):
        """Queue `sent` (endpoint, class, flit); `entered` gets the cycle in which the network took each."""
        self.entered = [None] * len(sent)
        for index, (source, traffic, value) in enumerate(sent):
            cocotb.start_soon(self._enter(index, self.sources[source, traffic].put(value)))

    async def _enter(self, index, taken):
        await taken.wait()
        self.entered[index] = self.now()

    async def drain(self, count, limit=3000):
        """Wait for `count` flits, then see that no more come."""
        for _ in range(limit):
            if len(self.received) >= count:
                break
            await RisingEdge(self.dut.clk)
        await ClockCycles(self.dut.clk, 40)
        assert len(self.received) == count, f"{count} flits should have arrived, {len(self.received)} did"


def check(sent, received):
    """Every flit of `sent` (endpoint, class, flit) once at each receiver, in order of each flow, header as sent.

    Returns the last arrival of each.
    """
    flows, expected, arrived = defaultdict(deque), 0, [0] * len(sent)
    for index, (source, traffic, value) in enumerate(sent):
        for target in receivers(value["header"]["destination"]):
            flows[source, traffic, target, str(value["header"]["destination"])].append(index)
            expected += 1
    for target, traffic, when, value in received:
        header = value["header"]
        where = header["source"]
        source = ENDPOINTS.index((where["x"], where["y"], where["port"]))
        flow = flows[source, traffic, target, str(header["destination"])]
        assert flow, f"endpoint {target} got a flit that was not sent to it: {value}"
        index = flow.popleft()
        wanted = sent[index][2]
        assert number(value) == wanted["payload"], f"flow {source}->{target}: wrong order or content"
        assert header["last"] == wanted["header"]["last"] and header["traffic"] == traffic
        arrived[index] = max(arrived[index], when)
    assert expected and not any(flows.values()), "flits are missing, or nothing was compared"
    return arrived


def check_latency(sent, entered, arrived):
    """Where receivers never pause: a flit waits at most a cycle for each step of the flits that were there with it.

    (While it waits, the chain of flits in its way moves by a step a cycle: arbiters are work-conserving, and the
    buffers cover the credits' round trip.)
    """
    steps, distance = [], []
    for source, _, value in sent:
        nodes = golden.targets(value["header"]["destination"], CONFIG.columns, CONFIG.rows)
        here = ENDPOINTS[source][:2]
        steps.append(1 + len(golden.tree(here, nodes)) + len(nodes))
        distance.append(max(abs(x - here[0]) + abs(y - here[1]) for x, y in nodes))
    for index, (begin, end) in enumerate(zip(entered, arrived, strict=True)):
        others = sum(
            step
            for other, step in enumerate(steps)
            if other != index and entered[other] <= end and arrived[other] >= begin
        )
        bound = golden.latency(distance[index]) + 2 + others
        assert end - begin <= bound, f"{sent[index]} took {end - begin} cycles, more than {bound}"


def random_traffic(generator, packets, multicast=0.2):
    """(endpoint, class, flit) in sending order: packets of 1 to 9 flits and single multicast flits."""
    sent = []
    for _ in range(packets):
        source, traffic = generator.randrange(len(ENDPOINTS)), generator.randrange(CONFIG.classes)
        if generator.random() < multicast:
            (x0, x1), (y0, y1) = (sorted(generator.choices(range(n), k=2)) for n in (CONFIG.columns, CONFIG.rows))
            use_list = CONFIG.lists and generator.random() < 0.5
            destination = goal((x0, y0), (x1, y1), nodes=generator.randrange(1, 1 << CONFIG.nodes) if use_list else 0)
            length = 1
        else:
            x, y, port = generator.choice(ENDPOINTS)
            destination, length = goal((x, y), port=port), generator.choice((1, 1, 1, 2, 3, 5, 9))
        for index in range(length):
            value = flit(destination, generator.getrandbits(PAYLOAD_BITS), last=int(index == length - 1))
            sent.append((source, traffic, value))
    return sent
