"""Multi-turn agents and disaggregation, against what can be worked out by hand."""

from dataclasses import replace

import pytest

from scripts.extrapolate import chips, shapes
from scripts.extrapolate.agents import IDLE_CAP, Agents, simulate_agents
from scripts.extrapolate.cycles import Constants
from scripts.extrapolate.disaggregated import simulate_disaggregated, transfer_seconds
from scripts.extrapolate.serving import Load, Policy, simulate

PLAIN = Constants(50, 1.05, 1.0, (), (), 0.0, 0.0)
STEADY = {"turns": 3, "system": 100, "added": 50, "outputs": 10, "spread": 0.0, "pause": 0.0}


@pytest.fixture(scope="module")
def chip():
    return chips.load("full_size")


@pytest.fixture(scope="module")
def model():
    return shapes.load("gpt_oss_120b")


def second(batch):
    """Every iteration takes a second and two joules."""
    return 1.0, (2.0, 4.0)


def test_a_session_by_hand(model, chip):
    """150 tokens, then 50 a turn on what is kept: a budget of 50 takes 3, 1 and 1 iterations to the first token."""
    found = simulate_agents(model, chip, PLAIN, Agents(1, 1, **STEADY), Policy(budget=50), time_of=second)
    assert found.turns == 3
    assert found.ttft == (1, 3)
    assert found.end_to_end == (10, 12)
    assert found.seconds == 12 + 10 + 10
    assert found.longest_context == 150 + 10 + 2 * 60
    assert found.reused == pytest.approx((160 + 220) / (150 + 210 + 270))


def test_without_reuse_the_context_is_computed_again(model, chip):
    """210 and 270 tokens instead of 50: 5 and 6 iterations."""
    found = simulate_agents(model, chip, PLAIN, Agents(1, 1, **STEADY), Policy(budget=50), reuse=False, time_of=second)
    assert found.seconds == 12 + (5 + 9) + (6 + 9)
    assert found.reused == 0


def test_pauses_are_waited_for_and_capped(model, chip):
    load = Agents(1, 2, **{**STEADY, "pause": 100.0})
    pauses = [pause for number in (0, 1) for _, _, pause in load.session(number)[:-1]]
    assert max(p for n in range(50) for _, _, p in load.session(n)) == IDLE_CAP
    found = simulate_agents(model, chip, PLAIN, load, Policy(budget=50), time_of=second)
    assert found.seconds == pytest.approx(2 * 32 + sum(pauses))


def test_a_full_memory_drops_the_longest_unused_context(model, chip):
    """Room for one session's context only: two sessions in turn find nothing kept; with room for both they do."""
    load = Agents(2, 2, **STEADY)
    found = {}
    for room in (300, 2000):
        size = (model.resident + room * model.kv_token) / (chip.hbm.stacks * chip.domain.chips) / 1e9
        tight = replace(chip, hbm=replace(chip.hbm, stack_gigabytes=size))
        found[room] = simulate_agents(model, tight, PLAIN, load, Policy(budget=50), time_of=second)
    assert found[300].turns == found[2000].turns == 6
    assert found[300].reused < found[2000].reused == pytest.approx((160 + 220) / (150 + 210 + 270))


def test_keeping_the_context_is_worth_it(model, chip):
    load = Agents(2, 2, turns=6)
    kept, again = (simulate_agents(model, chip, PLAIN, load, reuse=reuse) for reuse in (True, False))
    assert kept.ttft[0] < again.ttft[0]
    assert kept.headline > again.headline
    assert load.session(1) == load.session(1) != load.session(0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"sessions": 1}, "cannot keep 2"), ({"turns": 0}, "0 turns"), ({"added": 0}, "at least 1")],
)
def test_impossible_loads_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        Agents(**{"concurrency": 2, "sessions": 2, **changes})


def test_disaggregated_by_hand(model, chip):
    """One user: 4 chunks to the first token, the transfer, then a token a second; both domains' chips are counted."""
    load = Load(1, 3, inputs=8192, outputs=10, range_ratio=1.0)
    found = simulate_disaggregated(model, chip, chip, PLAIN, load, timers=(second, second))
    crossing = transfer_seconds(model, chip, chip, 8192)
    assert crossing == pytest.approx(400e-9 + 8192 * 73728 / (8 * 1.8e12))
    assert found.ttft[0] == pytest.approx(4)
    assert found.end_to_end[0] == pytest.approx(4 + crossing + 9)
    assert found.chips == 16


def test_disaggregation_keeps_prefill_out_of_the_decode(model, chip):
    """Under load a user's tokens come more evenly than where prefill shares the iterations; nothing is lost."""
    load = Load(16, 48, 8192, 256)
    shared = simulate(model, chip, PLAIN, load)
    apart = simulate_disaggregated(model, chip, chip, PLAIN, load)
    assert apart.tpot[0] < shared.tpot[0]
    tokens = sum(i + o for i, o in load.lengths())
    assert apart.total_rate * apart.seconds == pytest.approx(tokens)


def test_disaggregation_needs_links_and_memory(model, chip):
    alone = replace(chip, domain=replace(chip.domain, chips=1, expert_groups=1, link_bytes_per_second=0.0))
    with pytest.raises(ValueError, match="needs links"):
        simulate_disaggregated(model, alone, alone, PLAIN, Load(1, 1, 100, 10))
    size = (model.resident + 50 * model.kv_token) / (chip.hbm.stacks * chip.domain.chips) / 1e9
    tight = replace(chip, hbm=replace(chip.hbm, stack_gigabytes=size))
    with pytest.raises(ValueError, match="does not fit"):
        simulate_disaggregated(model, chip, tight, PLAIN, Load(1, 1, 100, 10), timers=(second, second))
