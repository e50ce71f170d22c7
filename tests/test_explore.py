"""Graph text, measurement, archive, protocol and search of `explore`."""

import json
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from typer.testing import CliRunner

from scripts.explore import anneal, cli, compressor, graphs, judge, measure, operands, pareto, prefix, protocol, trees
from scripts.explore.archive import Archive
from scripts.explore.cli import command
from scripts.explore.judge import Candidate, block, correctness, judge_named
from scripts.explore.measure import Recipe
from scripts.explore.prefix import GraphError
from scripts.explore.session import Budget, Session
from scripts.verify import sandbox


@pytest.mark.parametrize("name", prefix.CLASSICAL)
@pytest.mark.parametrize("width", [1, 2, 7, 8])
def test_classical_adders_add(name: str, width: int) -> None:
    found = block(f"add_u{width}")
    assert correctness(graphs.render({"kind": "prefix", "name": name}, found), found)[0] is None


def test_known_sizes_and_depths() -> None:
    sizes = {name: (len(make(32)), prefix.depth(32, make(32))) for name, make in prefix.CLASSICAL.items()}
    assert sizes["sklansky"] == (80, 5) and sizes["kogge_stone"] == (129, 5)
    assert sizes["brent_kung"] == (57, 8) and sizes["ladner_fischer"] == (74, 5)
    counts = [
        sum(element[0] == kind for element in trees.dadda(compressor.sources(block("mul_u16")).heights))
        for kind in "fh"
    ]
    assert counts == [195, 15]  # Dadda's 16x16 tree


def test_adders_for_arrival_times() -> None:
    for width, size, levels in ((8, 12, 3), (32, 80, 5), (64, 192, 6)):  # equal times, no slack: as Sklansky's
        nodes = prefix.check(width, prefix.for_arrival([0.0] * width))
        assert (len(nodes), prefix.depth(width, nodes)) == (size, levels)
    assert len(prefix.for_arrival([0.0] * 32, "arrival_4")) < 64
    late = [0.0] * 24 + [float(5 * i) for i in range(8)]  # upper bits come one after the other: a ripple is as fast
    nodes = prefix.check(32, prefix.for_arrival(late))
    times = {(i, i): time for i, time in enumerate(late)}
    for i, k, j in nodes:
        times[i, j] = max(times[i, k], times[k - 1, j]) + prefix.JOIN
    assert times[31, 0] == pytest.approx(35 + prefix.JOIN)
    with pytest.raises(GraphError, match="128 bits"):
        prefix.for_arrival([0.0] * 129)


def test_annealed_prefix_graph_is_the_best_known() -> None:
    nodes = anneal.search(32, seed=1, steps=40_000_000, target=74)
    assert (len(nodes), prefix.depth(32, nodes)) == (74, 5)


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([[1, 1, 0], [2, 2, 0]], "incomplete"),
        ([[2, 2, 0]], "no span"),
        ([[1, 1, 0], [1, 1, 0]], "there already"),
        ([[9, 1, 0]], "must have"),
        ([[1, 1]], "three integers"),
        ("x", "list"),
        ([[1.0, 1, 0]], "three integers"),
    ],
)
def test_wrong_prefix_graphs_name_the_element(nodes: object, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        graphs.render({"kind": "prefix", "nodes": nodes}, block("add_u4"))


@pytest.mark.parametrize("rows", compressor.ROWS)
@pytest.mark.parametrize("name", ["mul_u5", "mul_s5", "mul_su4", "mul_s4", "mul_u4", "dot_s4x2", "dot_u3x2"])
def test_compressor_trees_multiply(name: str, rows: str) -> None:
    found = block(name)
    for tree, adder in zip(graphs.TREES, ("brent_kung", "arrival_2", "arrival_4", "arrival"), strict=True):
        netlist = graphs.render({"kind": "compressor", "rows": rows, "tree": tree, "adder": adder}, found)
        wrong, how = correctness(netlist, found)
        assert wrong is None, (tree, wrong)
        assert how.startswith("exhaustive")


def test_a_tree_that_loses_or_doubles_a_bit_is_refused() -> None:
    found = block("mul_u4")
    heights = compressor.sources(found).heights
    tree = [list(element) for element in trees.dadda(heights)]
    for change, message in (
        (lambda t: t.pop(), "left with|incomplete|used twice|no net"),
        (lambda t: t[1].__setitem__(1, t[0][1]), "used twice"),
        (lambda t: t[0].__setitem__(1, 0), "different columns"),
        (lambda t: t[0].__setitem__(1, 999), "no net"),
        (lambda t: t[0].__setitem__(0, "g"), "must be"),
    ):
        broken = json.loads(json.dumps(tree))
        change(broken)
        with pytest.raises(GraphError, match=message):
            compressor.check(heights, broken)


def test_table_graph() -> None:
    found = block("lzc_8")
    rows = [8 - value.bit_length() for value in range(256)]
    assert correctness(graphs.render({"kind": "table", "rows": rows}, found), found)[0] is None
    rows[77] ^= 1
    wrong, _ = correctness(graphs.render({"kind": "table", "rows": rows}, found), found)
    assert wrong is not None and wrong["operands"] == {"a": "0x4d (77)"} and wrong["wrong"] == 1


def test_recipe_is_repeatable_and_energy_sees_the_operands() -> None:
    found = block("mul_u4")
    netlist = graphs.render({"kind": "compressor", "tree": "dadda"}, found)
    first, second = (measure.measure(netlist, found, Recipe()) for _ in range(2))
    assert first == second and len(first) == 3
    assert all(point.area > 20 and point.delay > 50 and point.energy > 1 for point in first)
    flat = measure.toggle_energy(
        ".model m\n.gate INV_X1 A=a_0 Y=y_0\n.end\n", measure.drive_bits(found, operands.sequence(found, measure.STEPS))
    )
    assert 0 < flat < 2


def test_front_keeps_what_nothing_dominates() -> None:
    points = [{"area": a, "delay": d, "energy": None} for a, d in ((1, 9), (5, 5), (5, 5), (6, 6), (9, 1), (9, 2))]
    assert [(p["area"], p["delay"]) for p in pareto.front(points)] == [(1, 9), (5, 5), (9, 1)]


@pytest.mark.parametrize(
    ("text", "want"), [("90s", (90.0, None)), ("10m", (600.0, None)), ("7", (None, 7)), ("2h,30", (7200.0, 30))]
)
def test_budgets(text: str, want: tuple) -> None:
    budget = Budget.parse(text)
    assert (budget.seconds, budget.candidates) == want


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--block", "fp16_add"], "the built-in search knows add, mul, mac and dot"),
        (["--block", "nonsense"], "no specification 'nonsense'"),
        (["--block", "mul_u4", "--budget", "soon"], "a budget is"),
        (["--block", "mul_u4", "--liberty", "/nowhere.lib"], "LIBERTY=/nowhere.lib: No such file"),
        (["--block", "mul_u4", "--liberty", __file__], "is it a cell library"),
        (["--block", "mul_u4", "--proposer", "/no/such/program"], "cannot start"),
    ],
)
def test_bad_input_is_one_clear_line(options: list[str], message: str, tmp_path: Path) -> None:
    sandbox.available()
    found = CliRunner().invoke(cli.app, [*options, "--archive", str(tmp_path / "a.sqlite"), "--out", str(tmp_path)])
    assert found.exit_code == 2 and message in found.output, found.output
    assert len(found.output.strip().splitlines()) == 1


