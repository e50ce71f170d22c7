"""`rtl/hbm_device.sv` and `golden/hbm_checker.py` against each other: every rule broken by one clock, and kept.

Neither knows the other. A case is a sequence of commands whose last one comes early; both must name the same rule, and
both must accept the sequence at the first distance that keeps every rule.
"""

from __future__ import annotations

import math
import os
import random
from dataclasses import dataclass

import cocotb
from cocotb.triggers import ClockCycles, FallingEdge

from golden.hbm_checker import Command, check, distances
from hw.hbm.interface import ColumnOp, RowOp
from tb.common.clock import start_clock
from tb.hbm.models import DEVICES

CONFIG = DEVICES[os.environ["HBM_CONFIG"]]
T, C = CONFIG.timing, CONFIG.cycles
CODES = {
    1: "COMMAND", 2: "CLOSED", 3: "CCDS", 4: "CCDL", 5: "CCDR", 6: "RCDRD", 7: "WTRS", 8: "WTRL", 9: "RCDWR",
    10: "RTW", 11: "RAS", 12: "RTP", 13: "WR", 14: "RC", 15: "RP", 16: "RFCPB", 17: "SLOT", 18: "RFCAB", 19: "OPEN",
    20: "RRDS", 21: "RRDL", 22: "FAW", 23: "RREFD", 24: "PPD", 25: "ROUND", 26: "PULLIN", 40: "REFI",
}  # fmt: skip
ROW = {"ACT": RowOp.ACT, "PRE": RowOp.PRE, "PREA": RowOp.PREA, "REFpb": RowOp.REFPB, "REFab": RowOp.REFAB}
COLUMN = {"RD": ColumnOp.RD, "WR": ColumnOp.WR}
FAR = 200  # clocks after which no short rule binds


@dataclass(frozen=True)
class Case:
    """`before`: (clock, command, bank); `last`: command and bank, `start` the clock that its distance counts from."""

    rule: str
    before: tuple[tuple[int, str, int], ...]
    last: tuple[str, int]
    start: int
    least: int


def cases() -> list[Case]:
    """One case a rule and pair of commands, for banks of one group, of two groups, and of two stacks."""
    group, stack = T.banks, T.banks * T.groups
    two = ((0, "ACT", 0), (FAR, "ACT", 1))
    groups = ((0, "ACT", 0), (FAR, "ACT", group))
    ready = 2 * FAR
    four = tuple((k * max(C.rrds, C.act_slot), "ACT", k * group) for k in range(4))
    found = [
        Case("RCDRD", ((0, "ACT", 3),), ("RD", 3), 0, C.rcdrd),
        Case("RCDWR", ((0, "ACT", 3),), ("WR", 3), 0, C.rcdwr),
        Case("RAS", ((0, "ACT", 3),), ("PRE", 3), 0, C.ras),
        Case("RAS", ((0, "ACT", 3),), ("PREA", 0), 0, C.ras),
        Case("RC", ((0, "ACT", 3), (C.ras, "PRE", 3)), ("ACT", 3), 0, C.rc),
        Case("RC", ((0, "ACT", 3), (C.ras, "PRE", 3)), ("REFpb", 3), 0, C.rc),
        Case("RC", ((0, "ACT", 3), (C.ras, "PREA", 0)), ("REFab", 0), 0, C.rc),
        Case("RP", ((0, "ACT", 3), (FAR, "PRE", 3)), ("ACT", 3), FAR, C.rp),
        Case("RP", ((0, "ACT", 3), (FAR, "PRE", 3)), ("REFpb", 3), FAR, C.rp),
        *(Case("RP", ((0, "ACT", 3), (FAR, "PREA", 0)), (late, 3), FAR, C.rp) for late in ("ACT", "REFpb", "REFab")),
        Case("RP", ((0, "ACT", 3), (FAR, "PRE", 3)), ("REFab", 0), FAR, C.rp),
        Case("RTP", ((0, "ACT", 3), (FAR, "RD", 3)), ("PRE", 3), FAR, C.rtp),
        Case("RTP", ((0, "ACT", 3), (FAR, "RD", 3)), ("PREA", 0), FAR, C.rtp),
        Case("WR", ((0, "ACT", 3), (FAR, "WR", 3)), ("PRE", 3), FAR, C.wr_pre),
        Case("WR", ((0, "ACT", 3), (FAR, "WR", 3)), ("PREA", 0), FAR, C.wr_pre),
        *(Case("RRDS", ((0, "ACT", 0),), (late, group), 0, C.rrds) for late in ("ACT", "REFpb")),
        Case("RRDL", ((0, "ACT", 0),), ("ACT", 1), 0, C.rrdl),
        Case("RRDL", ((0, "ACT", 0),), ("REFpb", 1), 0, C.rrdl),
        Case("FAW", four, ("ACT", 2), 0, C.faw),
        Case("CCDL", (*two, (ready, "RD", 0)), ("RD", 1), ready, C.ccdl),
        Case("CCDL", (*two, (ready, "WR", 0)), ("WR", 1), ready, C.ccdl),
        Case("WTRS", (*groups, (ready, "WR", 0)), ("RD", group), ready, C.wtrs),
        Case("WTRL", (*two, (ready, "WR", 0)), ("RD", 1), ready, C.wtrl),
        Case("RTW", (*groups, (ready, "RD", 0)), ("WR", group), ready, C.rtw),
        Case("RFCPB", ((0, "REFpb", 3),), ("ACT", 3), 0, C.rfcpb),
        Case("RFCPB", ((0, "REFpb", 3),), ("REFab", 0), 0, C.rfcpb),
        # The same bank in the next round, which begins long before the first refresh has ended.
        Case("RFCPB", tuple((k * C.rrefd, "REFpb", k) for k in range(T.total_banks)), ("REFpb", 0), 0, C.rfcpb),
        Case("RREFD", ((0, "REFpb", 3),), ("ACT", group), 0, C.rrefd),
        Case("RREFD", ((0, "REFpb", 3),), ("REFpb", group), 0, C.rrefd),
        *(
            Case("RFCAB", ((0, "REFab", 0),), (late, 3), 0, C.rfcab)
            for late in ("ACT", "PRE", "PREA", "REFpb", "REFab")
        ),
    ]
    # Rules of distance 1 cannot be broken in command slots that take one command a clock.
    if C.ccds > 1:
        found += [Case("CCDS", (*groups, (ready, kind, 0)), (kind, group), ready, C.ccds) for kind in ("RD", "WR")]
    if T.sids > 1 and C.ccdr > 1:
        stacks = ((0, "ACT", 0), (FAR, "ACT", stack))
        found += [Case("CCDR", (*stacks, (ready, kind, 0)), (kind, stack), ready, C.ccdr) for kind in ("RD", "WR")]
    if C.ppd > 1:
        found += [Case("PPD", (*two, (ready, "PRE", 0)), (late, 1), ready, C.ppd) for late in ("PRE", "PREA")]
    if C.act_slot > 1:
        kinds = ("PRE", "PREA", "ACT", "REFpb", "REFab")
        found += [Case("SLOT", ((0, "ACT", 0), (FAR, "ACT", 1)), (late, 2), FAR, C.act_slot) for late in kinds]
    return found


