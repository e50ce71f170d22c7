"""What the tests of proofs share: a property is proven, and is refuted when the hardware is broken."""

import types
from pathlib import Path

from amaranth.lib import wiring

from scripts.formal.engine import prove


def mutant(module: types.ModuleType, old: str, new: str) -> types.ModuleType:
    """`module` with one piece of its source replaced."""
    source = Path(module.__file__).read_text()
    assert source.count(old) == 1, f"{old!r} stands {source.count(old)} times in {module.__name__}"
    broken = types.ModuleType(f"{module.__name__}_broken")
    broken.__package__ = module.__package__
    exec(compile(source.replace(old, new), module.__file__, "exec"), broken.__dict__)
    return broken


def proven(component: wiring.Component) -> None:
    verdict = prove(component)
    assert verdict.holds is True, verdict.text
    assert verdict.registers > 0


def refuted(component: wiring.Component) -> None:
    verdict = prove(component)
    assert verdict.holds is False, verdict.text
