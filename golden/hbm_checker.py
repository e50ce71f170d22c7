"""Checks a command trace of one HBM pseudo-channel against the standard's rules.

It knows the timing table in nanoseconds and the trace, not the controller and not `rtl/hbm_rules.sv`: times are
compared in nanoseconds, each rule is a pair of commands with the scope in which it holds.

A trace has one command a line: `clock command bank argument`, as the device writes it (+hbmN_trace). A row command and
a column command may share a clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from hw.hbm.timing import Timing

__all__ = ["Breach", "Command", "check", "distances", "read_trace"]

SLACK = 1e-6  # nanoseconds; clocks such as 0.625 ns are exact, sums of the table's decimals are not


@dataclass(frozen=True)
class Command:
    """One command of the trace; `argument` is a row or a column."""

    clock: int
    name: str
    bank: int
    argument: int


@dataclass(frozen=True)
class Breach:
    """A broken rule: both commands, and the distance found and required in nanoseconds."""

    rule: str
    first: Command | None
    second: Command
    found: float
    least: float


@dataclass(frozen=True)
class _Rule:
    """`second` must come at least `least` ns after each earlier `first` in the same `scope` (`other`: not in it)."""

    name: str
    first: tuple[str, ...]
    second: tuple[str, ...]
    scope: str
    least: float
    nth: int = 1


def _rules(t: Timing) -> list[_Rule]:
    columns, closes = ("RD", "WR"), ("PRE", "PREA")
    end = t.cwl + t.burst
    rows = ("ACT", "PRE", "PREA", "REFpb", "REFab")
    return [
        _Rule("RC", ("ACT",), ("ACT", "REFpb"), "bank", t.rc),
        _Rule("RC", ("ACT",), ("REFab",), "all", t.rc),
        _Rule("RCDRD", ("ACT",), ("RD",), "bank", t.rcdrd),
        _Rule("RCDWR", ("ACT",), ("WR",), "bank", t.rcdwr),
        _Rule("RAS", ("ACT",), ("PRE",), "bank", t.ras),
        _Rule("RAS", ("ACT",), ("PREA",), "all", t.ras),
        _Rule("RP", ("PRE",), ("ACT", "REFpb"), "bank", t.rp),
        _Rule("RP", ("PREA",), ("ACT", "REFpb", "REFab"), "all", t.rp),
        _Rule("RP", ("PRE",), ("REFab",), "all", t.rp),
        _Rule("RTP", ("RD",), ("PRE",), "bank", t.rtp),
        _Rule("RTP", ("RD",), ("PREA",), "all", t.rtp),
        _Rule("WR", ("WR",), ("PRE",), "bank", end + t.wr),
        _Rule("WR", ("WR",), ("PREA",), "all", end + t.wr),
        _Rule("RRDS", ("ACT",), ("ACT", "REFpb"), "all", t.rrds),
        _Rule("RRDL", ("ACT",), ("ACT", "REFpb"), "group", t.rrdl),
        _Rule("FAW", ("ACT",), ("ACT",), "all", t.faw, nth=4),
        _Rule("CCDS", columns, columns, "all", max(t.ccds, t.burst)),
        _Rule("CCDL", columns, columns, "group", t.ccdl),
        _Rule("CCDR", columns, columns, "other stack", t.ccdr),
        _Rule("WTRS", ("WR",), ("RD",), "all", end + t.wtrs),
        _Rule("WTRL", ("WR",), ("RD",), "group", end + t.wtrl),
        _Rule("RTW", ("RD",), ("WR",), "all", t.rtw),
        _Rule("PPD", closes, closes, "all", t.ppd),
        _Rule("SLOT", ("ACT",), rows, "all", t.act_slot),
        _Rule("RFCPB", ("REFpb",), ("ACT", "REFpb"), "bank", t.rfcpb),
        _Rule("RFCPB", ("REFpb",), ("REFab",), "all", t.rfcpb),
        _Rule("RFCAB", ("REFab",), rows, "all", t.rfcab),
        _Rule("RREFD", ("REFpb",), ("ACT", "REFpb"), "all", t.rrefd),
    ]


def distances(timing: Timing) -> list[tuple[str, str, float]]:
    """Every rule of distance that the checker knows: its name, the later command, and the least distance in ns."""
    rules = [rule for rule in _rules(timing) if rule.scope != "other stack" or timing.sids > 1]
    return [(rule.name, later, rule.least) for rule in rules for later in rule.second]


def read_trace(path: Path) -> list[Command]:
    """Commands of a trace file. Raises ValueError when it has none."""
    commands = []
    for line in path.read_text().splitlines():
        clock, name, bank, argument = line.split()
        commands.append(Command(int(clock), name, int(bank), int(argument)))
    if not commands:
        raise ValueError(f"{path} has no command")
    return commands


def check(commands: Iterable[Command], timing: Timing, end: int | None = None, refresh: bool = True) -> list[Breach]:
    """Every breach in the trace, in order. `end`: clock at which the trace ends, for refreshes that never came."""
    return _Checker(timing, refresh).run(list(commands), end)


class _Checker:
    def __init__(self, timing: Timing, refresh: bool):
        self.t = timing
        self.refresh = refresh
        self.by_second: dict[str, list[_Rule]] = {}
        for rule in _rules(timing):
            for name in rule.second:
                self.by_second.setdefault(name, []).append(rule)
        self.history: dict[tuple[str, str, int], list[Command]] = {}
        self.row: dict[int, int] = {}  # bank -> open row
        self.round: set[int] = set()
        self.rounds = 0
        self.breaches: list[Breach] = []

    def run(self, commands: list[Command], end: int | None) -> list[Breach]:
        for command in commands:
            self._distances(command)
            self._state(command)
            for scope in ("bank", "group", "stack", "all"):
                seen = self.history.setdefault((command.name, scope, self._index(command, scope)), [])
                seen.append(command)
                del seen[:-4]
        if end is not None and commands:
            self._late(Command(end, "END", 0, 0))
        return self.breaches

    def _index(self, command: Command, scope: str) -> int:
        t = self.t
        per = {"bank": 1, "group": t.banks, "stack": t.banks * t.groups, "all": t.total_banks}[scope]
        return command.bank // per

    def _breach(self, rule: str, first: Command | None, second: Command, found: float = 0, least: float = 0) -> None:
        self.breaches.append(Breach(rule, first, second, found, least))

    def _distances(self, command: Command) -> None:
        for rule in self.by_second.get(command.name, ()):
            if rule.scope == "other stack":
                own = self._index(command, "stack")
                places = [("stack", s) for s in range(self.t.sids) if s != own]
            else:
                places = [(rule.scope, self._index(command, rule.scope))]
            earlier = [
                first for name in rule.first for scope, index in places
                for first in self.history.get((name, scope, index), [])
            ]  # fmt: skip
            earlier.sort(key=lambda c: c.clock)
            if len(earlier) >= rule.nth:
                first = earlier[-rule.nth]
                found = (command.clock - first.clock) * self.t.clock
                if found < rule.least - SLACK:
                    self._breach(rule.name, first, command, found, rule.least)

    def _state(self, command: Command) -> None:
        name, bank = command.name, command.bank
        if name == "ACT":
            if bank in self.row:
                self._breach("OPEN", None, command)
            self.row[bank] = command.argument
        elif name in ("RD", "WR"):
            if bank not in self.row:
                self._breach("CLOSED", None, command)
        elif name == "PRE":
            self.row.pop(bank, None)
        elif name == "PREA":
            self.row.clear()
        elif name == "REFpb":
            if bank in self.row:
                self._breach("OPEN", None, command)
            if bank in self.round:
                self._breach("ROUND", None, command)
            self.round.add(bank)
            if len(self.round) == self.t.total_banks:
                self._round_done(command)
        elif name == "REFab":
            if self.row:
                self._breach("OPEN", None, command)
            self._round_done(command)
        else:
            self._breach("COMMAND", None, command)
        self._late(command)

    def _due(self, command: Command) -> int:
        """Refresh intervals that have passed."""
        return int(command.clock * self.t.clock / self.t.refi + SLACK)

    def _round_done(self, command: Command) -> None:
        self.round.clear()
        self.rounds += 1
        if self.refresh and self.rounds > self._due(command) + 1 + self.t.postpone:
            self._breach("PULLIN", None, command)

    def _late(self, command: Command) -> None:
        if self.refresh and self._due(command) > self.rounds + self.t.postpone:
            self._breach("REFI", None, command)
