"""The summary's schema, and the report that is made from a summary."""

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from sample_summary import sample

from scripts.report import SummaryError, check, load, show, write_page
from scripts.report.page import render
from scripts.report.summary import SCHEMA

ROOT = Path(__file__).resolve().parent.parent


def broken(**changes: Any) -> dict[str, Any]:
    return sample() | changes


def test_sample_follows_the_schema() -> None:
    assert check(sample())["version"] == 1


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (broken(version=2), "version 2 is not known"),
        (broken(schema="other"), "not a Serrano summary"),
        (broken(layer=-1), "/layer"),
        (broken(colour="red"), "unknown field colour"),
        (broken(products=[]), "/products"),
        (broken(products=[sample()["products"][0] | {"mode": "training"}]), "/products/0/mode"),
        (broken(products=[sample()["products"][0] | {"array_utilisation": 1.2}]), "/products/0/array_utilisation"),
        (broken(figures=[{"id": "x.y"}]), "/figures/0"),
        (broken(extrapolation=[{"model": "m", "chip": "c", "quantities": [
            {"name": "n", "value": 1, "unit": "W", "kind": "guessed"}]}]), "/extrapolation/0/quantities/0/kind"),
        ([], "not a Serrano summary"),
    ],
)  # fmt: skip
def test_what_the_schema_refuses(data: Any, message: str) -> None:
    with pytest.raises(SummaryError, match=re.escape(message)) as refused:
        check(data)
    assert "\n" not in str(refused.value)


def test_a_missing_field_is_named() -> None:
    data = sample()
    del data["products"][3]["cycles"]
    with pytest.raises(SummaryError, match=r"/products/3.*cycles"):
        check(data)


def test_load(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    with pytest.raises(SummaryError, match="missing; run `make sim` first"):
        load(path)
    path.write_text("{")
    with pytest.raises(SummaryError, match="not JSON"):
        load(path)
    path.write_text(json.dumps(sample()))
    assert load(path)["seed"] == 1


def test_every_field_is_documented() -> None:
    text = (ROOT / "docs" / "summary-schema.md").read_text()
    schema = json.loads(SCHEMA.read_text())
    names = set(schema["properties"]) | set(schema["$defs"]["product"]["properties"])
    names |= set(schema["$defs"]["quantity"]["properties"]) | set(schema["$defs"]["figure"]["properties"])
    assert [name for name in sorted(names) if not re.search(rf"\b{name}\b", text)] == []


def printed(summary: dict[str, Any], width: int = 80) -> str:
    text = io.StringIO()
    show(summary, Console(file=text, width=width))
    return text.getvalue()


def test_terminal_report() -> None:
    text = printed(sample())
    for part in ("Sample-1M", "0123abc", "down", "prefill", "14,155,776", "93.0 %", "weights 6.2 %", "19,179 cycles/s",
                 "RMSNorm", "5210 (4168 to 5731)", "assumed", "slice.bit_exact", "PASS 14 of 14"):  # fmt: skip
        assert part in text
    assert max(map(len, text.splitlines())) <= 80


def failed() -> dict[str, Any]:
    data = sample()
    data["passed"] = data["products"][2]["bit_exact"] = False
    data["difference"] = {"product": "decode v", "index": [0, 17], "expected": "0x3f800000", "found": "0x3f800001",
                          "seed": 7, "rerun": "make sim LAYER=3 SEED=7"}  # fmt: skip
    return data


def test_a_difference_is_shown_with_the_line_that_reruns_it(tmp_path: Path) -> None:
    text = printed(check(failed()))  # type: ignore[arg-type]
    page = write_page(check(failed()), tmp_path / "report.html").read_text()
    for part in ("0x3f800000", "0x3f800001", "make sim LAYER=3 SEED=7"):
        assert part in text
        assert part in page
    assert "FAIL 13 of 14" in text
    assert "PASS" not in text


@pytest.fixture(scope="module")
def page() -> str:
    return render(sample())


def test_page_holds_every_figure_and_picture(page: str) -> None:
    for item in sample()["figures"]:
        assert f"<code>{item['id']}</code>" in page
    assert page.count("<svg") == 7  # utilisation, stalls, bandwidth, tok/s, watts, shares, wall time
    for kind in ("measured", "derived", "published", "assumed"):
        assert f'<span class="kind {kind}">{kind}</span>' in page
    assert "Why is the sky &lt;blue&gt;?" in page
    assert not re.search(r"""(?:src|href)=["']https?:|url\(["']?https?:|@import""", page)  # it stands alone


def test_page_of_the_smallest_summary() -> None:
    data = sample() | {"extrapolation": [], "figures": [], "stages": [], "outside_rtl": []}
    data["products"] = data["products"][:1]
    del data["difference"], data["config"]["path"], data["model"]["format"]
    assert "Sample-1M" in render(dict(check(data)))


def test_page_is_the_same_for_the_same_summary(page: str) -> None:
    assert render(sample()) == page
