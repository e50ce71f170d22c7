"""A proof for all time of the order of attention's work, and mutants that the same proof must refute."""

import types
from pathlib import Path

import pytest
from amaranth.lib import wiring

from hw.vector import leaves
from scripts.formal import attention
from scripts.formal.engine import prove


def mutant(module: types.ModuleType, old: str, new: str) -> types.ModuleType:
    """`module` with one piece of its source replaced."""
    source = Path(module.__file__).read_text()
    assert source.count(old) == 1, f"{old!r} stands {source.count(old)} times in {module.__name__}"
    broken = types.ModuleType(module.__name__)
    exec(compile(source.replace(old, new), module.__file__, "exec"), broken.__dict__)
    return broken


def decided(component: wiring.Component, holds: bool) -> None:
    verdict = prove(component)
    assert verdict.holds is holds, verdict.text
    assert verdict.registers > 0


def test_leaves_come_in_order() -> None:
    decided(attention.LeavesInOrder(), True)


@pytest.mark.parametrize(
    "old, new",
    [
        ("give_values.eq((ahead == 2) |", "give_values.eq((ahead == 3) |"),
        ("number.eq(number + 1)", "number.eq(Mux(item.last, 0, number + 1))"),
    ],
)
def test_other_orders_are_refuted(monkeypatch: pytest.MonkeyPatch, old: str, new: str) -> None:
    monkeypatch.setattr(attention, "leaves", mutant(leaves, old, new))
    decided(attention.LeavesInOrder(), False)
