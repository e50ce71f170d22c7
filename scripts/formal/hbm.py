"""Properties of the HBM controller's parts as harnesses with an output `bad`, for `scripts.formal.engine.prove`.

The banks and the times are few and small, so that the proofs end; the hardware is the same at any size, since its
constants are data. Every environment is free: any command that the block calls legal may come at any clock.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from types import SimpleNamespace

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.hbm.banks import BankState
from hw.hbm.mask import lowest, one_hot
from hw.hbm.queue import RequestQueue
from hw.hbm.refresh import PerBankRefresh
from hw.hbm.timing import Cycles
from scripts.formal.engine import require

__all__ = ["RULES", "SMALL", "BankRule", "BankStates", "OverdueIsServed", "QueueKeeps", "RefreshDebt"]

SMALL = SimpleNamespace(
    cycles=Cycles(
        bl=1, cl=4, cwl=2, rcdrd=3, rcdwr=2, rp=3, ras=4, rc=9, ccds=2, ccdl=3, ccdr=3, rrds=2, rrdl=3, faw=6, rtp=2,
        wr_pre=5, wtrs=3, wtrl=4, rtw=4, ppd=2, rfcab=6, rfcpb=5, rrefd=3, refi=24, act_slot=2,
    ),
    timing=SimpleNamespace(total_banks=4, banks=2, groups=2, sids=1),
)  # fmt: skip


@dataclass(frozen=True)
class Rule:
    """`second` keeps `distance` clocks from each earlier `first` in the scope: bank, group or all."""

    first: tuple[str, ...]
    second: tuple[str, ...]
    scope: str
    distance: int
    nth: int = 1


C = SMALL.cycles
COLUMN = ("read", "write")
RULES = {
    "RC": Rule(("act",), ("act", "refresh"), "bank", C.rc),
    "RC all": Rule(("act",), ("refresh_all",), "all", C.rc),
    "RCDRD": Rule(("act",), ("read",), "bank", C.rcdrd),
    "RCDWR": Rule(("act",), ("write",), "bank", C.rcdwr),
    "RAS": Rule(("act",), ("pre",), "bank", C.ras),
    "RP": Rule(("pre",), ("act", "refresh"), "bank", C.rp),
    "RP all": Rule(("pre",), ("refresh_all",), "all", C.rp),
    "RTP": Rule(("read",), ("pre",), "bank", C.rtp),
    "WR": Rule(("write",), ("pre",), "bank", C.wr_pre),
    "RRDS": Rule(("act",), ("act", "refresh"), "all", C.rrds),
    "RRDL": Rule(("act",), ("act", "refresh"), "group", C.rrdl),
    "FAW": Rule(("act",), ("act",), "all", C.faw, nth=4),
    "CCDS": Rule(COLUMN, COLUMN, "all", C.ccds),
    "CCDL": Rule(COLUMN, COLUMN, "group", C.ccdl),
    "WTRS": Rule(("write",), ("read",), "all", C.wtrs),
    "WTRL": Rule(("write",), ("read",), "group", C.wtrl),
    "RTW": Rule(("read",), ("write",), "all", C.rtw),
    "PPD": Rule(("pre",), ("pre",), "all", C.ppd),
    "SLOT": Rule(("act",), ("act", "pre", "refresh", "refresh_all"), "all", C.act_slot),
    "RFCPB": Rule(("refresh",), ("act", "refresh"), "bank", C.rfcpb),
    "RFCAB": Rule(("refresh_all",), ("act", "pre", "refresh", "refresh_all"), "all", C.rfcab),
    "RREFD": Rule(("refresh",), ("act", "refresh"), "all", C.rrefd),
}


FIELDS = {"WR": "wr_pre", "SLOT": "act_slot"}


def only(name: str) -> SimpleNamespace:
    """`SMALL` with rule `name` alone: every other distance is one clock.

    The masks of legal commands are conjunctions, one term a rule. With the other terms gone more commands are legal,
    so what is proven for a rule alone holds for all rules together.
    """
    field = FIELDS.get(name.split()[0], name.split()[0].lower())
    alone = {f.name: getattr(C, f.name) if f.name == field else 1 for f in fields(Cycles)}
    return SimpleNamespace(cycles=Cycles(**alone), timing=SMALL.timing)


class _Commands(wiring.Component):
    """`BankState` under a free choice among the commands that it calls legal, one a slot and clock."""

    def __init__(self, state: type[BankState] = BankState, config: SimpleNamespace = SMALL):
        self._state = state
        self._small = config
        banks = SMALL.timing.total_banks
        super().__init__({"choice": In(3), "wish": In(banks), "column_wish": In(banks), "column": In(1), "bad": Out(1)})

    def commands(self, m: Module) -> dict[str, Value]:
        m.submodules.dut = dut = self._state(self._small)
        self.dut = dut
        banks = SMALL.timing.total_banks
        row = {"act": dut.can_act, "pre": dut.can_pre, "refresh": dut.can_refresh}
        for k, (name, legal) in enumerate(row.items()):
            m.d.comb += getattr(dut, name).eq(Mux(self.choice == k, lowest(self.wish & legal), 0))
        # A column command goes beside a row command, but not to a bank that closes at this clock.
        wish = lowest(self.column_wish)
        m.d.comb += [
            dut.read.eq(Mux(self.column, wish & dut.can_read & ~dut.pre, 0)),
            dut.write.eq(Mux(self.column, 0, wish & dut.can_write & ~dut.pre)),
            dut.refresh_all.eq((self.choice == 3) & dut.can_refresh_all),
        ]
        return {
            "act": dut.act, "pre": dut.pre, "refresh": dut.refresh, "read": dut.read, "write": dut.write,
            "refresh_all": dut.refresh_all.replicate(banks),
        }  # fmt: skip


class BankRule(_Commands):
    """One rule of distance, watched by counters of its own."""

    def __init__(self, name: str, state: type[BankState] = BankState):
        self._rule = RULES[name]
        super().__init__(state, only(name))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        issued, rule, t = self.commands(m), self._rule, SMALL.timing
        size = {"bank": 1, "group": t.banks, "all": t.total_banks}[rule.scope]
        broken = []
        for low in range(0, t.total_banks, size):
            first = Cat(issued[name][low : low + size] for name in rule.first).any()
            second = Cat(issued[name][low : low + size] for name in rule.second).any()
            ages = [Signal(range(rule.distance + 1), init=rule.distance, name=f"age{low}_{k}") for k in range(rule.nth)]
            for k, age in enumerate(ages):
                # The k-th youngest: when a new one comes, each takes its younger neighbour's age.
                younger = _grown(ages[k - 1], rule.distance) if k else 1
                m.d.sync += age.eq(Mux(first, younger, _grown(age, rule.distance)))
            broken.append(second & (ages[-1] < rule.distance))
        require(m, self.bad, ~Cat(broken).any())
        return m


def _grown(age: Signal, most: int) -> Value:
    return Mux(age == most, age, age + 1)


class BankStates(_Commands):
    """No ACT or refresh to an open bank, no column command or PRE to a closed one."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        issued = self.commands(m)
        opened = Signal(SMALL.timing.total_banks)
        m.d.sync += opened.eq((opened | issued["act"]) & ~issued["pre"])
        wrong = (issued["act"] | issued["refresh"] | issued["refresh_all"]) & opened
        wrong = wrong | ((issued["read"] | issued["write"] | issued["pre"]) & ~opened)
        require(m, self.bad, ~wrong.any())
        return m


