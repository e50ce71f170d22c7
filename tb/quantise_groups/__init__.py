"""Testbench of `hw.numerics.quantise_groups` (and with it of `hw.numerics.divide`)."""

from hw.numerics.formats import FormatSet
from hw.numerics.quantise_groups import QuantiseGroups
from scripts.simulator import Model, Testbench

_FORMATS = ["NVFP4", "INT4_BF16", "E4M3_FP32", "Q4_1", "UINT4_ZERO"]
_MODEL = Model(name="quantise_groups", component=lambda: QuantiseGroups(FormatSet(_FORMATS)), key=" ".join(_FORMATS))


def _bench(long: bool) -> Testbench:
    return Testbench(
        name="quantise_groups_long" if long else "quantise_groups",
        model=_MODEL,
        module="tb.quantise_groups.test_quantise_groups",
        long=long,
        environment={"FORMATS": ",".join(_FORMATS), "GROUPS": "200" if long else "3"},
    )


TESTBENCHES = [_bench(long=False), _bench(long=True)]
