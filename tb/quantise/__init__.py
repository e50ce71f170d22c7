"""Testbench of `hw.numerics.quantise`."""

from hw.numerics.formats import FormatSet
from scripts.simulator import Model, Testbench
from tb.quantise.bench import QuantiseBench

_FORMATS = ["MXINT8", "E4M3", "E5M2", "E2M3", "E3M2", "E2M1", "INT4"]
_MODEL = Model(
    name="quantise",
    component=lambda: QuantiseBench(FormatSet(_FORMATS)),
    sources=("tb/dot/vector_source.sv",),
    key=" ".join(_FORMATS),
)


def _bench(long: bool) -> Testbench:
    return Testbench(
        name="quantise_long" if long else "quantise",
        model=_MODEL,
        module="tb.quantise.test_quantise",
        long=long,
        environment={"FORMATS": ",".join(_FORMATS), "LONG": "1" if long else ""},
    )


TESTBENCHES = [_bench(long=False), _bench(long=True)]
