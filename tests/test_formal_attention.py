"""A proof for all time of the order of attention's work, and mutants that the same proof must refute."""

import pytest
from proofs import mutant, proven, refuted

from hw.vector import leaves
from scripts.formal import attention


def test_leaves_come_in_order() -> None:
    proven(attention.LeavesInOrder())


@pytest.mark.parametrize(
    "old, new",
    [
        ("give_values.eq((ahead == 2) |", "give_values.eq((ahead == 3) |"),
        ("number.eq(number + 1)", "number.eq(Mux(item.last, 0, number + 1))"),
    ],
)
def test_other_orders_are_refuted(monkeypatch: pytest.MonkeyPatch, old: str, new: str) -> None:
    monkeypatch.setattr(attention, "leaves", mutant(leaves, old, new))
    refuted(attention.LeavesInOrder())
