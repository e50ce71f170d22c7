"""A recorded testbench replays without Python to the same outputs: what `slice.cocotb_speed_ratio` stands on."""

from pathlib import Path

from scripts import simulator
from scripts.bench.slice import replay
from tb.fifo import TESTBENCHES


def test_replay_ends_with_the_recorded_outputs(tmp_path: Path) -> None:
    record = tmp_path / "inputs.txt"
    results = simulator.run(TESTBENCHES[0], environment={"SERRANO_RECORD": str(record)}, work=tmp_path)
    cycles = sum(result.sim_time_ns for result in results)
    found = replay(TESTBENCHES[0], record, 1, tmp_path)
    assert found["same"]
    assert found["cycles"] >= cycles > 0

    lines = record.read_text().splitlines()
    assert lines[-1].startswith("outputs ")
    record.write_text("\n".join([*lines[:-1], lines[-1].replace("i__ready=", "i__ready=3")]) + "\n")
    assert not replay(TESTBENCHES[0], record, 1, tmp_path)["same"], "a difference must be noticed"
