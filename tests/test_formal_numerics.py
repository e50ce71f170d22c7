"""Proofs of the fused accumulate at reduced width (`scripts/formal/numerics.py`), and one that must be refuted."""

import pytest

from scripts.formal.numerics import MEDIUM, SMALL, WIDER_SUM, Sizes, prove


def test_accumulate_is_correctly_rounded() -> None:
    proof = prove(SMALL, 300)
    assert proof.proven, proof.log


def test_a_fault_is_found() -> None:
    assert prove(SMALL, 300, fault=True).proven is False


@pytest.mark.long
@pytest.mark.parametrize("sizes", [MEDIUM, WIDER_SUM])
def test_accumulate_is_correctly_rounded_at_larger_widths(sizes: Sizes) -> None:
    proof = prove(sizes, 900)
    assert proof.proven, proof.log
