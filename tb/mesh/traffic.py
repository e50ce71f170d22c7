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

    def send(self, sent, rate=1.0):
        """Queue `sent` (endpoint, class, flit); every stream begins a packet in a share `rate` of the cycles.

        `offered` and `entered` get the cycles in which a source had each flit and the network took it.
        """
        self.offered, self.entered, streams = [0] * len(sent), [0] * len(sent), defaultdict(list)
        for index, (source, traffic, value) in enumerate(sent):
            streams[source, traffic].append((index, value))
        for number, (where, flits) in enumerate(streams.items()):
            cocotb.start_soon(self._feed(where, flits, randomly(1 - rate, SEED * 100 + number)))

    async def _feed(self, where, flits, waits):
        for index, value in flits:
            self.offered[index] = self.now()
            cocotb.start_soon(self._enter(index, self.sources[where].put(value)))
            while value["header"]["last"] and next(waits):
                await RisingEdge(self.dut.clk)

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

    Returns when each arrived, by endpoint.
    """
    flows, expected, arrived = defaultdict(deque), 0, [{} for _ in sent]
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
        arrived[index][target] = when
    assert expected and not any(flows.values()), "flits are missing, or nothing was compared"
    return arrived


def way(source, destination):
    """What a flit takes up for a cycle each, and how long after it entered when nothing stops it: links, ways out."""
    here, port = ENDPOINTS[source][:2], destination["port"]
    nodes = golden.targets(destination, CONFIG.columns, CONFIG.rows)
    hops = {node: abs(node[0] - here[0]) + abs(node[1] - here[1]) for link in golden.tree(here, nodes) for node in link}
    found = {link: 2 * hops[link[1]] for link in golden.tree(here, nodes)}
    return found | {("out", ENDPOINTS.index((*node, port))): golden.latency(hops.get(node, 0)) for node in nodes}


def _join(parents, spans):
    """Flits whose spans (first cycle, last cycle, flit) on one resource overlap into one jam."""
    last, whose = -1, None
    for begin, end, index in sorted(spans):
        if begin <= last:
            parents[_jam(parents, index)] = _jam(parents, whose)
        if end > last:
            last, whose = end, index


def _jam(parents, index):
    while parents[index] != index:
        index = parents[index]
    return index


def check_latency(sent, offered, entered, arrived):
    """Where receivers never pause: a flit waits at most a cycle for each other one (and target of it) in its jam.

    Flits are in one jam when they wanted a link, or a way in or out, in the same cycle, or one of them while another
    waited for it, or when one stood in the buffer behind a link when another came; and so on. Who is behind in the same
    stream is in nobody's way. (Without waste, a packet is held up once by each other: Mansour and Patt-Shamir, Greedy
    packet scheduling on shortest paths, 1993.) So a flit that met nobody has to have the latency of an empty mesh, to
    the cycle. Returns what each flit waited, and could have.
    """
    ways = [way(source, value["header"]["destination"]) for source, _, value in sent]
    waits = [
        max(end - begin - ways[index]["out", target] for target, end in ends.items())
        for index, (begin, ends) in enumerate(zip(entered, arrived, strict=True))
    ]
    spans, parents, before = defaultdict(list), list(range(len(sent))), {}
    for index, (source, traffic, _) in enumerate(sent):
        ready = max(offered[index], before.get((source, traffic), 0) + 1)
        before[source, traffic] = begin = entered[index]
        spans["in", source].append((min(ready, begin), begin, index))
        for resource, after in ways[index].items():
            spans[resource].append((begin + after, begin + after + waits[index], index))
        for link, after in ((("in", source), 0), *ways[index].items()):
            spans["behind", link, traffic].append((begin + after + 1, begin + after + 1 + waits[index], index))
    for users in spans.values():
        _join(parents, users)
    jams, bounds = defaultdict(list), []
    for index in range(len(sent)):
        jams[_jam(parents, index)].append(index)
    for index, (source, traffic, value) in enumerate(sent):
        others = [n for n in jams[_jam(parents, index)] if sent[n][:2] != (source, traffic) or n < index]
        bounds.append(sum(len(arrived[n]) for n in others))
        assert 0 <= waits[index] <= bounds[-1], f"{value} waited {waits[index]} cycles for {bounds[-1]} others"
    return waits, bounds


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