def test_another_library_begins_a_new_series(tmp_path: Path) -> None:
    """What another recipe judged is not taken for done."""
    sandbox.available()
    options = ["--block", "add_u4", "--budget", "2", "--archive", str(tmp_path / "a.sqlite"), "--out", str(tmp_path)]
    liberty = tmp_path / "half.lib"
    liberty.write_text(Recipe().library.replace("area : 2.0;", "area : 1.9;"))
    for extra, judged in (([], 2), ([], 0), (["--liberty", str(liberty)], 2)):
        found = CliRunner().invoke(cli.app, [*options, *extra])
        assert f"{judged} candidates judged" in found.output, found.output


def test_wrong_budget_is_told() -> None:
    with pytest.raises(ValueError, match="10m"):
        Budget.parse("soon")


def explore(archive: Archive, proposer: object, budget: str, run: str = "run", name: str = "mul_u4"):
    with ThreadPoolExecutor(2) as pool:
        session = Session(block(name), archive, Recipe(), pool, judge_named, run)
        return session.run(protocol.Proposer(proposer), Budget.parse(budget))


def test_same_run_gives_the_same_bytes_and_a_killed_run_goes_on(tmp_path: Path) -> None:
    whole, parts = Archive(tmp_path / "whole.sqlite"), Archive(tmp_path / "parts.sqlite")
    outcome = explore(whole, command("evolve", 3), "18", name="add_u6")
    assert outcome.judged == 18 and outcome.verdicts == {"correct": 18}, outcome
    explore(parts, command("evolve", 3), "12", name="add_u6")  # seven classical adders, then mutations of the best
    parts.close()  # as a killed process leaves it: every candidate was committed
    again = Archive(tmp_path / "parts.sqlite")
    resumed = explore(again, command("evolve", 3), "18", name="add_u6")
    assert (resumed.replayed, resumed.judged) == (12, 6)
    assert len({row["netlist"] for row in again.submissions("run")}) > 8
    assert "".join(again.export()) == "".join(whole.export())


PROPOSERS = {
    "silent": "import time; time.sleep(600)",
    "slow": "import sys, json, time\nfor line in sys.stdin:\n if json.loads(line)['type'] == 'propose': "
    "time.sleep(2.5); print(json.dumps({'kind': 'graph', 'graph': {'kind': 'compressor'}}), flush=True)",
    "babbling": "import sys\nfor line in sys.stdin: print('I would like to talk about prefix adders', flush=True)",
    "flooding": "print('x' * 40_000_000, flush=True)",
    "ending": "pass",
    "hostile": "import sys, json\nfor line in sys.stdin:\n if json.loads(line)['type'] == 'propose': print(json.dumps({"
    "'kind': 'verilog', 'verilog': 'module mul_u4(); initial $system(\\\"touch pwned\\\"); endmodule'}), flush=True)",
    "wrong": "import sys, json\nfor line in sys.stdin:\n if json.loads(line)['type'] == 'propose': print(json.dumps({"
    "'kind': 'graph', 'graph': {'kind': 'table', 'rows': [0] * 256}}), flush=True)",
}


