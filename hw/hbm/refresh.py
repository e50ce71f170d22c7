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
from .interface import Hint
from .mask import lowest, one_hot, select

__all__ = ["AllBankRefresh", "ArrivalPace", "PerBankRefresh", "StreamGuard"]

QUIET = 1 << 11  # clocks after which a stream is forgotten
SLOW_AHEAD = 8  # granules that a stream advances during a refresh in sparse traffic, at the most
SLOW_DISTANCES = {1: (0, 1), 4: (2, 3, 4), SLOW_AHEAD: (7, 8)}  # marked for a stream that advances that many, or fewer


def sparse_gap(config: HbmConfig) -> int:
    """Clocks between requests from which on traffic is sparse: at most SLOW_AHEAD requests come during a refresh."""
    return -(-(config.cycles.rfcpb + config.cycles.rp) // SLOW_AHEAD)


def refresh_signature(config: HbmConfig) -> dict:
    """Ports of both refreshers.

    `pending`: banks with requests; `guard`: banks soon to be used; `near`: those that a stream is in; `start`, `late`:
    from `ArrivalPace`; `open`, `can_refresh`, `can_refresh_all`: state and rules of the banks. Out: `hold`, banks that
    must not be activated; `close`, banks to close when no request hits them, or at any rate with `force`; `stop`, no
    column commands; `issue`, REFpb to this bank now; `issue_all`, REFab now.
    """
    banks = config.timing.total_banks
    return {
        "pending": In(banks), "guard": In(banks), "near": In(banks), "start": In(1), "late": In(1),
        "open": In(banks), "can_refresh": In(banks), "can_refresh_all": In(1), "hold": Out(banks), "close": Out(banks),
        "force": Out(1), "stop": Out(1), "issue": Out(banks), "issue_all": Out(1), "debt": Out(signed(12)),
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
        idle, chosen, good = Signal(banks), Signal(banks), Signal()
        m.d.comb += [
            # In sparse traffic a refresh waits for a good time, the less the more is owed.
            good.eq(self.start | (self.late & (self.debt >= 0)) | (self.debt >= banks)),
            idle.eq(select(good & (self.debt > -banks), ~done & ~self.pending)),
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


class ArrivalPace(wiring.Component):
    """When to start a refresh so that the fewest requests meet it.

    While requests come far apart, the next is expected as long after the last as that one came after its predecessor.
    A refresh that starts right after a request, or that ends before the next is due, meets one request less than one
    that starts at any time, and the one that it does meet has less to wait for.

    Interface attributes
    --------------------
    valid : In
        A request is accepted at this clock.
    full : In
        A queue is full: if requests come far apart, it is for want of room.
    sparse : Out
        The last three requests were at least `sparse_gap` clocks apart. One long gap is a stream that was held up.
    start : Out
        A good clock to start a refresh; always high in dense traffic and in silence.
    late : Out
        The next request is overdue.
    """

    WINDOW = 4
    SILENCE = 4095

    def __init__(self, config: HbmConfig):
        self._config = config
        super().__init__({"valid": In(1), "full": In(1), "sparse": Out(1), "start": Out(1), "late": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        age, gap = Signal(range(self.SILENCE + 1), init=self.SILENCE), Signal(range(self.SILENCE + 1))
        m.d.sync += age.eq(Mux(self.valid, 0, age + (age != self.SILENCE)))
        with m.If(self.valid):
            least = sparse_gap(self._config) - 1
            m.d.sync += [gap.eq(age), self.sparse.eq((age >= least) & (gap >= least) & ~self.full)]
        m.d.comb += [
            self.late.eq(age > gap),
            self.start.eq(
                ~self.sparse | (age < self.WINDOW) | (age + self._config.cycles.rfcpb <= gap) | (age == self.SILENCE)
            ),
        ]
        return m


class StreamGuard(wiring.Component):
    """Banks that sequential streams are about to enter, so that refresh keeps away from them.

    Two streams are followed (a weight stream stays followed while pages come and go). For each, the banks at a few
    distances ahead are marked, with the banks of the other groups beside them, as far as a refresh lasts. In `sparse`
    traffic a stream passes few granules in that time, and only the banks of those are marked.

    Interface attributes
    --------------------
    valid, address, hint, last : In
        A request is accepted at this clock. `Hint.WEIGHTS` goes to the first stream, which then is followed until it is
        silent; `Hint.PAGE` to the second, which ends with the `last` of its range.
    sparse : In
        From `ArrivalPace`.
    near : Out
        Banks in use by a stream now: their rows stay open.
    avoid, banks : Out
        Banks for refresh to keep out of unless it is forced, and as long as it is not in arrears. In sparse traffic
        also where a stream would go on from any of the last requests.
    """

    def __init__(self, config: HbmConfig):
        self._config = config
        super().__init__({
            "valid": In(1), "address": In(unsigned(config.address_bits)), "sparse": In(1),
            "hint": In(Hint), "last": In(1),
            **{name: Out(config.timing.total_banks) for name in ("near", "avoid", "banks")},
        })  # fmt: skip

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, c = self._config, self._config.cycles
        last = [Signal(config.address_bits, name=f"last{k}") for k in range(2)]
        follows = [Signal(name=f"follows{k}") for k in range(2)]
        newest = Signal()
        m.d.comb += [f.eq(self.address == (l + 1)[: len(l)]) for f, l in zip(follows, last, strict=True)]
        # A stream counts once two requests have followed each other, until it has been quiet for long.
        # `paces`: which of SLOW_DISTANCES a stream needs, from the time between its last two requests.
        paces = [Signal(len(SLOW_DISTANCES), name=f"paces{k}") for k in range(2)]
        limits = [-(-(c.rfcpb + c.rp) // ahead) for ahead in list(SLOW_DISTANCES)[:-1]]
        live, seen, quiet = Signal(2), Signal(2), [Signal(range(QUIET), name=f"quiet{k}") for k in range(2)]
        for k in range(2):
            m.d.sync += quiet[k].eq(quiet[k] + 1)
            with m.If(quiet[k] == QUIET - 1):
                m.d.sync += [live[k].eq(0), seen[k].eq(0)]
        pinned, first, ends = Signal(), Signal(), Signal()
        m.d.comb += [
            ends.eq((self.hint == Hint.PAGE) & self.last),
            first.eq(Mux(
                self.hint == Hint.NONE, follows[0] | (newest & ~follows[1] & ~(pinned & live[0])),
                self.hint == Hint.WEIGHTS,
            )),
        ]  # fmt: skip
        with m.If(self.valid):
            with m.If(first):
                m.d.sync += pinned.eq(self.hint == Hint.WEIGHTS)
            for k, chosen in enumerate((first, ~first)):
                with m.If(chosen):
                    m.d.sync += [
                        last[k].eq(self.address), newest.eq(k), live[k].eq(follows[k] & ~ends), seen[k].eq(~ends),
                        quiet[k].eq(0),
                        paces[k].eq(Cat(1, *(follows[k] & (quiet[k] < limit - 1) for limit in limits))),
                    ]  # fmt: skip
        self._mark(m, last, live, seen, paces)
        return m

    def _mark(self, m: Module, last: list[Signal], live: Signal, seen: Signal, paces: list[Signal]) -> None:
        """The banks ahead of both streams."""
        config, t, c = self._config, self._config.timing, self._config.cycles
        address_map = AddressMap(config)
        per_set = t.columns * t.groups
        reach = (c.rfcpb + c.rp) // c.bl
        distances = [4 * t.groups, *range(per_set, reach, per_set), reach]
        near, marks, slow, maybe = [], [], [], []
        for k, start in enumerate(last):

            def ahead(distance: int, start: Signal = start) -> Signal:
                bank = Signal(config.bank_bits, name=f"ahead{distance}")
                m.d.comb += bank.eq(address_map.split((start + distance)[: config.address_bits])[1])
                return bank

            fast = [select(live[k], self._all_groups(ahead(distance))) for distance in (0, *distances)]
            near, marks = near + fast[:2], marks + fast
            banks = reduce(or_, [
                select(needed, one_hot(ahead(distance), t.total_banks))
                for needed, distances_here in zip(paces[k], SLOW_DISTANCES.values(), strict=True)
                for distance in distances_here
            ])  # fmt: skip
            maybe.append(select(seen[k], banks))
            slow.append(select(live[k], banks))
        m.d.sync += [
            self.near.eq(Mux(self.sparse, slow[0] | slow[1], reduce(or_, near))),
            self.avoid.eq(Mux(self.sparse, maybe[0] | maybe[1], reduce(or_, near))),
            self.banks.eq(Mux(self.sparse, maybe[0] | maybe[1], reduce(or_, marks))),
        ]

    def _all_groups(self, bank: Signal):
        """The bank and its neighbours of the same number in the other groups of its stack."""
        t = self._config.timing
        low, group = t.banks.bit_length() - 1, t.groups.bit_length() - 1
        inside, stack = one_hot(bank[:low], t.banks), bank[low + group :]
        stacks = one_hot(stack, t.sids) if t.sids > 1 else [1]
        return Cat(inside & (s.replicate(t.banks) if t.sids > 1 else (1 << t.banks) - 1)
                   for s in stacks for _ in range(t.groups))  # fmt: skip
