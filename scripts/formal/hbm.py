"""Properties of the HBM controller's parts as harnesses with an output `bad`, for `noc_engine.prove`.

The banks and the times are few and small, so that the proofs end; the hardware is the same at any size, since its
constants are data. Every environment is free: any command that the block calls legal may come at any clock.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from types import SimpleNamespace

from amaranth.hdl import Cat, Const, Module, Mux, ResetSignal, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.hbm.banks import BankState
from hw.hbm.mask import lowest
from hw.hbm.queue import RequestQueue
from hw.hbm.refresh import PerBankRefresh
from hw.hbm.timing import Cycles

__all__ = ["RULES", "SMALL", "BankRule", "BankStates", "QueueKeeps", "RefreshDebt"]

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


def _bad(m: Module, bad: Signal, broken: Value, assume: Value = Const(1)) -> None:
    """`bad` where `broken` holds while every assumption has held, without a reset."""
    failed, fine = Signal(reset_less=True), Signal()
    m.d.comb += fine.eq(assume & ~ResetSignal())
    m.d.sync += failed.eq(failed | ~fine)
    m.d.comb += bad.eq(broken & fine & ~failed)


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
        _bad(m, self.bad, Cat(broken).any())
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
        _bad(m, self.bad, wrong.any())
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
        _bad(m, self.bad, (dut.debt < low) | (dut.debt > high), waited < self.WAIT)
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
        _bad(m, self.bad, wrong)
        return m