STATE = {  # rules of state, not of distance: these sequences are wrong at any distance
    "CLOSED": ((0, "RD", 0),),
    "CLOSED after PRE": ((0, "ACT", 0), (FAR, "PRE", 0), (2 * FAR, "WR", 0)),
    "OPEN": ((0, "ACT", 0), (FAR, "ACT", 0)),
    "OPEN to REFpb": ((0, "ACT", 0), (FAR, "REFpb", 0)),
    "OPEN to REFab": ((0, "ACT", 5), (FAR, "REFab", 0)),
    "ROUND": ((0, "REFpb", 0), (2 * C.rfcpb, "REFpb", 0)),
    "PULLIN": tuple((k * C.rfcab, "REFab", 0) for k in range(T.postpone + 4)),
}


class TB:
    """Plays command sequences, from reset each."""

    def __init__(self, dut):
        self.dut = dut
        start_clock(dut.clk)

    async def play(self, commands: list[tuple[int, str, int]], end: int = 0) -> tuple[str, int] | None:
        """The first rule that the device reports and the clock of its command, or None. Stops at `end` at the least."""
        dut = self.dut
        dut.rst.value = 1
        dut.port__row.value = dut.port__column.value = 0
        await ClockCycles(dut.clk, 2, FallingEdge)
        dut.rst.value = 0
        todo, clock = sorted(commands), 0
        while todo or clock < end:
            here = [command for command in todo if command[0] == clock]
            todo = todo[len(here) :]
            dut.port__row.value = sum(row_bits(name, bank) for _, name, bank in here if name in ROW)
            dut.port__column.value = sum(column_bits(name, bank) for _, name, bank in here if name in COLUMN)
            await FallingEdge(dut.clk)
            if int(dut.violation.value):
                return CODES[int(dut.violation.value)], clock
            quiet = (todo[0][0] if todo else end) - clock - 1
            clock += 1
            if here and quiet > 0:
                dut.port__row.value = dut.port__column.value = 0
                await ClockCycles(dut.clk, quiet, FallingEdge)
                clock += quiet
                if int(dut.violation.value):  # what time alone breaks: a refresh that never came
                    return CODES[int(dut.violation.value)], clock
        return None


def row_bits(name: str, bank: int) -> int:
    return ROW[name].value | bank << 3 | 1 << (3 + CONFIG.bank_bits)


def column_bits(name: str, bank: int) -> int:
    return COLUMN[name].value | bank << 2


