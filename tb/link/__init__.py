"""Testbenches of the chip-to-chip link."""

from scripts.simulator import Model, Testbench
from tb.link.bench import LinkBench

SHAPES = {"link_64": (96, 64, 32, 8), "link_16": (40, 16, 8, 3)}  # payload, lanes, window, latency of the lanes


def link_bench(name: str, long: bool = False, environment: dict[str, str] | None = None) -> Testbench:
    shape = SHAPES[name]
    model = Model(
        name=name, component=lambda: LinkBench(*shape), sources=("rtl/noc_channel.sv",), key=repr(shape), optimise="-O1"
    )
    return Testbench(
        name=name, model=model, module="tb.link.test_link", long=long, environment={"LINK": name, **(environment or {})}
    )


TESTBENCHES = [link_bench("link_64"), link_bench("link_16", long=True)]
