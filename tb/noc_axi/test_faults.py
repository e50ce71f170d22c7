"""Errors and silence: each reaches the transaction that it belongs to, in time, and nobody else."""

import os
import random

import cocotb
from cocotb.triggers import ClockCycles, with_timeout

from tb.noc_axi.agents import DECERR, FIXED, OKAY, SLVERR, WRAP, Manager, ScriptedTarget, Transfer
from tb.noc_axi.bench import CONFIG, REGION
from tb.noc_axi.test_bursts import reset

SEED = int(os.environ.get("SERRANO_SEED", "1"))
LIMIT = CONFIG.timeout + 100  # cycles from the start of a transfer to the end of its error


async def start(dut):
    targets = [ScriptedTarget(dut, f"target__{x}") for x in range(2)]
    managers = [Manager(dut, f"manager__{x}") for x in range(2)]
    await reset(dut)
    return targets, managers


async def finish(transfers, limit=2000):
    """Until all of them have ended, `limit` cycles at most for all together."""

    async def every():
        for transfer in transfers:
            await transfer.done.wait()

    await with_timeout(every(), limit, "ns")


def write(identity, address, beats, **options):
    return Transfer(True, identity, address, beats, **options).fill(random.Random(address))


@cocotb.test(timeout_time=100, timeout_unit="us")
async def test_errors_reach_their_transfer(dut):
    """Some addresses of the targets answer with errors: exactly the beats and bursts that touch them fail."""
    targets, managers = await start(dut)
    bad = {0x140: SLVERR, 0x148: DECERR}
    for target in targets:
        target.resp = lambda address: bad.get(address & 0xFFF, OKAY)
    transfers = []
    for n in range(40):
        address = REGION * (n & 1) + 0x1000 * (n % 8) + 0x100 + 8 * (n % 7)
        make = write if n % 3 == 0 else lambda *a: Transfer(False, *a)
        transfers.append((managers[n // 2 & 1], make(n % 8, address, 1 + n % 20)))
    for manager, transfer in transfers:
        manager.start(transfer)
    await finish(transfer for _, transfer in transfers)
    failed = 0
    for _, t in transfers:
        expected = [bad.get(address & 0xFFF, OKAY) for address in t.addresses()]
        assert t.responses == ([max(expected)] if t.write else expected), t
        failed += max(expected) != OKAY
    assert 5 < failed < len(transfers) - 5


@cocotb.test(timeout_time=100, timeout_unit="us")
async def test_unmapped_and_illegal(dut):
    """DECERR outside the map, SLVERR for what no target could do; the targets see nothing of it."""
    targets, managers = await start(dut)
    cases = [
        (DECERR, {"address": 2 * REGION, "beats": 3}),
        (DECERR, {"address": 2 * REGION + 8, "beats": 100}),
        (DECERR, {"address": (1 << CONFIG.address_width) - 64, "beats": 16, "burst": WRAP}),
        (SLVERR, {"address": 0x100, "beats": 17, "burst": FIXED}),
        (SLVERR, {"address": 0x100, "beats": 32, "burst": WRAP}),
        (SLVERR, {"address": 0x100, "beats": 4, "burst": 3}),
        (SLVERR, {"address": 0x100, "beats": 4, "size": 3}),
    ]
    for n, (expected, fields) in enumerate(cases):
        good = [write(7, 0x3000 + 0x100 * n, 2), Transfer(False, 6, REGION, 2)]
        wrong = [Transfer(False, n, **fields), Transfer(True, n, **fields)]
        wrong[1].words, wrong[1].strobes = [1] * fields["beats"], [15] * fields["beats"]
        for transfer in (wrong[0], good[0], wrong[1], good[1]):
            managers[0].start(transfer)
        await finish(wrong + good)
        assert wrong[0].responses == [expected] * fields["beats"] and wrong[1].responses == [expected]
        assert all(set(transfer.responses) == {OKAY} for transfer in good)
    assert targets[0].seen == len(cases) and not targets[1].seen


# Whether it writes, what the target does, and how many bursts the bridge has given it by then: all that it keeps
# account of, or as many as its queue of data holds.
WAYS = {
    "takes_no_ar": (False, {"take_ar": False}, CONFIG.pending),
    "answers_no_read": (False, {"answer_r": False}, CONFIG.pending),
    "stops_in_a_read": (False, {"beats_left": 5}, CONFIG.pending),
    "takes_no_aw": (True, {"take_aw": False}, CONFIG.pending),
    "takes_no_w": (True, {"take_w": False}, 2),
    "takes_nothing": (True, {"take_aw": False, "take_w": False}, 2),
    "answers_no_write": (True, {"answer_b": False}, CONFIG.pending),
}


@cocotb.test(timeout_time=100, timeout_unit="us")
@cocotb.parametrize(way=list(WAYS))
async def test_silent_target(dut, way):
    """A target stops: SLVERR in time on every ID that waits, the other target works, and it may come back."""
    targets, managers = await start(dut)
    is_write, settings, given = WAYS[way]
    silent = targets[0]
    for name, value in settings.items():
        setattr(silent, name, value)
    # More than the bridge can hold, so that some wait in the network until the first have been given up.
    make = write if is_write else lambda *a: Transfer(False, *a)
    waiting = [managers[n & 1].start(make(n % 8, 0x1000 + 0x100 * n, 12)) for n in range(14)]
    await ClockCycles(dut.clk, 20)
    other = [managers[n & 1].start(make(n % 8, REGION + 0x1000 + 0x100 * n, 4)) for n in (6, 7)]
    await finish(waiting, LIMIT + 13 * len(waiting))  # the packets behind those given up still have to come
    await finish(other)
    for t in waiting:
        assert t.responses[-1] == SLVERR, t
        assert is_write or t.responses.count(OKAY) + t.responses.count(SLVERR) == t.beats
    if way == "stops_in_a_read":
        assert waiting[0].responses == [OKAY] * 5 + [SLVERR] * 7
    assert all(set(t.responses) == {OKAY} for t in other)
    assert int(dut.hung.value) == (2 if is_write else 1)
    # Refused at once while it hangs; the other direction is not touched.
    again = [make(1, 0x2000, 20), (lambda *a: Transfer(False, *a))(2, 0x3000, 3) if is_write else write(2, 0x3000, 3)]
    for transfer in again:
        managers[0].start(transfer)
    await finish(again, 120)
    assert set(again[0].responses) == {SLVERR} and set(again[1].responses) == {OKAY}
    # It comes back: what it owed is dropped, and it serves again.
    silent.take_ar = silent.take_aw = silent.take_w = silent.answer_r = silent.answer_b = True
    silent.beats_left = None
    await ClockCycles(dut.clk, 400)
    assert int(dut.hung.value) == 0
    assert silent.asked[is_write] == given, "what was refused never reached the target"
    ended = [len(manager.order) for manager in managers]
    await finish([managers[0].start(write(1, 0x5000, 20)), managers[1].start(Transfer(False, 1, 0x6000, 20))])
    assert [len(manager.order) for manager in managers] == [count + 1 for count in ended]
    assert all(set(manager.order[-1].responses) == {OKAY} for manager in managers)


@cocotb.test(timeout_time=100, timeout_unit="us")
@cocotb.parametrize(is_write=[False, True])
async def test_one_id_is_silent(dut, is_write):
    """The target answers all IDs but one: only that one fails, in time, and its late answer reaches nobody."""
    targets, managers = await start(dut)
    forgotten = managers[0].start(write(5, 0x700, 3) if is_write else Transfer(False, 5, 0x700, 3))

    def choose(candidates):
        return next((n for n, entry in enumerate(candidates) if entry[0] & 7 != 5), None)

    targets[0].choose = choose
    others = [managers[0].start(write(n, 0x100 * n, 3)) for n in (0, 1, 2)]
    others += [managers[1].start(Transfer(False, n, 0x100 * n, 3)) for n in (0, 1, 2)]
    await finish(others, 300)
    assert all(set(t.responses) == {OKAY} for t in others) and not forgotten.done.is_set()
    await finish([forgotten], LIMIT)
    assert set(forgotten.responses) == {SLVERR}
    # The bridge has room for more, but gives nothing to a target that hangs.
    make, asked = write if is_write else lambda *a: Transfer(False, *a), targets[0].asked[is_write]
    refused = [managers[n].start(make(3, 0x900, 2)) for n in range(2)]
    await finish(refused, 100)
    assert all(set(t.responses) == {SLVERR} for t in refused) and targets[0].asked[is_write] == asked
    # Its late answer comes while the next transfers of its ID, in the place that it had, wait for theirs.
    targets[1].answer_r = targets[1].answer_b = False
    fresh = [managers[0].start(make(5, REGION + 0x710 + 0x100 * n, 3)) for n in range(CONFIG.slots)]
    await ClockCycles(dut.clk, 30)
    targets[0].choose = lambda candidates: 0 if candidates else None
    await ClockCycles(dut.clk, 50)
    assert int(dut.hung.value) == 0 and not any(t.done.is_set() or t.data for t in fresh)
    targets[1].answer_r = targets[1].answer_b = True
    await finish(fresh, 300)
    assert all(set(t.responses) == {OKAY} for t in fresh)


class Numbered(dict):
    """A target's memory in which every byte that was not written is told by its address."""

    def __missing__(self, address):
        return address * 37 & 255


def numbered(transfer):
    """What a read of a `Numbered` memory has to bring."""
    return [
        sum(Numbered()[address // 4 * 4 + lane] << (8 * lane) for lane in range(4)) for address in transfer.addresses()
    ]


def right(transfer):
    return set(transfer.responses) == {OKAY} and transfer.data == numbered(transfer)


@cocotb.test(timeout_time=100, timeout_unit="us")
async def test_rlast_too_early(dut):
    """A target ends the reads of one ID after five beats: SLVERR in place of the missing ones, the others whole."""
    targets, managers = await start(dut)
    targets[0].memory = Numbered()
    cut = 5
    targets[0].last = lambda identity, beat, beats: beat == min(beats, cut if identity & 7 == 3 else beats) - 1
    short = [managers[0].start(Transfer(False, 3, 0x100, 40)), managers[1].start(Transfer(False, 3, 0x200, 12))]
    whole = [managers[n & 1].start(Transfer(False, n, 0x300 + 0x40 * n, 20)) for n in (0, 1, 4, 5)]
    await finish(short + whole, 400)
    assert all(right(t) for t in whole)
    assert short[1].responses == [OKAY] * cut + [SLVERR] * 7 and short[1].data[:cut] == numbered(short[1])[:cut]
    packets = (16, 16, 8)  # each a read of its own to the target
    assert short[0].responses == [r for beats in packets for r in [OKAY] * cut + [SLVERR] * (beats - cut)]
    for first in (0, 16, 32):
        assert short[0].data[first : first + cut] == numbered(short[0])[first : first + cut]
    assert int(dut.hung.value) == 0


@cocotb.test(timeout_time=100, timeout_unit="us")
async def test_rlast_too_late(dut):
    """A target goes on after the last beat: the bridge counts, and what is too much reaches nobody else's read."""
    targets, managers = await start(dut)
    targets[0].memory = Numbered()
    targets[0].last = lambda identity, beat, beats: beat == beats + (6 if identity & 7 == 3 else -1)
    long = [managers[n].start(Transfer(False, 3, 0x100 * n, 12)) for n in range(2)]
    others = [managers[n & 1].start(Transfer(False, n, 0x300 + 0x40 * n, 20)) for n in (0, 1, 4, 5)]
    await finish(long + others, 400)
    assert all(right(t) for t in long + others)
    # Two of one ID at a time: the second may get what was too much for the first, but both end, and a third is right.
    both = [managers[0].start(Transfer(False, 3, 0x100 * n, 12)) for n in range(2)]
    await finish(both, 400)
    assert right(both[0]) and len(both[1].data) == 12
    await ClockCycles(dut.clk, 40)
    third = managers[0].start(Transfer(False, 3, 0x500, 12))
    await finish([third], 100)
    assert right(third) and int(dut.hung.value) == 0


@cocotb.test(timeout_time=100, timeout_unit="us")
async def test_answers_that_nobody_asked_for(dut):
    """Beats and answers of IDs without a transaction, of managers that there are and are not: taken and dropped."""
    targets, managers = await start(dut)
    targets[0].memory = Numbered()
    strays = [place << 3 | identity for place in range(4) for identity in (2, 6)]
    for channel in targets[0].stray.values():
        channel.extend(strays)
    await ClockCycles(dut.clk, 40)  # while nothing is under way
    transfers = [managers[n & 1].start(Transfer(False, n, 0x40 * n, 20)) for n in (0, 1, 3, 4)]
    transfers += [managers[n & 1].start(write(n, 0x800 + 0x40 * n, 20)) for n in (0, 1, 3, 4)]
    for _ in range(3):
        await ClockCycles(dut.clk, 15)  # and in the middle of others
        for channel in targets[0].stray.values():
            channel.extend(strays)
    await finish(transfers, 600)
    assert not any(targets[0].stray.values()), "some were not taken"
    assert all(t.responses == [OKAY] if t.write else right(t) for t in transfers)
    # A read is not answered by an answer to a write of its ID, nor the other way round.
    targets[0].answer_r, targets[1].answer_b = False, False
    waiting = [managers[0].start(Transfer(False, 2, 0x40, 4)), managers[0].start(write(6, REGION + 0x40, 4))]
    await ClockCycles(dut.clk, 40)
    targets[0].stray["b"].append(2)
    targets[1].stray["r"].append(6)
    await ClockCycles(dut.clk, 60)
    assert not any(targets[0].stray.values()) and not any(targets[1].stray.values())
    assert not any(t.done.is_set() or t.data for t in waiting)
    targets[0].answer_r, targets[1].answer_b = True, True
    await finish(waiting, 200)
    assert right(waiting[0]) and waiting[1].responses == [OKAY]


@cocotb.test(timeout_time=100, timeout_unit="us")
async def test_manager_that_takes_nothing(dut):
    """One manager takes no answer for a long time: the other works on, through the same targets and links."""
    _, managers = await start(dut)
    for channel in (managers[0].r, managers[0].b):
        channel.set_pause_generator(iter(lambda: True, None))
    stuck = [managers[0].start(Transfer(False, n, REGION * (n & 1) + 0x100 * n, 40)) for n in range(8)]
    stuck += [managers[0].start(write(n, REGION * (n & 1) + 0x4000 + 0x100 * n, 16)) for n in range(8)]
    await ClockCycles(dut.clk, 100)
    free = [managers[1].start(Transfer(False, n, REGION * (n & 1) + 0x100 * n, 20)) for n in range(8)]
    free += [managers[1].start(write(n, REGION * (n & 1) + 0x8000 + 0x100 * n, 16)) for n in range(8)]
    await finish(free, 1500)
    assert not any(t.done.is_set() for t in stuck)
    for channel in (managers[0].r, managers[0].b):
        channel.set_pause_generator(None)
        channel.pause = False
    await finish(stuck)
    assert all(set(t.responses) == {OKAY} for t in stuck + free)
