"""Refresh: when it is owed, which bank takes it, and what the scheduler must hold back for it.

Per-bank refresh goes in rounds: every bank once before any bank again, as the standards demand. Within a round the
order is free, so a bank is refreshed when nothing wants it. Debt counts refreshes owed: it may go one round below
zero (pulled in) and is forced long before the standard's limit of eight rounds above.
"""

from __future__ import annotations

from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Module, Mux, Signal, signed, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .address import AddressMap
from .config import HbmConfig
from .mask import lowest, one_hot, select

__all__ = ["AllBankRefresh", "PerBankRefresh", "StreamGuard"]

QUIET = 1 << 11  # clocks after which a stream is forgotten


def refresh_signature(config: HbmConfig) -> dict:
    """Ports of both refreshers.

    `pending`: banks with requests; `guard`: banks soon to be used; `near`: those that a stream is in; `open`,
    `can_refresh`, `can_refresh_all`: state and rules of the banks. Out: `hold`, banks that must not be activated;
    `close`, banks to close when no request hits them, or at any rate with `force`; `stop`, no column commands;
    `issue`, REFpb to this bank now; `issue_all`, REFab now.
    """
    banks = config.timing.total_banks
    return {
        "pending": In(banks), "guard": In(banks), "near": In(banks), "open": In(banks), "can_refresh": In(banks),
        "can_refresh_all": In(1), "hold": Out(banks), "close": Out(banks), "force": Out(1), "stop": Out(1),
        "issue": Out(banks), "issue_all": Out(1), "debt": Out(signed(12)),
    }  # fmt: skip


class PerBankRefresh(wiring.Component):
    """REFpb into idle banks; forced only when a bank never was idle in `FORCE` rounds."""

    FORCE = 5

    def __init__(self, config: HbmConfig):
        self._config = config
        super().__init__(refresh_signature(config))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, banks = self._config, self._config.timing.total_banks
        # `banks` refreshes in `refi` clocks, exactly: a rounded period would run ahead of the standard for ever.
        interval = config.cycles.refi
        phase, done = Signal(range(interval)), Signal(banks)
        advanced = phase + banks
        tick = advanced >= interval
        issued = self.issue.any()
        m.d.sync += [phase.eq(Mux(tick, advanced - interval, advanced)), self.debt.eq(self.debt + tick - issued)]

        after = Signal(banks)
        m.d.comb += after.eq(done | self.issue)
        m.d.sync += done.eq(Mux(after.all(), 0, after))

        forced, target = self.debt >= self.FORCE * banks, Signal(banks)
        # A target is kept until it is refreshed, so that its bank is not drained in vain.
        m.d.sync += target.eq(Mux((target & ~done).any(), target & ~after, Mux(forced, lowest(~done), 0)))
        idle = ~done & ~self.pending & (self.debt > -banks).replicate(banks)
        chosen = Signal(banks)
        m.d.comb += [
            # A slow stream is in one set of banks for rounds: those wait until a refresh is forced.
            chosen.eq((idle & ~self.near & (~self.guard | (self.debt >= banks).replicate(banks))) | target),
            self.hold.eq(target),
            self.close.eq(chosen & self.open),
            self.force.eq(self.debt >= (self.FORCE + 2) * banks),
            self.issue.eq(lowest(chosen & self.can_refresh)),
        ]
        return m


class AllBankRefresh(wiring.Component):
    """REFab: `refresh_batch` refreshes are postponed and issued together, or one at a time when nothing is queued."""

    def __init__(self, config: HbmConfig):
        self._config = config
        super().__init__(refresh_signature(config))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        period = self._config.cycles.refi
        timer, drain = Signal(range(period)), Signal()
        tick = timer == period - 1
        m.d.sync += [timer.eq(Mux(tick, 0, timer + 1)), self.debt.eq(self.debt + tick - self.issue_all)]
        start = (self.debt >= self._config.refresh_batch) | ((self.debt >= 1) & ~self.pending.any())
        with m.If(drain):
            m.d.sync += drain.eq(~(self.issue_all & (self.debt <= 1)))
        with m.Else():
            m.d.sync += drain.eq(start)
        m.d.comb += [
            self.hold.eq(drain.replicate(len(self.hold))),
            self.close.eq(drain.replicate(len(self.close)) & self.open),
            self.force.eq(drain),
            self.stop.eq(drain),
            self.issue_all.eq(drain & self.can_refresh_all),
        ]
        return m


class StreamGuard(wiring.Component):
    """Banks that sequential streams are about to enter, so that refresh keeps away from them.

    Two streams are followed (a weight stream stays followed while pages come and go). For each, the banks at a few
    distances ahead are marked, with the banks of the other groups beside them, as far as a refresh lasts. `near` are
    those in use now, whose rows stay open.
    """

    def __init__(self, config: HbmConfig):
        self._config = config
        super().__init__({
            "valid": In(1), "address": In(unsigned(config.address_bits)),
            "near": Out(config.timing.total_banks), "banks": Out(config.timing.total_banks),
        })  # fmt: skip

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, t, c = self._config, self._config.timing, self._config.cycles
        address_map = AddressMap(config)
        per_set = t.columns * t.groups
        reach = (c.rfcpb + c.rp) // c.bl
        distances = [4 * t.groups, *range(per_set, reach, per_set), reach]
        last = [Signal(config.address_bits, name=f"last{k}") for k in range(2)]
        follows = [Signal(name=f"follows{k}") for k in range(2)]
        newest = Signal()
        m.d.comb += [f.eq(self.address == (l + 1)[: len(l)]) for f, l in zip(follows, last, strict=True)]
        # A stream counts once two requests have followed each other, until it has been quiet for long.
        live, quiet = Signal(2), [Signal(range(QUIET), name=f"quiet{k}") for k in range(2)]
        for k in range(2):
            m.d.sync += quiet[k].eq(quiet[k] + 1)
            with m.If(quiet[k] == QUIET - 1):
                m.d.sync += live[k].eq(0)
        with m.If(self.valid):
            for k, chosen in enumerate((follows[0] | (newest & ~follows[1]), ~follows[0] & (follows[1] | ~newest))):
                with m.If(chosen):
                    m.d.sync += [last[k].eq(self.address), newest.eq(k), live[k].eq(follows[k]), quiet[k].eq(0)]
        near, marks = [], []
        for k, start in enumerate(last):
            for j, distance in enumerate([0, *distances]):
                bank = Signal(config.bank_bits, name=f"ahead{k}_{j}")
                _, mapped, _ = address_map.split((start + distance)[: config.address_bits])
                m.d.comb += bank.eq(mapped)
                (near if j < 2 else marks).append(select(live[k], self._all_groups(bank)))
        m.d.sync += [self.near.eq(reduce(or_, near)), self.banks.eq(reduce(or_, near + marks))]
        return m

    def _all_groups(self, bank: Signal):
        """The bank and its neighbours of the same number in the other groups of its stack."""
        t = self._config.timing
        low, group = t.banks.bit_length() - 1, t.groups.bit_length() - 1
        inside, stack = one_hot(bank[:low], t.banks), bank[low + group :]
        stacks = one_hot(stack, t.sids) if t.sids > 1 else [1]
        return Cat(inside & (s.replicate(t.banks) if t.sids > 1 else (1 << t.banks) - 1)
                   for s in stacks for _ in range(t.groups))  # fmt: skip
