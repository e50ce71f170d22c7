"""Figures with ids: what a benchmark measured, the bar it is held to, and how to print it again.

A benchmark returns a list of `Figure`; `record` writes it to `build/bench/<name>.json` together with the commit and
the command that made it, and `newest` reads back the newest figure of every id. README and docs quote these ids.
"""

import dataclasses
import datetime
import json
import operator
import os
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
STORE = Path("build") / "bench"
ID = re.compile(r"[a-z][a-z0-9]*(\.[A-Za-z0-9_+\-]+)+")
COMPARE = {">=": operator.ge, "<=": operator.le, "<": operator.lt, ">": operator.gt, "==": operator.eq}


@dataclasses.dataclass(frozen=True)
class Figure:
    """One measured figure.

    Parameters
    ----------
    id : str
        Dotted name, the same in the issue's table, in README and in docs, such as ``slice.warm_seconds``.
    value : float | int | str | bool | None
        What was measured. ``None`` says that it could not be measured; `how` then says why.
    unit : str
        Unit of the value; empty for a ratio.
    bar : str
        What is asked: ``">= 0.8"``, ``"<= 60"``, ``"== 0"``, or free text. Empty where there is none.
    holds : bool | None
        Whether the bar holds. Worked out when the bar is a comparison with a number and this is left out.
    reference : str
        What the figure is compared with, and where that comes from.
    how : str
        How it was measured: conditions in one line.

    Raises
    ------
    ValueError
        For an id that is not dotted lower-case text.
    """

    id: str
    value: Any
    unit: str = ""
    bar: str = ""
    holds: bool | None = None
    reference: str = ""
    how: str = ""

    def __post_init__(self) -> None:
        if not ID.fullmatch(self.id):
            raise ValueError(f"Figure id must look like 'block.what', not {self.id!r}")
        if isinstance(self.value, np.generic):  # not JSON
            object.__setattr__(self, "value", self.value.item())
        holds = judge(self.value, self.bar) if self.holds is None else bool(self.holds)
        object.__setattr__(self, "holds", holds)


def judge(value: Any, bar: str) -> bool | None:
    """Whether `value` meets a bar such as ``">= 0.8"`` (a unit may follow); None where that cannot be told."""
    match = re.match(r"\s*(>=|<=|==|<|>)\s*(-?[\d.]+(?:e-?\d+)?)", str(bar))
    if not match:
        return None
    if isinstance(value, str) or value is None:
        return False  # a bar that nothing was measured for does not hold
    return bool(COMPARE[match[1]](value, float(match[2])))


def commit(root: Path = ROOT) -> str:
    """Short commit id of the source tree, with ``-dirty`` where it has uncommitted changes; ``unknown`` without git."""
    try:
        return subprocess.run(
            ["git", "describe", "--always", "--dirty", "--exclude=*"],
            cwd=root,
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def command(default: str) -> str:
    """The command line a user would type again: what `make` was called with, else `default`."""
    return os.environ.get("SERRANO_COMMAND") or default


def record(name: str, figures: Iterable[Figure], how_to: str = "", store: Path | None = None) -> Path:
    """Write figures to ``<store>/<name>.json``; ids that this run did not measure keep their earlier record."""
    path = (store or ROOT / STORE) / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    made = {
        "commit": commit(),
        "command": command(how_to or f"make bench-{name}"),
        "made_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
    new = [dataclasses.asdict(figure) | made for figure in figures]
    ids = [entry["id"] for entry in new]
    if len(set(ids)) != len(ids):
        raise ValueError(f"Figure ids must differ within a benchmark, but {sorted(ids)} repeats one")
    old = [entry for entry in _read(path) if entry["id"] not in set(ids)]
    temporary = path.with_suffix(".json.tmp")  # replaced in one step, so that a full disk leaves the old file whole
    temporary.write_text(json.dumps(new + old, indent=1) + "\n")
    temporary.replace(path)
    return path


def newest(store: Path | None = None) -> list[dict[str, Any]]:
    """The newest record of every id in the store, sorted by id."""
    best: dict[str, dict[str, Any]] = {}
    for path in sorted((store or ROOT / STORE).glob("*.json")):
        for entry in _read(path):
            if entry["id"] not in best or entry["made_at"] > best[entry["id"]]["made_at"]:
                best[entry["id"]] = entry | {"benchmark": path.stem}
    return [best[key] for key in sorted(best)]


def show(
    figures: Iterable[Figure | dict[str, Any]], title: str = "", made: bool = False, console: Console | None = None
) -> None:
    """Print figures as a table; with `made`, also the commit and the command of each."""
    table = Table(title=title or None, title_justify="left", header_style="bold", box=box.SIMPLE_HEAD,
                  padding=(0, 1, 0, 0), pad_edge=False)  # fmt: skip
    table.add_column("id", no_wrap=True)
    table.add_column("value", justify="right", overflow="fold")
    for header in ("bar", "holds", "commit", "command") if made else ("bar", "holds", "how"):
        table.add_column(header, overflow="fold")
    for figure in figures:
        entry = dataclasses.asdict(figure) if isinstance(figure, Figure) else figure
        holds = {True: "[green]yes[/]", False: "[red]no[/]", None: ""}[entry["holds"]]
        tail = (entry["commit"], escape(entry["command"])) if made else (escape(entry["how"]),)
        value = f"{text(entry['value'])} {entry['unit']}".strip()
        table.add_row(entry["id"], value, entry["bar"], holds, *tail)
    (console or Console()).print(table)


def markdown(entries: Iterable[dict[str, Any]]) -> str:
    """Records as a Markdown table, for README and docs."""
    lines = ["| id | value | unit | bar | holds | commit | command |", "|---|---|---|---|---|---|---|"]
    for entry in entries:
        holds = {True: "yes", False: "**no**", None: ""}[entry["holds"]]
        cells = (entry["unit"], entry["bar"], holds, entry["commit"], f"`{entry['command']}`")
        lines.append(f"| `{entry['id']}` | {text(entry['value'])} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def text(value: Any) -> str:
    """A value as the tables print it: four significant digits, thousands grouped."""
    if value is None:
        return "not measured"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"
    return str(value)


def _read(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    try:
        entries = json.loads(path.read_text())
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is not JSON ({error}); remove it and run the benchmark again") from None
    return [entry for entry in entries if isinstance(entry, dict) and "id" in entry]
