"""Figures of the public record, from `published.toml`: by dotted name, with source and trust."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("published.toml")
TAGS = ("read", "derived", "inferred", "recalled", "assumed", "not found")


@dataclass(frozen=True)
class Published:
    """One figure. `extra` has what else the row says (TTFT, TPOT, concurrency of a benchmark row)."""

    name: str
    value: float | str
    unit: str
    source: str
    tag: str
    note: str
    conflict: str
    extra: dict[str, float]

    @property
    def number(self) -> float:
        """The value as a number; ValueError where the record has none."""
        if not isinstance(self.value, (int, float)):
            raise ValueError(f"{self.name} has no number: {self.value or self.tag!r}")
        return float(self.value)


_KEYS = ("value", "unit", "source", "tag", "note", "conflict")


@lru_cache(maxsize=1)
def figures() -> dict[str, Published]:
    """Every figure by its dotted name, in the order of the file. ValueError for a figure without source or tag."""
    tables = tomllib.loads(FILE.read_text())
    sources = tables.pop("sources")
    found: dict[str, Published] = {}

    def walk(prefix: str, table: dict[str, Any]) -> None:
        for key, entry in table.items():
            name = f"{prefix}.{key}" if prefix else key
            if not isinstance(entry, dict):
                raise ValueError(f"{FILE.name}: {name} is not a figure")
            if "value" not in entry:
                walk(name, entry)
                continue
            if entry.get("tag") not in TAGS or not entry.get("source"):
                raise ValueError(f"{FILE.name}: {name} needs a source and a tag of {', '.join(TAGS)}")
            names = [part.strip() for part in str(entry["source"]).replace(";", ",").split(",")]
            source = "; ".join(sources.get(part, part) for part in names)
            extra = {k: v for k, v in entry.items() if k not in _KEYS}
            note, conflict = str(entry.get("note", "")), str(entry.get("conflict", ""))
            found[name] = Published(
                name, entry["value"], entry.get("unit", ""), source, entry["tag"], note, conflict, extra
            )

    walk("", tables)
    return found


def published(name: str) -> Published:
    """The figure of that name; KeyError where there is none."""
    return figures()[name]


DOCUMENT = Path(__file__).parent.parent / "docs" / "published.md"
BEGIN = "<!-- figures: python -m scripts.published -->"
SECTIONS = {
    "jalapeno": "Jalapeño",
    "inferencex": "InferenceX, 8k/1k",
    "gpu": "GPUs",
    "hbm4": "HBM4",
    "energy": "Energy",
    "model": "Models",
}


def markdown() -> str:
    """All figures as Markdown tables, one a section, with source, tag and remark."""
    lines = []
    for prefix, title in SECTIONS.items():
        lines += [f"## {title}", "", "| figure | value | unit | tag | source | remark |", "|---|---|---|---|---|---|"]
        for name, figure in figures().items():
            if name.split(".")[0] != prefix:
                continue
            value = f"{figure.value:,}" if isinstance(figure.value, (int, float)) else figure.value
            extra = ", ".join(f"{key} {number:,}" for key, number in figure.extra.items())
            conflict = f"conflict: {figure.conflict}" if figure.conflict else ""
            remark = "; ".join(part for part in (extra, figure.note, conflict) if part)
            cells = [name.removeprefix(f"{prefix}."), value, figure.unit, figure.tag, figure.source, remark]
            lines.append("| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |")
        lines.append("")
    return "\n".join(lines)


def rewritten(document: str) -> str:
    """The text of docs/published.md with the figures behind its mark made anew."""
    before, mark, _ = document.partition(BEGIN)
    if not mark:
        raise ValueError(f"{DOCUMENT.name} has no line {BEGIN}")
    return f"{before}{BEGIN}\n\n{markdown()}"


if __name__ == "__main__":
    DOCUMENT.write_text(rewritten(DOCUMENT.read_text()))
