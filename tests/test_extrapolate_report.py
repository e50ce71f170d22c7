"""Scenarios, the published record beside them, and the command line, from a summary with made-up cycles."""

import copy
import json
import subprocess
import sys

import pytest
from rich.console import Console
from sample_summary import fitted

from scripts import published as record
from scripts.extrapolate import chips, explore, extrapolate, published_rows, published_tables, render
from scripts.extrapolate.chips import TileShape
from scripts.extrapolate.cycles import work
from scripts.extrapolate.scenarios import measured, resized
from scripts.extrapolate.toml_object import DescriptionError
from scripts.report.summary import check

TILE = TileShape(8, 4, 8)


@pytest.fixture
def summary():
    return fitted(TILE)


def quantities(scenario):
    return {q["name"]: q for q in scenario["quantities"]}


def test_scenarios_follow_the_summarys_schema(summary):
    summary["extrapolation"] = extrapolate(summary)
    check(summary)
    assert [s["model"] for s in summary["extrapolation"]] == [
        "SmolLM2-135M",
        "GPT-OSS-120B",
        "DeepSeek-R1",
        "Kimi-K2.5",
    ]


def test_every_wattage_and_rate_has_a_band(summary):
    for scenario in extrapolate(summary):
        for q in scenario["quantities"]:
            if q["kind"] == "derived" and q["unit"] in ("W", "kW", "mJ", "tok/s/user", "s"):
                assert q["low"] <= q["value"] <= q["high"], q
            if q["kind"] in ("measured", "published"):
                assert q.get("source"), q


def test_measured_cycles_drive_the_result(summary):
    """Twice the cycles of every product: about half the rate. A longer wait for the host: only the low end."""
    slow, waits = copy.deepcopy(summary), copy.deepcopy(summary)
    for product in slow["products"]:
        product["cycles"] = 2 * (product["cycles"] - 300) + 300
    for product in waits["products"]:
        product["cycles"] += 5000
        product["stalls"]["activations"] += 5000
    base, half, late = (quantities(extrapolate(s)[0]) for s in (summary, slow, waits))
    name = "decode, products of a layer"
    assert half[name]["value"] == 2 * base[name]["value"] == 2 * late[name]["value"]
    name = "decode, one user"
    assert 0.45 < half[name]["value"] / base[name]["value"] < 0.6
    assert late[name]["value"] == base[name]["value"]
    assert late[name]["low"] < base[name]["low"]


def test_small_chip_does_not_exceed_its_memory(summary):
    found = quantities(extrapolate(summary)[0])
    assert 0 < found["HBM bandwidth used by decode"]["value"] < 100
    assert found["cycle formula, worst error on runs not fitted on"]["value"] < 5


def test_slower_memory_is_not_taken_for_a_slower_formula(summary):
    """The same efficiency on a generation of half the rate: the large models, whose memory is HBM4, do not change."""
    slow = copy.deepcopy(summary)
    slow["config"]["values"]["hbm"]["generation"] = "hbm3d"
    for product in slow["products"]:
        part = work(product["M"], product["K"], product["N"], TILE, 4, rate=0.5)
        product["cycles"] = round(50 + max(part.array, 1.06 * part.stream)) + 300
    base, other = extrapolate(summary), extrapolate(slow)
    for before, after in zip(base[1:], other[1:], strict=True):
        found = [quantities(s)["decode, one user, 8k/1k"]["value"] for s in (before, after)]
        assert found[0] == pytest.approx(found[1], rel=0.02)
    name = "decode, one user"
    assert 0.4 < quantities(other[0])[name]["value"] / quantities(base[0])[name]["value"] < 0.6


def test_the_note_says_what_this_run_computed_outside(summary):
    assert "Outside the RTL in this run: RMSNorm, RoPE, softmax, SwiGLU." in extrapolate(summary)[0]["note"]
    whole = {**summary, "outside_rtl": [{"what": "tokenisation", "where": "golden model"}]}
    note = extrapolate(whole)[0]["note"]
    assert "Outside the RTL in this run: tokenisation." in note
    assert "SwiGLU" not in note


