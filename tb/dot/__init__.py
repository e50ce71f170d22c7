"""Testbench of the block dot: `hw.numerics.decode`, `dot` and `accumulate` as one pipeline."""

from hw.numerics.formats import ElementFormat, FormatSet
from scripts.simulator import Model, Testbench
from tb.dot.bench import DotBench

_SETS = {
    "lean": ["MXINT8"],
    "all": list(ElementFormat.__members__),
}


def _bench(name: str, long: bool = False) -> Testbench:
    formats = _SETS[name]
    model = Model(
        name=f"dot_{name}",
        component=lambda: DotBench(FormatSet(formats)),
        sources=("tb/dot/vector_source.sv",),
        key=" ".join(formats),
        optimise="-O1",
    )
    environment = {"FORMATS": ",".join(formats), "LONG": "1" if long else "", "BLOCKS": "100000" if long else ""}
    suffix = "_long" if long else ""
    return Testbench(
        name=f"dot_{name}{suffix}", model=model, module="tb.dot.test_dot", long=long, environment=environment
    )


TESTBENCHES = [_bench("lean"), _bench("all"), _bench("lean", long=True), _bench("all", long=True)]
