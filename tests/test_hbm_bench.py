"""The HBM benchmark judges what it measured against the bars, and hides nothing."""

import numpy as np
import pytest

from golden.hbm_traces import TRACES
from scripts.bench import hbm
from scripts.figures import judge


@pytest.mark.parametrize("name", hbm.PEERS)
@pytest.mark.parametrize("missing, holds", [(0.0, True), (0.04, False), (0.6, False)])
def test_a_figure_below_the_peer_does_not_hold(
    monkeypatch: pytest.MonkeyPatch, name: str, missing: float, holds: bool
) -> None:
    """Neither rounding nor a bound of the standard excuses a figure that a peer has reached."""
    floors = dict(zip(TRACES, hbm.PEERS[name][1], strict=True))

    def measured(_: str, workload: str) -> hbm.Run:
        return hbm.Run((floors[workload] - missing) / 100, np.zeros(1), 0, 1.0, {})

    monkeypatch.setattr(hbm, "saturated", measured)
    assert [figure.holds for figure in hbm._saturation(name)] == [holds] * len(TRACES)


def test_the_address_map_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hbm, "saturated", lambda *_: hbm.Run(1.0, np.zeros(1), 0, 1.0, {}))
    assert all("address map c2 g1 c2 g c b r s" in figure.how for figure in hbm._saturation("hbm3d"))
    assert all("default address map" in figure.how for figure in hbm._saturation("hbm2a"))


@pytest.mark.parametrize(
    "name, workload, p99, holds",
    [
        ("hbm2c_pb", "rand", 101.0, True), ("hbm2c_pb", "rand", 101.1, False), ("hbm2c_pb", "seq", 102.0, False),
        ("hbm3d_pb", "rand", 174.1, True), ("hbm3d_pb", "rand", 174.2, False), ("hbm3d_pb", "kv256", 170.0, False),
        ("hbm4_pb", "rand", 500.0, None),
    ],
)  # fmt: skip
def test_p99_is_held_to_the_peer_or_to_the_standard(
    monkeypatch: pytest.MonkeyPatch, name: str, workload: str, p99: float, holds: bool | None
) -> None:
    """A third of the peer's p99; 98 % of the standard's bound where that is above it; the printed bar says which."""
    monkeypatch.setattr(hbm, "unhurried", lambda *_: hbm.Run(0.02, np.full(100, p99), 0, 1.0, {}))
    figure = next(f for f in hbm._low_load(name) if f.id == f"hbm.{name}.{workload}.p99_low_load")
    assert figure.holds is holds
    assert figure.holds is judge(figure.value, figure.bar)


@pytest.mark.parametrize(
    "accepted, reads, returned, written, lost",
    [
        (10, 6, 6, 4, 0), (9, 6, 7, 3, 2), (11, 6, 5, 5, 2), (10, 6, 7, 4, 1), (8, 6, 6, 2, 2), (10, 6, 6, 3, 1),
        (10, 6, 5, 5, 2),
    ],
)  # fmt: skip
def test_what_is_lost_is_not_made_up_for(accepted: int, reads: int, returned: int, written: int, lost: int) -> None:
    """An answer too many does not cancel a request that was lost."""
    result = {"accepted": accepted, "reads": reads, "returned": returned, "counters": {"writes": written}}
    assert hbm.lost_requests(10, result) == lost
