"""The documentation's links and commands lead somewhere."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
TARGETS = set(re.findall(r"^([a-z][\w-]*)%?:(?!=)", (ROOT / "Makefile").read_text(), re.M))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_make_commands_exist(page: Path) -> None:
    """Every `make ...` in code is a target, and every `make test-<block>` and `make bench-<name>` has its block."""
    for goal in re.findall(r"(?:`|^    )make ([a-z][\w-]*)", page.read_text(), re.M):
        kind, _, name = goal.partition("-")
        if kind == "test" and name:
            assert name in ("", "<block>") or (ROOT / "tb" / name).is_dir(), f"make {goal}"
        elif kind == "bench" and name:
            assert (ROOT / "scripts" / "bench" / f"{name}.py").exists(), f"make {goal}"
        else:
            assert goal.rstrip("-") in {target.rstrip("-") for target in TARGETS}, f"make {goal}"