def test_too_few_runs_and_missing_fields_are_one_line(summary):
    with pytest.raises(DescriptionError, match="too few runs"):
        extrapolate({**summary, "products": summary["products"][:1]})
    with pytest.raises(DescriptionError, match="lacks 'mesh'"):
        extrapolate({**summary, "config": {"values": {"tile": {}}}})


def test_published_rows_show_bases_conflicts_and_as_printed():
    rows = published_rows()
    printed = [row for row in rows if row["what"] == "as printed"]
    assert len(printed) == 3
    assert all("not a target" in row["remark"] for row in printed)
    kilowatts = [row for row in rows if row["what"].startswith("tok/s/kW")]
    assert {row["what"] for row in kilowatts} == {"tok/s/kW, chip TDP", "tok/s/kW, all-in utility"}
    gb200 = next(
        r for r in kilowatts if (r["model"], r["system"], r["what"][10:]) == ("GPT-OSS-120B", "GB200", "chip TDP")
    )
    baseline = record.published("jalapeno.gpt_oss_120b.baseline_mixed_tps_per_kw").number
    assert float(gb200["value"].replace(",", "")) == pytest.approx(baseline, abs=1), "the basis that article B used"
    assert {"Jalapeño", "unnamed Blackwell", "GB200", "Rubin"} <= {row["system"] for row in rows}


def test_tables_print(summary):
    console = Console(record=True, width=200, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(render(extrapolate(summary)))
    for table in published_tables():
        console.print(table)
    text = console.export_text()
    for expected in ("Kimi-K2.5 on full-size chip", "tok/s/user", "assumed", "not found", "12,258"):
        assert expected in text


def test_document_has_the_figures_of_the_file():
    document = record.DOCUMENT.read_text()
    assert record.rewritten(document) == document, "run: python -m scripts.published"
    assert record.rewritten(document.replace("53,952.5 |", "53,952.6 |")) == document
    with pytest.raises(ValueError, match="has no line"):
        record.rewritten("nothing")


def test_exploring_sizes(summary):
    """A domain that cannot hold the model says so; more chips are never slower; many combinations reach the record."""
    from scripts.extrapolate.cycles import fit

    points = explore.explore(chips.load("full_size"), fit(measured(summary)[1]))
    one = next(p for p in points if p.chip.name.startswith("6 stacks, 1 chips"))
    assert one.users["deepseek_r1"] is None
    assert one.users["gpt_oss_120b"]
    assert not one.reaches_all
    assert 5 < sum(p.reaches_all for p in points) < len(points)
    line = [
        p.users["kimi_k2_5"][0]
        for p in points
        if p.chip.name.startswith("8 stacks") and p.chip.name.endswith("1 GHz, links 400 ns") and p.users["kimi_k2_5"]
    ]
    assert line == sorted(line)
    Console(file=open("/dev/null", "w")).print(explore.table(points))  # noqa: SIM115


def test_resized_domain_keeps_each_expert_on_a_chip():
    chip = resized(chips.load("full_size"), 4)
    assert (chip.domain.chips, chip.domain.expert_groups) == (4, 4)


def test_command_line(summary, tmp_path):
    path = tmp_path / "summary.json"
    path.write_text(json.dumps(summary))

    def run(*arguments):
        command = [sys.executable, "-m", "scripts.extrapolate", *arguments]
        return subprocess.run(command, capture_output=True, text=True, cwd=record.DOCUMENT.parent.parent)

    served = run("serve", "--summary", str(path), "--model", "gpt_oss_120b", "--concurrency", "1")
    assert served.returncode == 0, served.stderr
    assert "Serving GPT-OSS-120B" in served.stdout
    missing = run("report", "--summary", str(tmp_path / "absent.json"))
    assert (missing.returncode, missing.stderr.count("\n")) == (2, 1)
    assert "run `make sim` first" in missing.stderr
    unknown = run("report", "--summary", str(path), "--chip", "huge")
    assert (unknown.returncode, unknown.stderr.count("\n")) == (2, 1)
    assert "no such chip" in unknown.stderr
