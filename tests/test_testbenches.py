"""Every testbench under tb/, built and run; a failure shows what differs, the seed and the line that reruns it."""

import importlib
import tomllib

import pytest

from scripts import simulator
from scripts.simulator import Testbench

BLOCKS = simulator.discover()
CASES = [
    pytest.param(bench, id=f"{block}-{bench.name}", marks=[pytest.mark.long] if bench.long else [])
    for block, benches in BLOCKS.items()
    for bench in benches
]


@pytest.mark.parametrize("testbench", CASES)
def test_testbench(testbench: Testbench, seed: int) -> None:
    try:
        simulator.check(testbench, seed)
    except simulator.SimulatorError as error:
        pytest.fail(str(error), pytrace=False)


def test_names_of_testbenches_differ() -> None:
    names = [bench.name for benches in BLOCKS.values() for bench in benches]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("block", BLOCKS)
def test_testplan_names_tests_that_exist(block: str) -> None:
    plan = tomllib.loads((simulator.ROOT / "tb" / block / "testplan.toml").read_text())
    modules = {bench.module for bench in importlib.import_module(f"tb.{block}").TESTBENCHES}
    text = "".join((simulator.ROOT / (module.replace(".", "/") + ".py")).read_text() for module in modules)
    points = plan["testpoint"]
    assert points
    for point in points:
        assert point["name"], point
        assert point["description"], point
        for name in point["tests"]:
            assert f"def {name}(" in text or f"class {name}(" in text, f"{point['name']}: there is no test '{name}'"