class RefreshDebt(wiring.Component):
    """Refreshes owed stay within bounds, whatever waits, if a bank that is held back can be refreshed `WAIT` clocks
    later. Bounds: one round ahead, and `FORCE` rounds and the refreshes that fall due in a wait behind.
    """

    WAIT = 4

    def __init__(self, refresher: type[PerBankRefresh] = PerBankRefresh):
        self._refresher = refresher
        banks = SMALL.timing.total_banks
        masks = {name: In(banks) for name in ("pending", "guard", "near", "able")}
        super().__init__({**masks, "start": In(1), "late": In(1), "bad": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        banks = SMALL.timing.total_banks
        m.submodules.dut = dut = self._refresher(SMALL)
        m.d.comb += [
            dut.start.eq(self.start), dut.late.eq(self.late),
            dut.pending.eq(self.pending), dut.guard.eq(self.guard), dut.near.eq(self.near),
            dut.can_refresh.eq(self.able),
        ]  # fmt: skip
        waited = Signal(range(self.WAIT + 1))
        blocked = dut.hold.any() & ~(dut.hold & self.able).any()
        m.d.sync += waited.eq(Mux(blocked, waited + 1, 0))
        low, high = -banks, dut.FORCE * banks + 3
        require(m, self.bad, (dut.debt >= low) & (dut.debt <= high), waited < self.WAIT)
        return m


class QueueKeeps(wiring.Component):
    """No request is lost, doubled or invented: a marked request leaves exactly once, and never stays behind when the
    queue says that it is empty; the level that `empty` and `full` show is pushes less takes.
    """

    DEPTH = 4

    def __init__(self, queue: type[RequestQueue] = RequestQueue):
        self._queue = queue
        self._config = SimpleNamespace(timing=SMALL.timing, bank_bits=2, row_bits=1, column_bits=1)
        super().__init__({
            "push": In(1), "bank": In(2), "row": In(1), "hit": In(1), "mark": In(1), "take": In(1), "ready": In(4),
            "act": In(4), "act_row": In(1), "closed": In(4), "strict": In(1), "bad": Out(1),
        })  # fmt: skip

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.dut = dut = self._queue(self._config, self.DEPTH, 1)
        level, inside = Signal(range(self.DEPTH + 1)), Signal()
        push, mark, take = Signal(), Signal(), Signal()
        m.d.comb += [
            push.eq(self.push & ~dut.full), mark.eq(self.mark & ~inside), take.eq(self.take & dut.pick_valid),
            dut.push.eq(push), dut.bank.eq(self.bank), dut.row.eq(self.row), dut.hit.eq(self.hit), dut.tag.eq(mark),
            dut.column_ready.eq(self.ready), dut.take.eq(take), dut.act.eq(self.act.any()),
            dut.act_bank.eq(lowest(self.act)), dut.act_row.eq(self.act_row), dut.closed.eq(self.closed),
            dut.strict.eq(self.strict),
        ]  # fmt: skip
        leaves = take & dut.pick_tag[0]
        m.d.sync += [level.eq(level + push - take), inside.eq((inside | (push & mark)) & ~leaves)]
        wrong = (leaves & ~inside) | (dut.empty & inside)
        wrong = wrong | (dut.empty != (level == 0)) | (dut.full != (level == self.DEPTH))
        require(m, self.bad, ~wrong)
        return m


class OverdueIsServed(wiring.Component):
    """The oldest request of a queue, once overdue, leaves within `BOUND` clocks, whatever comes and has come before.

    A queue of `DEPTH` and two banks of different groups, with the scheduler's rules of choice for one direction: the
    oldest request whose row is open has the column slot; of the row slot first ACT, then PRE, the oldest request first,
    and a row that a counted request hits stays open. Any request may come at any clock, and the oldest may be overdue
    from any clock on. Refresh takes banks that nobody waits for, at most `REFRESHES` times in the wait: each keeps ACT
    back for RREFD. (The direction's turn, and a refresh that is forced, come on top.) `BOUND` is exact: one clock less
    is refuted.
    """

    DEPTH, BOUND, REFRESHES = 4, 8, 2
    CYCLES = Cycles(
        bl=1, cl=1, cwl=1, rcdrd=2, rcdwr=1, rp=2, ras=3, rc=5, ccds=1, ccdl=2, ccdr=1, rrds=2, rrdl=2, faw=1, rtp=2,
        wr_pre=1, wtrs=1, wtrl=1, rtw=1, ppd=1, rfcab=1, rfcpb=3, rrefd=2, refi=24, act_slot=1,
    )  # fmt: skip

    def __init__(self, queue: type[RequestQueue] = RequestQueue, bound: int = BOUND):
        self._queue, self._bound = queue, bound
        timing = SimpleNamespace(total_banks=2, banks=1, groups=2, sids=1)
        self._small = SimpleNamespace(timing=timing, cycles=self.CYCLES, bank_bits=1, row_bits=1, column_bits=1)
        names = {"push": 1, "bank": 1, "row": 1, "overdue": 1, "refresh": timing.total_banks}
        super().__init__({**{name: In(width) for name, width in names.items()}, "bad": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.queue = queue = self._queue(self._small, self.DEPTH, 1)
        m.submodules.banks = banks = BankState(self._small)
        count = self._small.timing.total_banks
        rows, refreshes = [Signal(name=f"row{k}") for k in range(count)], Signal(range(self.REFRESHES + 1))
        strict, waited = Signal(), Signal(range(self._bound + 2))
        refresh, act, pre, here = (Signal(count, name=name) for name in ("refreshed", "act", "pre", "here"))
        m.d.comb += [
            refresh.eq(Mux(refreshes == self.REFRESHES, 0, lowest(self.refresh & banks.can_refresh & ~queue.pending))),
            here.eq(one_hot(self.bank, count)),
            queue.push.eq(self.push & ~queue.full), queue.bank.eq(self.bank), queue.row.eq(self.row),
            queue.strict.eq(strict), queue.column_ready.eq(banks.can_read), queue.take.eq(queue.pick_valid),
            queue.act_ready.eq(banks.can_act), queue.close_ready.eq(banks.can_pre & ~queue.hits),
            act.eq(Mux(refresh.any() | ~queue.act_valid, 0, queue.act_pick)),
            pre.eq(Mux(refresh.any() | queue.act_valid | ~queue.close_valid, 0, queue.close_pick)),
            queue.act.eq(act.any()), queue.act_bank.eq(act), queue.act_row.eq(queue.act_pick_row), queue.closed.eq(pre),
            banks.act.eq(act), banks.pre.eq(pre), banks.refresh.eq(refresh),
            banks.read.eq(Mux(queue.take, one_hot(queue.pick_bank, count), 0)),
            queue.hit.eq(Mux(
                (here & act).any(), self.row == queue.act_pick_row,
                (here & banks.open & ~pre).any() & (self.row == (Cat(rows) & here).any()),
            )),
        ]  # fmt: skip
        for k, row in enumerate(rows):
            with m.If(act[k]):
                m.d.sync += row.eq(queue.act_pick_row)
        with m.If((queue.take & queue.pick_oldest) | queue.empty):
            m.d.sync += [strict.eq(0), waited.eq(0), refreshes.eq(0)]
        with m.Else():
            m.d.sync += [
                strict.eq(strict | self.overdue), waited.eq(waited + (strict & (waited <= self._bound))),
                refreshes.eq(Mux(strict, refreshes + refresh.any(), 0)),
            ]  # fmt: skip
        require(m, self.bad, waited <= self._bound)
        return m
