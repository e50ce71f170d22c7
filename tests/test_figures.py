"""The store of figures: ids, bars, and the newest record of each."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from scripts import figures
from scripts.figures import Figure


@pytest.mark.parametrize(
    ("value", "bar", "holds"),
    [
        (0.81, ">= 0.8", True), (0.79, ">= 0.8", False), (60, "<= 60 s", True), (60.1, "<= 60 s", False),
        (0, "== 0", True), (1e-9, "< 1e-8", True), (-3, "> -2", False), (True, "== 1", True),
        (None, "<= 60", False), ("14 of 14", "all", None), (5, "", None),
    ],
)  # fmt: skip
def test_bar(value: object, bar: str, holds: bool | None) -> None:
    assert Figure("a.b", value, bar=bar).holds is holds  # type: ignore[arg-type]


def test_bar_can_be_judged_by_the_caller() -> None:
    assert Figure("a.b", "14 of 14", bar="all", holds=True).holds is True


@pytest.mark.parametrize("name", ["", "speed", "Slice.speed", "slice speed", "slice.", ".x"])
def test_bad_id(name: str) -> None:
    with pytest.raises(ValueError, match="Figure id"):
        Figure(name, 1)


def test_numpy_values_become_json(tmp_path: Path) -> None:
    figures.record(
        "x", [Figure("x.a", np.float32(0.5), holds=np.bool_(True)), Figure("x.b", np.int64(3))], store=tmp_path
    )
    entries = json.loads((tmp_path / "x.json").read_text())
    assert [entry["value"] for entry in entries] == [0.5, 3]
    assert entries[0]["holds"] is True


def test_record_has_the_documented_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERRANO_COMMAND", "make bench-x LONG=1")
    figures.record("x", [Figure("x.a", 1, "s", "<= 2", None, "paper", "counted")], store=tmp_path)
    (entry,) = json.loads((tmp_path / "x.json").read_text())
    assert {key: entry[key] for key in ("id", "value", "unit", "bar", "holds", "reference", "how")} == {
        "id": "x.a", "value": 1, "unit": "s", "bar": "<= 2", "holds": True, "reference": "paper", "how": "counted",
    }  # fmt: skip
    assert entry["command"] == "make bench-x LONG=1"
    assert entry["commit"] == figures.commit()


def test_a_shorter_run_keeps_what_it_did_not_measure(tmp_path: Path) -> None:
    figures.record("x", [Figure("x.a", 1), Figure("x.long", 2)], store=tmp_path)
    figures.record("x", [Figure("x.a", 3)], store=tmp_path)
    assert {entry["id"]: entry["value"] for entry in figures.newest(tmp_path)} == {"x.a": 3, "x.long": 2}


def test_newest_of_two_files(tmp_path: Path) -> None:
    for name, value, made_at in (("one", 1, "2026-01-02T00:00:00"), ("two", 2, "2026-01-01T00:00:00")):
        figures.record(name, [Figure("x.a", value)], store=tmp_path)
        path = tmp_path / f"{name}.json"
        entries = [entry | {"made_at": made_at} for entry in json.loads(path.read_text())]
        path.write_text(json.dumps(entries))
    (entry,) = figures.newest(tmp_path)
    assert (entry["value"], entry["benchmark"]) == (1, "one")


def test_repeated_id_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"x\.a"):
        figures.record("x", [Figure("x.a", 1), Figure("x.a", 2)], store=tmp_path)


def test_damaged_store_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("[{")
    with pytest.raises(ValueError, match=r"x\.json is not JSON"):
        figures.newest(tmp_path)


def test_table_shows_commit_and_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERRANO_COMMAND", "make bench-x")
    figures.record("x", [Figure("x.speed", 12345.678, "cycles/s", ">= 10000")], store=tmp_path)
    text = io.StringIO()
    figures.show(figures.newest(tmp_path), made=True, console=Console(file=text, width=160))
    for part in ("x.speed", "12,346", "cycles/s", ">= 10000", "yes", figures.commit(), "make bench-x"):
        assert part in text.getvalue()


def test_markdown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERRANO_COMMAND", "make bench-x")
    figures.record("x", [Figure("x.speed", 0.5, "", ">= 0.8")], store=tmp_path)
    row = figures.markdown(figures.newest(tmp_path)).splitlines()[2]
    assert row == f"| `x.speed` | 0.5 |  | >= 0.8 | **no** | {figures.commit()} | `make bench-x` |"
