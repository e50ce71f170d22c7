"""Circuits with known faults through the whole of `verify`: verdict, classes, latency, agreement."""

import json
from pathlib import Path

import pytest

from golden import specifications
from scripts.verify.check import Effort, verify
from scripts.verify.verdict import EXIT, Report, Verdict, as_dict, write

HERE = Path(__file__).parent / "verify"


def run(file: str, specification: str, *, top: str = "", map_text: str = "", folder: Path | None = None) -> Report:
    return verify(
        {file: (HERE / file).read_text()}, specification, top, map_text, folder, Effort(random=1 << 20, seconds=20)
    )


def test_corner_of_the_most_negative_operand(tmp_path: Path) -> None:
    report = run("mul_most_negative.v", "mul_s8", folder=tmp_path)
    assert report.verdict == Verdict.CORNER, report.how
    assert [(d.name, d.count) for d in report.differences] == [("most_negative_operand", 2 * 256 - 1 - 2)]
    assert report.checked == 1 << 16
    assert "$var" in Path(report.waveform).read_text()
    assert {"Verilator", "CXXRTL"} <= set(report.simulators)
    write(report, specifications.find("mul_s8"), tmp_path)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["exit_code"] == 3 == EXIT[Verdict.CORNER]
    assert summary["counterexample"]["operands"]["a"].startswith("0x")
    assert '<failure message="wrong in a corner only' in (tmp_path / "junit.xml").read_text()


def test_pipeline_with_constants_is_exhausted_and_its_latency_found() -> None:
    report = run("mul_pipelined.v", "mul_u8", map_text=(HERE / "mul_pipelined.toml").read_text())
    assert (report.verdict, report.latency, report.checked) == (Verdict.EXHAUSTIVE, 3, 1 << 16), report.how


@pytest.mark.long
def test_wrong_latency_and_missing_constants_are_told() -> None:
    text = (HERE / "mul_pipelined.toml").read_text()
    late = run("mul_pipelined.v", "mul_u8", map_text="latency = 2\n" + text)
    assert late.verdict == Verdict.WRONG and "3 cycles, not 2" in late.how
    unmapped = run("mul_pipelined.v", "mul_u8")
    assert unmapped.verdict == Verdict.ERROR and "[constants] en" in unmapped.how


def test_feedback_is_tested_and_not_called_proved() -> None:
    report = run("add_feedback.v", "add_u8")
    assert (report.verdict, report.latency) == (Verdict.TESTED, 2), report.how
    assert any("no proof" in note for note in report.notes)


def test_disagreement_is_its_own_verdict() -> None:
    report = run("add_hidden_wrong.v", "add_u8")
    assert report.verdict == Verdict.DISAGREE and EXIT[report.verdict] == 4, report.how


def test_sat_finds_what_random_operands_do_not() -> None:
    report = run("add_trojan.v", "add_u32")
    assert report.verdict == Verdict.WRONG, report.how
    example = as_dict(report, specifications.find("add_u32").reduced({"a", "b", "y"}))["counterexample"]
    assert example["operands"] == {"a": "0xdeadbeef (3735928559)", "b": "0x0badcafe (195939070)"}


FAULTS = {
    "": None,
    "FLUSH_IN": {"subnormal_operand"},
    # A subnormal operand with a subnormal product: read as zero it gives zero too, and that class is named first.
    "FLUSH_OUT": {"subnormal_operand", "subnormal_result"},
    "PAYLOAD": {"nan_payload"},
    "UNSIGNED_ZERO": {"zero_sign"},
    "SATURATE": {"overflow_result"},
}


@pytest.mark.parametrize("fault", ["", "FLUSH_IN"])
def test_float_corners_by_class(fault: str) -> None:
    _float(fault)


@pytest.mark.long
@pytest.mark.parametrize("fault", ["UNSIGNED_ZERO", "FLUSH_OUT", "PAYLOAD", "SATURATE", "TRUNCATE", "DOUBLE_STICKY"])
def test_more_float_corners_by_class(fault: str) -> None:
    _float(fault)


def _float(fault: str) -> None:
    parameters = f"[parameters]\nE = 5\nM = 2\n{f'{fault} = 1' if fault else ''}\n"
    report = run("float_mul.sv", "e5m2_mul", top="float_mul", map_text=parameters)
    names = {difference.name for difference in report.differences}
    if not fault:
        assert (report.verdict, report.checked) == (Verdict.EXHAUSTIVE, 1 << 16), (report.how, report.differences)
    elif fault in FAULTS:
        assert report.verdict == Verdict.CORNER, (report.how, names)
        assert FAULTS[fault] == names
    else:
        assert report.verdict == Verdict.WRONG, (report.how, names)
        assert "one_ulp" in names


@pytest.mark.long
def test_bf16_multiplier_over_all_pairs() -> None:
    report = run("float_mul.sv", "bf16_mul", top="float_mul", map_text="[parameters]\nE = 8\nM = 7\n")
    assert (report.verdict, report.checked) == (Verdict.EXHAUSTIVE, 1 << 32), report.how
