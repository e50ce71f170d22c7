"""Proofs for all time of the network's parts, and mutants that the same proofs must refute."""

import pytest
from proofs import mutant, proven, refuted

from hw.noc import MeshConfig, arbiter, edge, router
from hw.noc.axi import order
from hw.noc.route import legal
from scripts.formal import noc

SMALL = MeshConfig(2, 2, payload=2, classes=1, depth=2)


@pytest.mark.parametrize("size", [2, 3, 5])
def test_arbiter_is_fair(size: int) -> None:
    proven(noc.ArbiterFairness(size))


def test_unfair_arbiter_is_refuted() -> None:
    refuted(noc.ArbiterFairness(3, mutant(arbiter, "yields.eq(others)", "yields.eq(yields)").Arbiter))


@pytest.mark.parametrize("size, limit", [(2, 1), (3, 3)])
def test_urgent_requests_have_a_limit(size: int, limit: int) -> None:
    proven(noc.UrgentLimit(size, limit))


@pytest.mark.parametrize("classes, channels, depth", [(1, 1, 2), (2, 1, 4), (1, 2, 3)])
def test_credits_are_bounded(classes: int, channels: int, depth: int) -> None:
    proven(noc.ChannelCredits(MeshConfig(2, 2, payload=1, classes=classes, channels=channels, depth=depth)))


def test_ignored_credit_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noc, "OutputPort", mutant(router, "self.room.eq(credits != 0)", "self.room.eq(1)").OutputPort)
    refuted(noc.ChannelCredits(MeshConfig(2, 2, payload=1, classes=1, depth=2)))


@pytest.mark.parametrize("size, id_width", [(2, 1), (4, 2)])
def test_transactions_keep_the_order_of_their_id(size: int, id_width: int) -> None:
    proven(noc.IdOrdering(size, id_width))


@pytest.mark.parametrize(
    "old, new",
    [("before.eq(same & ~self.close)", "before.eq(0)"), ("before.eq(before & ~self.close)", "before.eq(before)")],
    ids=["passes", "never_goes_on"],
)
def test_broken_order_is_refuted(old: str, new: str) -> None:
    refuted(noc.IdOrdering(3, 1, mutant(order, old, new).IdOrder))


def test_edge_credits_are_bounded() -> None:
    proven(noc.EdgeCredits(SMALL))


@pytest.mark.parametrize(
    "old, new",
    [
        ("buffer.valid & (places != 0)", "buffer.valid"),
        ("payer.grant[index] & pays, 0, owed)", "payer.grant[index] & pays, owed, owed)"),
        ("buffer.valid & (room != 0)", "buffer.valid"),
    ],
    ids=["no_place", "paid_twice", "no_credit"],
)
def test_broken_edge_is_refuted(old: str, new: str) -> None:
    refuted(noc.EdgeCredits(SMALL, channels=mutant(edge, old, new).EdgeChannels))


@pytest.mark.long
def test_edge_credits_come_back() -> None:
    proven(noc.EdgeReturns(SMALL))


@pytest.mark.parametrize(
    "old, new",
    [
        ("payer.grant[index] & pays, 0, owed) + left[index]", "payer.grant[index] & pays, 0, owed + left[index])"),
        ("places + paid - popped", "places + Mux(popped, 0, paid) - popped"),
        ("queue.i.valid.eq(goes | many.any())", "queue.i.valid.eq(goes)"),
    ],
    ids=["emptied_while_paid", "paid_while_sent", "never_alone"],
)
def test_edge_that_loses_credits_is_refuted(old: str, new: str) -> None:
    refuted(noc.EdgeReturns(SMALL, channels=mutant(edge, old, new).EdgeChannels))


PAIRS = [(arrival, output) for arrival in range(5) for output in range(5) if legal(arrival, output)]


@pytest.mark.parametrize(
    "arrival, output",
    [pytest.param(*pair, marks=[] if pair in ((1, 0), (4, 4)) else [pytest.mark.long]) for pair in PAIRS],
)
def test_router_keeps_every_flow(arrival: int, output: int) -> None:
    """Each flit of a flow once and in order through a router, multicast included."""
    node = (1 if output == 1 or arrival == 0 else 0, 1 if output == 3 or arrival == 2 else 0)
    proven(noc.RouterFlow(SMALL, arrival, output, node))


@pytest.mark.parametrize(
    "old, new",
    [
        ("Mux(buffer.pop, 0, left | self.taken[channel])", "0"),
        ("((waiting & ~self.taken[channel]) == 0)", "(waiting & self.taken[channel]).any()"),
    ],
    ids=["doubles", "loses"],
)
def test_broken_multicast_is_refuted(old: str, new: str) -> None:
    refuted(noc.RouterFlow(SMALL, 4, 0, (0, 0), mutant(router, old, new).Router))