@pytest.mark.parametrize(
    ("kind", "verdicts", "reason"),
    [
        ("silent", {}, "budget is spent"),
        ("slow", {}, "budget is spent"),
        ("babbling", {}, "no candidates"),
        ("flooding", {}, "longer than"),
        ("ending", {}, "has ended"),
        ("hostile", {"refused": 3}, "budget is spent"),
        ("wrong", {"wrong": 3}, "budget is spent"),
    ],
)
def test_a_bad_proposer_costs_only_its_budget(kind: str, verdicts: dict, reason: str, tmp_path: Path) -> None:
    start = time.monotonic()
    budget = "6s" if kind in ("silent", "slow") else "120s,3"
    outcome = explore(Archive(":memory:"), [sys.executable, "-c", PROPOSERS[kind]], budget)
    assert reason in outcome.reason, outcome
    if kind == "slow":  # what came in time counts
        assert set(outcome.verdicts) <= {"correct"} and outcome.judged <= 2 and time.monotonic() - start < 60
    else:
        assert outcome.verdicts == verdicts, outcome
    assert not Path("pwned").exists()


def test_files_of_a_folder_are_candidates(tmp_path: Path) -> None:
    (tmp_path / "1.json").write_text('{"kind": "compressor", "rows": "booth"}')
    (tmp_path / "2.v").write_text("module mul_u4(input [3:0] a, b, output [7:0] y); assign y = a * b; endmodule")
    (tmp_path / "3.json").write_text("{")
    archive = Archive(":memory:")
    outcome = explore(archive, command(f"files {tmp_path}", 1), "9")
    assert outcome.reason == "the proposer stopped" and outcome.verdicts == {"correct": 2, "refused": 1}
    assert [row["origin"] for row in archive.submissions("run")] == ["file: 1.json", "file: 2.v", "file: 3.json"]


class Endpoint(BaseHTTPRequestHandler):
    """A chat-completions endpoint with canned replies: prose, then graph text, then Verilog."""

    replies = (
        "Let me think about it.",
        'Try this: {"kind": "compressor", "tree": "wallace"} because it is fast.',
        "```verilog\nmodule mul_u4(input [3:0] a, b, output [7:0] y); assign y = a * b; endmodule\n```",
    )
    asked: list[dict] = []

    def do_POST(self) -> None:
        self.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        reply = self.replies[(len(self.asked) - 1) % len(self.replies)]
        body = json.dumps({"choices": [{"message": {"role": "assistant", "content": reply}}]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Quiet."""


def test_chat_endpoint_is_a_proposer() -> None:
    server = HTTPServer(("127.0.0.1", 0), Endpoint)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    Endpoint.asked = []
    archive = Archive(":memory:")
    try:
        outcome = explore(archive, command(f"chat --url http://127.0.0.1:{server.server_port}/v1 --model stub", 1), "2")
    finally:
        server.shutdown()
    assert outcome.verdicts == {"correct": 2}, outcome
    assert [row["origin"] for row in archive.submissions("run")] == ["chat: stub"] * 2
    assert any("invalid" in message["content"] for message in Endpoint.asked[-1]["messages"])


def test_optuna_is_a_proposer() -> None:
    pytest.importorskip("optuna")
    outcome = explore(Archive(":memory:"), command("optuna", 1), "4")
    assert outcome.verdicts == {"correct": 4}, outcome


@pytest.mark.long
def test_parsl_judges_with_the_same_code(tmp_path: Path) -> None:
    pytest.importorskip("parsl")
    from scripts.explore.workers import executor

    config = tmp_path / "parsl.toml"
    config.write_text('provider = "local"\nworkers = 2\n')
    archive, here = Archive(":memory:"), Archive(":memory:")
    with executor(2, config) as pool:
        session = Session(block("mul_u4"), archive, Recipe(), pool, judge_named, "run")
        outcome = session.run(protocol.Proposer(command("evolve", 3)), Budget.parse("4"))
    assert outcome.verdicts == {"correct": 4}, outcome
    explore(here, command("evolve", 3), "4")
    assert "".join(archive.export()) == "".join(here.export())


def test_adders_that_are_verilog_are_proved_by_sat() -> None:
    text = "module add_u24(input [23:0] a, b, output [23:0] y, output cout); assign {cout, y} = a + b; endmodule"
    good = judge.judge(Candidate("verilog", text), block("add_u24"), Recipe())
    assert good.result["verdict"] == "correct" and "SAT" in good.result["proof"]
    late = text.replace("a + b", "a + b + (a == 24'habcdef && b == 24'h123456)")
    bad = judge.judge(Candidate("verilog", late), block("add_u24"), Recipe())
    assert bad.result["verdict"] == "wrong"
