"""What `make verify` answers: the verdict, its evidence, and the forms it is written in (text, JSON, JUnit XML)."""

import dataclasses
import enum
import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from golden.specifications import Specification
from golden.specifications.core import describe
from scripts.verify.engine import Difference


class Verdict(enum.StrEnum):
    """From best to worst; the exit code is in `EXIT`."""

    PROVED = "proved"
    EXHAUSTIVE = "exhaustively tested"
    TESTED = "tested"
    CORNER = "wrong in a corner only"
    WRONG = "wrong"
    DISAGREE = "simulators disagree"
    ERROR = "not judged"


#: 2 is left to the command line's own usage errors.
EXIT = {
    Verdict.PROVED: 0,
    Verdict.EXHAUSTIVE: 0,
    Verdict.TESTED: 0,
    Verdict.WRONG: 1,
    Verdict.CORNER: 3,
    Verdict.DISAGREE: 4,
    Verdict.ERROR: 5,
}
GOOD = (Verdict.PROVED, Verdict.EXHAUSTIVE, Verdict.TESTED)


@dataclasses.dataclass
class Report:
    """The answer for one circuit. `how` says by what; `notes` what else an engineer should know."""

    specification: str
    circuit: str
    top: str
    verdict: Verdict
    how: str
    checked: int = 0
    seed: int | None = None
    latency: int | None = None
    simulators: list[str] = dataclasses.field(default_factory=list)
    differences: list[Difference] = dataclasses.field(default_factory=list)
    worst_ulp: float | None = None
    mean_ulp: float | None = None
    waveform: str = ""
    notes: list[str] = dataclasses.field(default_factory=list)
    seconds: float = 0.0

    @property
    def exit_code(self) -> int:
        return EXIT[self.verdict]


def counterexample(report: Report, specification: Specification) -> dict | None:
    """The first difference that is not a corner (or the first of all), in hex and decoded."""
    if not report.differences:
        return None
    worst = [d for d in report.differences if d.name not in specification.corners] or report.differences
    first = worst[0]
    rows = {}
    for port in specification.inputs:
        rows[port.name] = [describe(port, value) for value in first.inputs[port.name]]
    return {
        "class": first.name,
        "operands": {name: texts if len(texts) > 1 else texts[0] for name, texts in rows.items()},
        "expected": {p.name: describe(p, first.want[p.name]) for p in specification.outputs},
        "found": {p.name: describe(p, first.got[p.name]) for p in specification.outputs},
    }


def as_dict(report: Report, specification: Specification) -> dict:
    """The machine-readable summary; keys are stable."""
    return {
        "schema": "serrano.verify/1",
        "specification": report.specification,
        "circuit": report.circuit,
        "top": report.top,
        "verdict": report.verdict.name.lower(),
        "how": report.how,
        "exit_code": report.exit_code,
        "checked": report.checked,
        "seed": report.seed,
        "latency": report.latency,
        "simulators": report.simulators,
        "classes": {d.name: d.count for d in report.differences},
        "counterexample": counterexample(report, specification),
        "worst_ulp": report.worst_ulp,
        "mean_ulp": report.mean_ulp,
        "waveform": report.waveform,
        "notes": report.notes,
        "seconds": round(report.seconds, 3),
    }


def as_text(report: Report, specification: Specification) -> str:
    """For a terminal."""
    lines = [
        f"{report.circuit} ({report.top}) against {report.specification}: {report.verdict.upper()}",
        f"  {specification.title}",
        f"  {report.how}",
    ]
    if report.latency:
        lines.append(f"  latency: {report.latency} cycles")
    if report.worst_ulp is not None:
        lines.append(
            f"  error: at most {report.worst_ulp:.4g} ulp, mean {report.mean_ulp:.4g} ulp; "
            f"allowed {specification.bound:g}"
        )
    if report.simulators:
        agree = "disagree" if report.verdict == Verdict.DISAGREE else "agree"
        lines.append(f"  simulators that {agree}: {', '.join(report.simulators)}")
    for difference in report.differences:
        kind = "corner" if difference.name in specification.corners else "fault"
        lines.append(f"  {kind} {difference.name}: {difference.count} of {report.checked} operand sets")
    example = counterexample(report, specification)
    if example:
        lines.append(f"  counterexample ({example['class']}):")
        for title in ("operands", "expected", "found"):
            for name, value in example[title].items():
                lines.append(f"    {title:9} {name:6} {', '.join(value) if isinstance(value, list) else value}")
    if report.waveform:
        lines.append(f"  waveform: {report.waveform}")
    return "\n".join([*lines, *(f"  note: {note}" for note in report.notes), f"  {report.seconds:.1f} s"])


def write(report: Report, specification: Specification, folder: Path) -> None:
    """`summary.json` and `junit.xml` in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "summary.json").write_text(json.dumps(as_dict(report, specification), indent=1) + "\n")
    suite = ElementTree.Element("testsuite", name=f"verify.{report.specification}", time=f"{report.seconds:.3f}")
    cases = {
        "function": report.verdict in (Verdict.WRONG, Verdict.CORNER),
        "agreement": report.verdict == Verdict.DISAGREE,
    }
    failures = 0
    for name, failed in cases.items():
        case = ElementTree.SubElement(
            suite,
            "testcase",
            classname=f"verify.{report.specification}",
            name=f"{report.top}.{name}",
            time=f"{report.seconds:.3f}",
        )
        if failed:
            failures += 1
            ElementTree.SubElement(case, "failure", message=f"{report.verdict}: {report.how}").text = as_text(
                report, specification
            )
        elif report.verdict == Verdict.ERROR:
            ElementTree.SubElement(case, "error", message=report.how)
    suite.set("tests", str(len(cases)))
    suite.set("failures", str(failures))
    suite.set("errors", str(len(cases) if report.verdict == Verdict.ERROR else 0))
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    ElementTree.ElementTree(root).write(folder / "junit.xml", encoding="utf-8", xml_declaration=True)
