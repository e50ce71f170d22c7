"""The corpus of hostile candidates: each takes effect on a naive flow and is refused here, with no side effect."""

import re
import sys
import tomllib
from pathlib import Path

import pytest

from scripts.explore import admit
from scripts.explore.judge import Candidate, block, judge
from scripts.explore.measure import Recipe
from scripts.verify import sandbox

HERE = Path(__file__).parent / "explore"
sys.path.insert(0, str(HERE))
import naive  # noqa: E402

ATTACKS = tomllib.loads((HERE / "attacks.toml").read_text())
SLOW = {"simulate", "bench"}
"""Naive flows that compile a simulator."""


def source(name: str) -> str:
    return (HERE / "attacks" / f"{name}.v").read_text()


def test_corpus_is_whole() -> None:
    assert {path.stem for path in (HERE / "attacks").glob("*.v")} == set(ATTACKS)
    assert sum("refused" in entry for entry in ATTACKS.values()) >= 15


def snapshot() -> set[str]:
    return {str(path) for folder in (Path.cwd(), Path("/tmp")) for path in folder.glob("*pwned*")}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.long] if name == "memory_bomb" else [])  # it costs all of its time limit
        for name, entry in ATTACKS.items()
        if "refused" in entry
    ],
)
def test_attack_is_refused(name: str) -> None:
    before = snapshot()
    with pytest.raises(admit.Refused, match=ATTACKS[name]["refused"]):
        admit.admit(source(name), block("mul_u8"))
    assert snapshot() == before


def test_what_comments_hide_from_synthesis_is_judged_as_it_stands() -> None:
    """Comments are cut out first, so `translate_off` hides nothing: what is judged is the whole text."""
    netlist = admit.admit(source("translate_off"), block("mul_u8"))
    assert len(netlist.cells) > 300


def _takes_effect(name: str) -> None:
    entry = ATTACKS[name]
    seen = naive.FLOWS[entry["flow"]](source(name))
    assert re.search(entry["effect"], seen), seen[-1500:]
    assert "absent" not in entry or entry["absent"] not in seen, seen[-1500:]
    if "also" in entry:
        assert entry["also_effect"] in naive.FLOWS[entry["also"]](source(name))


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, entry in ATTACKS.items()
        if entry["flow"] not in SLOW and name not in ("memory_bomb", "endless_constant")
    ],
)
def test_attack_takes_effect_on_a_naive_flow(name: str) -> None:
    _takes_effect(name)


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [name for name, entry in ATTACKS.items() if entry["flow"] in SLOW or name in ("memory_bomb", "endless_constant")],
)
def test_attack_takes_effect_on_a_naive_simulation(name: str) -> None:
    _takes_effect(name)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("assign y = {8{a[0]}} * c;", "undefined|Identifier|implicitly"),
        ("reg [15:0] q; always @(*) if (a[0]) q = a * b; assign y = q;", "latch"),
        ("wire w; assign w = ~w & a[0]; assign y = {16{w}};", "loop"),
        ("assign y[7:0] = a;", "undefined"),
        ("reg [15:0] q; always @(posedge a[0]) q <= b; assign y = q;", "posedge"),
        ("assign y = a[0] ? 16'bz : 16'd1;", "x, z"),
        ("other u(a, b, y);", "other|module"),
        ("sub.inner = 1;", "hierarchical"),
    ],
)
def test_what_is_not_plain_logic_is_refused(body: str, reason: str) -> None:
    text = f"module mul_u8(input [7:0] a, input [7:0] b, output [15:0] y); {body} endmodule"
    with pytest.raises(admit.Refused, match=reason):
        admit.admit(text, block("mul_u8"))


def test_wrong_ports_are_refused() -> None:
    with pytest.raises(admit.Refused, match="inputs must be exactly"):
        admit.admit(
            "module mul_u8(input [8:0] a, input [7:0] b, output [15:0] y); assign y = a; endmodule", block("mul_u8")
        )


def test_comments_cannot_hide_a_token() -> None:

    kept = admit.strip_comments('a // `x " \nb /* $y // */ c')
    assert "`" not in kept and "$" not in kept and kept.split() == ["a", "b", "c"]
    with pytest.raises(admit.Refused, match="not closed"):
        admit.strip_comments("a /* b")


def test_honest_verilog_is_judged_and_a_trojan_is_found() -> None:
    honest = "module mul_u8(input [7:0] a, input [7:0] b, output [15:0] y); assign y = a * b; endmodule"
    good = judge(Candidate("verilog", honest), block("mul_u8"), Recipe())
    assert good.result["verdict"] == "correct" and good.result["proof"].startswith("exhaustive")
    trojan = honest.replace("a * b", "a * b + (a == 8'h5a && b == 8'ha5)")
    bad = judge(Candidate("verilog", trojan), block("mul_u8"), Recipe()).result
    assert bad["verdict"] == "wrong" and bad["counterexample"]["wrong"] == 1
    assert bad["counterexample"]["operands"] == {"a": "0x5a (90)", "b": "0xa5 (165)"}


def test_nothing_is_read_without_a_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERRANO_BWRAP", "/nowhere/bwrap")
    with pytest.raises(sandbox.SandboxUnavailable):
        admit.admit("module mul_u8(); endmodule", block("mul_u8"))
