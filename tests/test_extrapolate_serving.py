"""The serving simulation against what can be worked out by hand, and its conservation laws."""

from dataclasses import replace

import pytest

from scripts.extrapolate import chips, shapes
from scripts.extrapolate.cycles import Constants
from scripts.extrapolate.scenarios import request
from scripts.extrapolate.serving import Load, Policy, per_kilowatt, percentile, simulate, sweep

PLAIN = Constants(50, 1.05, 1.0, (), (), 0.0, 0.0)


@pytest.fixture(scope="module")
def chip():
    return chips.load("full_size")


@pytest.fixture(scope="module")
def model():
    return shapes.load("gpt_oss_120b")


def second(batch):
    """Every iteration takes a second and two joules."""
    return 1.0, (2.0, 4.0)


def test_percentile():
    values = list(range(1, 101))
    assert (percentile(values, 0.5), percentile(values, 0.95), percentile([7], 0.95)) == (50, 95, 7)


def test_lengths_are_inferencex_distribution():
    lengths = Load(1, 20_000).lengths()
    assert min(i for i, _ in lengths) >= 6554
    assert max(i for i, _ in lengths) <= 8192
    assert sum(i for i, _ in lengths) / 20_000 == pytest.approx(7373, rel=0.003)
    assert sum(o for _, o in lengths) / 20_000 == pytest.approx(922, rel=0.003)
    assert Load(1, 50).lengths() == Load(1, 50).lengths() != Load(1, 50, seed=2).lengths()


def test_one_user_by_hand(model, chip):
    """4 chunks of prefill, the last of which gives the first token; then a token an iteration."""
    load = Load(1, 3, inputs=8192, outputs=10, range_ratio=1.0)
    found = simulate(model, chip, PLAIN, load, time_of=second)
    assert found.ttft == (4, 4)
    assert found.tpot == (1, 1)
    assert found.end_to_end == (13, 13)
    assert found.iterations == 39
    assert found.output_rate == pytest.approx(10 / 13)
    static = chip.power.static_watts
    assert found.chip_watts == pytest.approx((2 / 8 + static[0], 4 / 8 + static[1]))


def test_one_user_is_the_closed_form(model, chip):
    """Concurrency 1, fixed lengths: the simulation and the sum of steps say the same."""
    first, each, _ = request(model, chip, PLAIN, 8192, 64)
    found = simulate(model, chip, PLAIN, Load(1, 1, 8192, 64, range_ratio=1.0))
    assert found.ttft[0] == pytest.approx(first, rel=0.01)
    assert found.tpot[0] == pytest.approx(each, rel=0.01)


def test_decode_positions_come_out_of_the_budget(model, chip):
    """While 3 users decode, a fourth's prefill of 20 with a budget of 8 takes 5, 5, 5, 5 positions."""
    seen = []

    def watch(batch):
        seen.append((batch.decode, batch.prefill))
        return second(batch)

    load = Load(4, 4, inputs=20, outputs=40, range_ratio=1.0)
    simulate(model, chip, PLAIN, load, Policy(budget=8), watch)
    assert all(decode + prefill <= 8 for decode, prefill in seen)
    assert seen.count((3, 5)) == 4 or (3, 5) in seen
    assert sum(prefill for _, prefill in seen) == 4 * 20
    assert sum(decode for decode, _ in seen) == 4 * 39, "the first token comes with the prefill"


def test_conservation_and_littles_law(model, chip):
    load = Load(16, 96)
    found = simulate(model, chip, PLAIN, load)
    tokens = sum(i + o for i, o in load.lengths())
    assert found.total_rate * found.seconds == pytest.approx(tokens)
    mean = found.end_to_end[0] * load.requests / found.seconds
    assert 11 < mean <= 17, "requests in the system: rate times time in it"
    assert found.ttft[0] <= found.ttft[1]
    assert found.end_to_end[0] <= found.end_to_end[1]


def test_concurrency_trades_latency_for_rate(model, chip):
    few, many = sweep(model, chip, PLAIN, [1, 16], rounds=2)
    assert many.total_rate > few.total_rate
    assert many.per_user < few.per_user
    assert many.end_to_end[0] > few.end_to_end[0]


def test_speculation(model, chip):
    """All accepted: 4 tokens a step. None accepted: a token a step, and the drafting is paid."""
    load = Load(1, 1, inputs=100, outputs=101, range_ratio=1.0)
    plain = simulate(model, chip, PLAIN, load, time_of=second)
    best = simulate(model, chip, PLAIN, load, Policy(draft=3, acceptance=1.0), second)
    worst = simulate(model, chip, PLAIN, load, Policy(draft=3, acceptance=0.0, draft_cost=0.1), second)
    assert best.tpot[0] == pytest.approx(plain.tpot[0] / 4)
    assert worst.tpot[0] == pytest.approx(plain.tpot[0] * 1.1)
    with pytest.raises(ValueError, match="acceptance of 0 to 1"):
        Policy(draft=1, acceptance=1.1)


def test_memory_limits_who_runs(model, chip):
    """A domain with room for two requests at a time runs two, though eight are asked for."""
    need = model.resident + 2.5 * (1000 + 50) * model.kv_token
    stacks = chip.hbm.stacks * chip.domain.chips
    tight = replace(chip, hbm=replace(chip.hbm, stack_gigabytes=need / stacks / 1e9))
    most = []

    def watch(batch):
        most.append(batch.decode)
        return second(batch)

    simulate(model, tight, PLAIN, Load(8, 16, 1000, 50, 1.0), time_of=watch)
    assert max(most) == 2


def test_what_does_not_fit_is_refused(model, chip):
    small = replace(chip, hbm=replace(chip.hbm, stack_gigabytes=0.5))
    with pytest.raises(ValueError, match=r"GPT-OSS-120B takes 65 GB, the domain of .* has 32 GB"):
        simulate(model, small, PLAIN, Load(1, 1))
    barely = replace(chip, hbm=replace(chip.hbm, stack_gigabytes=(model.resident + 100 * model.kv_token) / 64e9))
    with pytest.raises(ValueError, match="a request does not fit"):
        simulate(model, barely, PLAIN, Load(1, 1))
    with pytest.raises(ValueError, match="2 requests cannot keep 3"):
        Load(3, 2)


def test_bases_of_power_are_named(model, chip):
    found = simulate(model, chip, PLAIN, Load(1, 1, inputs=1000, outputs=10))
    bases = per_kilowatt(found, chip)
    assert list(bases) == ["modelled chip power", "chip TDP (assumed)", "all-in utility (assumed TDP)"]
    assert bases["chip TDP (assumed)"] == pytest.approx(found.rate_a_chip)
    assert all(low < bases["chip TDP (assumed)"] for low in bases["all-in utility (assumed TDP)"])
