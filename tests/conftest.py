"""Options of the test suite: `--long` runs what takes minutes, `--seed` seeds everything random."""

import os
import random
import zlib
from collections.abc import Generator

import numpy as np
import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="also run the tests that take minutes")
    parser.addoption("--seed", type=int, default=1, help="seed of everything random (default 1)")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the long tests, and start the testbenches first: their builds are what two workers can overlap."""
    if not config.getoption("--long"):
        long = [item for item in items if item.get_closest_marker("long")]
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]
    items.sort(key=lambda item: "test_testbenches" not in item.nodeid)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Where the kernel gives no namespaces (a chroot, some containers) hostile circuits cannot be judged: skip, say so.

    `make verify` and `make explore` refuse to run there. SERRANO_REQUIRE_SANDBOX makes it a failure, as in .ci/run.
    """
    try:
        return (yield)
    except Exception as error:
        if type(error).__name__ == "SandboxUnavailable" and not os.environ.get("SERRANO_REQUIRE_SANDBOX"):
            pytest.skip(f"no sandbox on this machine: {error}")
        raise


@pytest.fixture(scope="session")
def seed(request: pytest.FixtureRequest) -> int:
    """The seed of the run: print it with any failure."""
    return request.config.getoption("--seed")


@pytest.fixture
def rng(seed: int, request: pytest.FixtureRequest) -> np.random.Generator:
    """A generator of its own for each test, so that running one alone repeats what it did in the suite."""
    return np.random.default_rng([seed, zlib.crc32(request.node.name.encode())])


@pytest.fixture(autouse=True)
def seeded(seed: int) -> None:
    """The global generators start every test alike."""
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
