"""Proofs for all time of the HBM controller's parts, and mutants that the same proofs must refute."""

import pytest
from proofs import mutant, proven, refuted

from hw.hbm import banks, queue, refresh
from scripts.formal import hbm

QUICK = ("RC", "WTRL", "RFCPB")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.long]) for name in hbm.RULES]
)
def test_no_command_breaks_a_rule(name: str) -> None:
    proven(hbm.BankRule(name))


def test_no_command_to_a_bank_in_the_wrong_state() -> None:
    proven(hbm.BankStates())


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("FAW", 'timer("faw", turn & act.replicate(4), c.faw)', 'timer("faw", turn & act.replicate(4), c.faw - 1)'),
        ("WTRL", "c.wtrl))", "c.wtrl - 1))"),
        ("RFCPB", "rc | rp | rfc | rfc_all", "rc | rp | rfc_all"),
    ],
)
def test_early_commands_are_refuted(name: str, old: str, new: str) -> None:
    refuted(hbm.BankRule(name, mutant(banks, old, new).BankState))


def test_refresh_debt_is_bounded() -> None:
    proven(hbm.RefreshDebt())


def test_forgotten_refresh_is_refuted() -> None:
    refuted(hbm.RefreshDebt(mutant(refresh, "lowest(~done), 0)", "0, 0)").PerBankRefresh))


def test_overdue_requests_are_served_in_time() -> None:
    """The bound is proven, and exact: one clock less is refuted."""
    proven(hbm.OverdueIsServed())
    refuted(hbm.OverdueIsServed(bound=hbm.OverdueIsServed.BOUND - 1))


def test_starvation_is_refuted() -> None:
    """Row hits that may overtake an overdue request keep its bank for as long as they come."""
    broken = mutant(queue, "Mux(self.strict, hit & (~with_head | 1), hit)", "hit")
    refuted(hbm.OverdueIsServed(broken.RequestQueue, bound=3 * hbm.OverdueIsServed.BOUND))


def test_no_request_is_lost() -> None:
    proven(hbm.QueueKeeps())


def test_lost_request_is_refuted() -> None:
    refuted(hbm.QueueKeeps(mutant(queue, "below.eq(leaving - 1)", "below.eq(leaving)").RequestQueue))
