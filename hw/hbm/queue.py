"""The request queue: what the scheduler sees, oldest request in slot 0.

Requests move down as older ones leave, so that the oldest of any set of slots is its lowest bit. Fields are kept as
bit planes (one word of all slots for each bit): matching a bank or a row against all slots is a few word operations.
"""

from __future__ import annotations

from functools import reduce
from operator import and_, or_

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .config import HbmConfig
from .mask import lowest, one_hot, select

__all__ = ["RequestQueue"]

STAMP_BITS = 7


class RequestQueue(wiring.Component):
    """Queue of `depth` requests of one direction.

    Interface attributes
    --------------------
    push, bank, row, column, tag, hit, stamp : In
        Append a request (only while `full` is low); `hit`: its row will be open after this clock; `stamp`: the time.
    column_ready, act_ready, close_ready : In
        Banks in which a column command, ACT or PRE may be issued now.
    take : In
        The request shown by `pick_*` leaves.
    act, act_bank, act_row : In
        ACT issued now (`act_bank` one-hot); `closed`: banks closed now.
    strict : In
        The oldest request is overdue: no younger request of its bank counts as a hit.
    pick_valid, pick_bank, pick_column, pick_tag : Out
        Oldest request whose row is open, in a bank of `column_ready`; `pick_oldest`: it is the oldest of all.
    act_valid, act_pick, act_pick_row, close_valid, close_pick : Out
        Bank (one-hot) of the oldest request that wants ACT, and of the oldest whose bank has another row open.
    pending, hits : Out
        Banks with a request; banks with one whose row is open (`strict` applied).
    same : Out
        A request to `bank`, `row`, `column` is queued.
    empty, full, any_hit, oldest_stamp : Out
    """

    def __init__(self, config: HbmConfig, depth: int, tag_bits: int):
        self._config = config
        self._depth = depth
        self._tag_bits = tag_bits
        banks = config.timing.total_banks
        super().__init__(
            {
                "push": In(1), "bank": In(config.bank_bits), "row": In(config.row_bits),
                "column": In(config.column_bits), "tag": In(tag_bits), "hit": In(1), "stamp": In(STAMP_BITS),
                "column_ready": In(banks), "act_ready": In(banks), "close_ready": In(banks), "take": In(1),
                "act": In(1), "act_bank": In(banks), "act_row": In(config.row_bits), "closed": In(banks),
                "strict": In(1),
                "pick_valid": Out(1), "pick_bank": Out(config.bank_bits), "pick_column": Out(config.column_bits),
                "pick_tag": Out(tag_bits), "pick_oldest": Out(1),
                "act_valid": Out(1), "act_pick": Out(banks), "act_pick_row": Out(config.row_bits),
                "close_valid": Out(1), "close_pick": Out(banks), "pending": Out(banks), "hits": Out(banks),
                "same": Out(1), "empty": Out(1), "full": Out(1), "any_hit": Out(1),
                "oldest_stamp": Out(STAMP_BITS),
            }
        )  # fmt: skip

    def elaborate(self, platform: object) -> Module:
        m = Module()
        n = self._depth
        valid, hit = Signal(n), Signal(n)
        self._valid, self._hit = valid, hit
        fields = {"bank": self.bank, "row": self.row, "column": self.column, "tag": self.tag, "stamp": self.stamp}
        planes = {name: [Signal(n, name=f"{name}{k}") for k in range(len(value))] for name, value in fields.items()}
        members = self._members(m, planes["bank"])

        # Hits that count: when the oldest request is overdue, its bank serves nobody else.
        head_bank = Signal(len(members))
        m.d.comb += head_bank.eq(Cat(member[0] for member in members))
        counted = Signal(n)
        with_head = self._gather(members, head_bank)
        m.d.comb += counted.eq(Mux(self.strict, hit & (~with_head | 1), hit))

        pick, act, close = Signal(n), Signal(n), Signal(n)
        m.d.comb += [
            pick.eq(lowest(self._named(m, "candidates", counted & self._gather(members, self.column_ready)))),
            act.eq(lowest(self._named(m, "to_act", valid & self._gather(members, self.act_ready)))),
            close.eq(lowest(self._named(m, "to_close", valid & ~hit & self._gather(members, self.close_ready)))),
            self.pick_valid.eq(pick.any()),
            self.pick_oldest.eq(pick[0]),
            self.act_valid.eq(act.any()),
            self.close_valid.eq(close.any()),
            self.pick_bank.eq(self._field(planes["bank"], pick)),
            self.pick_column.eq(self._field(planes["column"], pick)),
            self.pick_tag.eq(self._field(planes["tag"], pick)),
            self.act_pick.eq(one_hot(self._named(m, "act_index", self._field(planes["bank"], act)), len(members))),
            self.act_pick_row.eq(self._field(planes["row"], act)),
            self.close_pick.eq(
                one_hot(self._named(m, "close_index", self._field(planes["bank"], close)), len(members))
            ),
            self.pending.eq(Cat((member & valid).any() for member in members)),
            self.hits.eq(Cat((member & counted).any() for member in members)),
            self.any_hit.eq(counted.any()),
            self.empty.eq(~valid[0]),
            self.full.eq(valid[n - 1]),
            self.oldest_stamp.eq(Cat(plane[0] for plane in planes["stamp"])),
            self.same.eq(
                (valid & reduce(and_, [self._matches(planes[k], fields[k]) for k in ("bank", "row", "column")])).any()
            ),
        ]
        self._update(m, fields, planes, members, pick)
        return m

    def _update(self, m: Module, fields: dict, planes: dict, members: list[Value], pick: Signal) -> None:
        """Next state: open and close rows, remove the picked slot, append."""
        n = self._depth
        valid, hit = self._valid, self._hit
        below, stays, append, leaving = Signal(n), Signal(n), Signal(n), Signal(n)
        m.d.comb += [
            leaving.eq(select(self.take, pick)),
            below.eq(leaving - 1),
            stays.eq(Mux(self.take, valid >> 1, valid)),
            append.eq(select(self.push, ((stays << 1) | 1)[:n] & ~stays)),
        ]
        opened = select(self.act, self._gather(members, self.act_bank) & self._matches(planes["row"], self.act_row))
        now_hit = self._named(m, "now_hit", valid & (hit | opened) & ~self._gather(members, self.closed))

        def moved(word: Value) -> Value:
            return (word & below) | ((word >> 1) & ~below)

        m.d.sync += [valid.eq(stays | append), hit.eq(moved(now_hit) | select(self.hit, append))]
        for name, value in fields.items():
            m.d.sync += [
                plane.eq(moved(plane) | select(bit, append)) for plane, bit in zip(planes[name], value, strict=True)
            ]

    def _members(self, m: Module, planes: list[Signal]) -> list[Value]:
        """For every bank the slots that are for it (invalid slots may count as bank 0's)."""
        masks: list[Value] = [~Value.cast(0).replicate(self._depth)]
        for k, plane in enumerate(planes):
            split = [Signal(self._depth, name=f"member{k}_{j}") for j in range(2 * len(masks))]
            m.d.comb += [s.eq(mask & ~plane) for s, mask in zip(split, masks, strict=False)]
            m.d.comb += [s.eq(mask & plane) for s, mask in zip(split[len(masks) :], masks, strict=True)]
            masks = split
        return masks

    @staticmethod
    def _named(m: Module, name: str, value: Value) -> Signal:
        signal = Signal(len(value), name=name)
        m.d.comb += signal.eq(value)
        return signal

    @staticmethod
    def _gather(members: list[Value], banks: Value) -> Value:
        """Slots whose bank is set in `banks`."""
        return reduce(or_, [select(bank, member) for bank, member in zip(banks, members, strict=True)])

    @staticmethod
    def _matches(planes: list[Signal], value: Value) -> Value:
        n = len(planes[0])
        return reduce(and_, [~(plane ^ bit.replicate(n)) for plane, bit in zip(planes, value, strict=True)])

    @staticmethod
    def _field(planes: list[Signal], slot: Value) -> Value:
        return Cat((plane & slot).any() for plane in planes)
