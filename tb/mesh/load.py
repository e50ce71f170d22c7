"""A mesh with a traffic generator and checker (rtl/noc_traffic.sv) at every endpoint: for load measurements."""

from __future__ import annotations

from amaranth.hdl import ClockSignal, Instance, Module, ResetSignal, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw.noc import Mesh, MeshConfig
from scripts.simulator import Model, Testbench

PATTERNS = ("uniform", "transpose", "bitcomp", "neighbour", "hotcorners")  # numbers as in rtl/noc_traffic.sv
_COUNTERS = {"flits": 32, "born": 32, "packets": 32, "latency": 48, "errors": 32}


class LoadBench(wiring.Component):
    """Ports as `noc_traffic`; the counters are sums over all nodes."""

    def __init__(self, config: MeshConfig):
        self.config = config
        settings = {"rate": In(17), "length": In(8), "pattern": In(3), "seed": In(32), "measure": In(1)}
        super().__init__(settings | {name: Out(width + 8) for name, width in _COUNTERS.items()})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        m.submodules.mesh = mesh = Mesh(config)
        counts: dict[str, list[Signal]] = {name: [] for name in _COUNTERS}
        for node in range(config.nodes):
            send, receive = mesh.send[node][0], mesh.receive[node][0]
            x, y = Signal(8, name=f"x_{node}"), Signal(8, name=f"y_{node}")
            goal = send.payload.header.destination
            m.d.comb += [goal.x_first.eq(x), goal.x_last.eq(x), goal.y_first.eq(y), goal.y_last.eq(y)]
            m.d.comb += receive.ready.eq(1)
            counters = {name: Signal(width, name=f"{name}_{node}") for name, width in _COUNTERS.items()}
            for name, signal in counters.items():
                counts[name].append(signal)
            m.submodules[f"traffic_{node}"] = Instance(
                "noc_traffic", p_COLUMNS=config.columns, p_ROWS=config.rows, p_NODE=node,
                i_clk=ClockSignal(), i_rst=ResetSignal(), i_rate=self.rate, i_length=self.length,
                i_pattern=self.pattern, i_seed=self.seed, i_measure=self.measure,
                o_send_valid=send.valid, i_send_ready=send.ready, o_send_x=x, o_send_y=y,
                o_send_last=send.payload.header.last, o_send_data=send.payload.payload,
                i_receive_valid=receive.valid, i_receive_last=receive.payload.header.last,
                i_receive_data=receive.payload.payload, **{f"o_{name}": s for name, s in counters.items()},
            )  # fmt: skip
        for name, signals in counts.items():
            m.d.comb += getattr(self, name).eq(sum(signals))
        return m


def load_bench(side: int, channels: int, depth: int, environment: dict[str, str] | None = None) -> Testbench:
    """Testbench of a `side` x `side` mesh with one class; the points to measure come in the environment as POINTS."""
    config = MeshConfig(side, side, payload=31, classes=1, channels=channels, depth=depth)
    model = Model(
        name=f"mesh_load_{side}x{side}_{channels}_{depth}", component=lambda: LoadBench(config),
        sources=("rtl/noc_traffic.sv",), key=repr(config), optimise="-O1",
    )  # fmt: skip
    return Testbench(name=model.name, model=model, module="tb.mesh.test_load", long=True, environment=environment or {})