def golden(commands: list[tuple[int, str, int]], end: int | None = None) -> dict[int, set[str]]:
    """The checker's breaches: clock of the later command to names of rules."""
    order = sorted(commands, key=lambda c: (c[0], c[1] in ROW))
    found: dict[int, set[str]] = {}
    for breach in check([Command(clock, name, bank, 1) for clock, name, bank in order], T, end):
        found.setdefault(breach.second.clock, set()).add(breach.rule)
    return found


def earliest(commands: list[tuple[int, str, int]], clock: int, kind: str, bank: int) -> int | None:
    """The first clock from `clock` on at which the checker accepts the command; None if there is none."""
    while True:
        order = [Command(*c, 1) for c in [*commands, (clock, kind, bank)]]
        late = [breach for breach in check(order, T) if breach.second == order[-1]]
        if not late:
            return clock
        if any(breach.first is None for breach in late):
            return None
        clock = max(breach.first.clock + math.ceil(breach.least / T.clock - 1e-6) for breach in late)


@cocotb.test()
async def test_every_rule(dut) -> None:
    """One clock early: both name the rule. At the first clock that breaks nothing: both are silent."""
    tb, seen = TB(dut), set()
    for case in cases():

        def at(distance: int, case: Case = case) -> list[tuple[int, str, int]]:
            return [*case.before, (case.start + distance, *case.last)]

        early = at(case.least - 1)
        assert case.rule in golden(early).get(early[-1][0], set()), f"golden misses {case}: {golden(early)}"
        found = await tb.play(early)
        assert found and found[1] == early[-1][0], f"device on {case}: {found}"
        assert found[0] == case.rule or found[0] in golden(early)[found[1]], f"device on {case}: {found}"
        seen.add((case.rule, case.last[0]))
        legal = next((d for d in range(case.least, case.least + 2000) if not golden(at(d))), None)
        if legal is None:  # the state of the banks forbids it for ever
            assert case.last[0] == "REFab" and "OPEN" in golden(early)[early[-1][0]], case
            continue
        assert await tb.play(at(legal)) is None, f"device refuses {case} at {legal}"
        if legal > case.least:  # another rule binds later: the device must know that one too
            found = await tb.play(at(legal - 1))
            assert found and found[0] in golden(at(legal - 1))[at(legal - 1)[-1][0]], (case, found)
    # All that the checker knows, but distances of one clock, which slots of one command a clock cannot break.
    known = {(rule, late) for rule, late, least in distances(T) if math.ceil(least / T.clock - 1e-6) > 1}
    assert seen >= known, f"rules without a case: {sorted(known - seen)}"
    rules = {rule for rule, _ in seen}
    dut._log.info("%d pairs of %d rules broken and kept: %s", len(seen), len(rules), " ".join(sorted(rules)))


@cocotb.test()
async def test_illegal_commands(dut) -> None:
    """Commands that the state of the banks forbids at any distance."""
    tb = TB(dut)
    for name, commands in STATE.items():
        rule, clock = name.split()[0], commands[-1][0]
        expected = golden(list(commands))
        found = await tb.play(list(commands))
        assert found is not None and found[0] == rule and rule in expected.get(found[1], set()), (name, found, expected)
        assert found[1] <= clock


@cocotb.test()
async def test_late_refresh(dut) -> None:
    """No refresh at all: reported when the ninth interval passes, by both."""
    end = C.refi * (T.postpone + 2)
    found = await TB(dut).play([(0, "ACT", 0)], end)
    assert found is not None and found[0] == "REFI", found
    assert "REFI" in golden([(0, "ACT", 0)], end)[end]
    assert not golden([(0, "ACT", 0)], C.refi * T.postpone)


@cocotb.test()
async def test_random_commands(dut) -> None:
    """Random sequences near the limits: the first breach is the same for both, at the same clock."""
    generator, tb = random.Random(int(os.environ["SERRANO_SEED"])), TB(dut)
    breaches, clean = 0, 0
    for _ in range(int(os.environ.get("HBM_SEQUENCES", "150"))):
        commands, clock = [], -1
        for _ in range(12):
            kind = generator.choice(["ACT"] * 4 + ["RD"] * 4 + ["WR"] * 3 + ["PRE"] * 3 + ["REFpb", "PREA", "REFab"])
            bank = generator.randrange(0, T.total_banks, max(1, T.banks // 2))
            lower = earliest(commands, clock + 1, kind, bank)
            if lower is None and generator.random() < 0.95:
                continue  # the state of the banks forbids it at any clock
            lower = (clock + 40 if lower is None else lower) - (generator.random() < 0.06)
            clock = max(lower, clock + 1)
            commands.append((clock, kind, bank))
        expected = golden(commands)
        found = await tb.play(commands)
        if not expected:
            clean += 1
            assert found is None, (found, commands)
        else:
            breaches += 1
            first = min(expected)
            assert found is not None and found[1] == first and found[0] in expected[first], (found, expected, commands)
    dut._log.info("%d sequences with a breach, %d without", breaches, clean)
    assert breaches > 10 and clean > 10, (breaches, clean)
