"""docs/registers.md is what hw/chip/registers.py says."""

from pathlib import Path

from hw.chip.registers import REGISTERS
from scripts.registers import page

DOCS = Path(__file__).parent.parent / "docs" / "registers.md"


def test_the_page_is_generated():
    assert DOCS.read_text() == page(), "docs/registers.md is stale; run: python -m scripts.registers"


def test_offsets_are_words_and_used_once():
    offsets = [register.offset for register in REGISTERS.values()]
    assert len(set(offsets)) == len(offsets)
    assert all(offset % 4 == 0 for offset in offsets)
