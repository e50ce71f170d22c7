"""The scheduler of one pseudo-channel: single-granule requests in, DRAM commands out.

First-ready, first-come: the oldest request whose row is open and whose command breaks no rule takes the column slot;
ACT and PRE for the oldest requests that need them take the row slot at the same clock. Reads and writes go in
batches. Requests to one granule are served in the order of acceptance; all others may be reordered.
"""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from hw.emit import once

from .address import AddressMap
from .banks import BankState
from .config import HbmConfig
from .datapath import ReadPath, WritePath, index_of
from .interface import GRANULE_BITS, ColumnOp, Counters, DevicePort, Request, Response, RowOp
from .mask import lowest, one_hot, select
from .queue import STAMP_BITS, RequestQueue
from .refresh import AllBankRefresh, ArrivalPace, PerBankRefresh, StreamGuard

__all__ = ["HbmCore"]

STALL_SWITCH = 16  # clocks without a column command after which the other direction may have the bus
OVERDUE = 16  # age limit in steps of the time stamp


class HbmCore(wiring.Component):
    """A pseudo-channel's scheduler; requests of one granule.

    Interface attributes
    --------------------
    request : In
        Stream of `Request`; `request_data` belongs to a write and is sampled with it.
    response : Out
        `response_valid` marks a clock with the data of a read (no back-pressure: the requester has kept room).
    device : Out
        To the DRAM.
    counters : Out
        `Counters`.
    idle : Out
        No request is queued or in flight.
    """

    def __init__(self, config: HbmConfig):
        self._config = config
        super().__init__(
            {
                "request": In(stream.Signature(Request(config))),
                "request_data": In(GRANULE_BITS),
                "response": Out(Response(config)),
                "response_valid": Out(1),
                "device": Out(DevicePort(config)),
                "counters": Out(Counters),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        slot_bits = config.write_buffer.bit_length() - 1
        refresher = AllBankRefresh if config.refresh == "all_bank" else PerBankRefresh
        self._reads = self._queue(config.read_queue, max(config.tag_bits, slot_bits))
        self._writes = self._queue(config.write_queue, max(config.tag_bits, slot_bits))
        m.submodules.reads, m.submodules.writes = self._reads, self._writes
        m.submodules.banks = self._banks = BankState(config)
        m.submodules.write_path = self._write_path = WritePath(config)
        m.submodules.read_path = self._read_path = ReadPath(config)
        m.submodules.refresh = self._refresh = refresher(config)
        self._writing = Signal()
        self._waiting = Signal()  # a request waits in front of the queues
        self._hazard = Signal(2)  # it waits for a queued write (bit 0) or read (bit 1) of its granule

        self._accept(m)
        self._choose_direction(m)
        self._issue_columns(m)
        self._issue_rows(m)
        self._count(m)
        m.d.comb += self.idle.eq(
            self._reads.empty & self._writes.empty & ~self._waiting & ~self._read_path.busy & ~self._write_path.busy
        )
        return m

    def _queue(self, depth: int, tag_bits: int) -> wiring.Component:
        config = self._config
        name = f"hbm_queue_{depth}x{config.bank_bits}_{config.row_bits}_{config.column_bits}_{tag_bits}"
        return once(RequestQueue(config, depth, tag_bits), name)

    def _accept(self, m: Module) -> None:
        """Map the address, then append to the read or the write queue."""
        config, reads, writes, banks = self._config, self._reads, self._writes, self._banks
        write_path, request = self._write_path, self.request.payload
        m.submodules.guard = guard = StreamGuard(config)
        m.submodules.pace = pace = ArrivalPace(config)
        m.submodules.open_rows = open_rows = Memory(shape=config.row_bits, depth=config.timing.total_banks, init=[])
        look, self._open_write = open_rows.read_port(domain="comb"), open_rows.write_port()
        served = open_rows.read_port(domain="comb")

        column, bank, row = AddressMap(config).split(request.address)
        write = Signal()
        fields = {"column": Signal(len(column)), "bank": Signal(len(bank)), "row": Signal(len(row))}
        tag, slot = Signal(config.tag_bits), Signal(len(write_path.slot))
        same, moves, taken = Signal(), Signal(), Signal()
        m.d.comb += [
            same.eq(Mux(write, reads.same, writes.same)),
            self._hazard.eq(Cat(self._waiting & ~write & same, self._waiting & write & same)),
            moves.eq(self._waiting & ~same & ~Mux(write, writes.full, reads.full)),
            self.request.ready.eq((~self._waiting | moves) & ~(request.write & write_path.full)),
            taken.eq(self.request.valid & self.request.ready),
            write_path.store.eq(taken & request.write),
            write_path.data.eq(self.request_data),
            guard.valid.eq(taken),
            guard.address.eq(request.address),
            pace.valid.eq(taken),
            pace.full.eq(reads.full | writes.full),
            guard.sparse.eq(pace.sparse),
            guard.hint.eq(request.hint),
            guard.last.eq(request.last),
            served.addr.eq(reads.pick_bank),
            self._read_path.place.eq(Cat(reads.pick_column, reads.pick_bank, served.data)),
        ]
        with m.If(taken):
            m.d.sync += [
                self._waiting.eq(1), write.eq(request.write), tag.eq(request.tag), slot.eq(write_path.slot),
                fields["column"].eq(column), fields["bank"].eq(bank), fields["row"].eq(row),
            ]  # fmt: skip
        with m.Elif(moves):
            m.d.sync += self._waiting.eq(0)

        # Time stamps count in sixteenths of the age limit.
        step, now = Signal(range(max(2, config.age_limit // OVERDUE))), Signal(STAMP_BITS)
        m.d.sync += step.eq(Mux(step == config.age_limit // OVERDUE - 1, 0, step + 1))
        m.d.sync += now.eq(now + (step == 0))

        here = one_hot(fields["bank"], config.timing.total_banks)
        hit = Signal()
        m.d.comb += [
            look.addr.eq(fields["bank"]),
            hit.eq(
                Mux(
                    (here & banks.act).any(),
                    fields["row"] == self._open_write.data,
                    (here & banks.open & ~banks.pre).any() & (fields["row"] == look.data),
                )
            ),
            reads.push.eq(moves & ~write), reads.tag.eq(tag),
            writes.push.eq(moves & write), writes.tag.eq(slot),
        ]  # fmt: skip
        for queue in (reads, writes):
            age = (now - queue.oldest_stamp)[:STAMP_BITS]
            m.d.comb += [
                queue.bank.eq(fields["bank"]), queue.row.eq(fields["row"]), queue.column.eq(fields["column"]),
                queue.hit.eq(hit), queue.stamp.eq(now), queue.strict.eq(~queue.empty & (age >= OVERDUE)),
            ]  # fmt: skip
        m.d.comb += [
            self._refresh.guard.eq(guard.banks), self._refresh.near.eq(guard.avoid),
            self._refresh.start.eq(pace.start), self._refresh.late.eq(pace.late),
        ]  # fmt: skip
        self._near = guard.near
        self._at_door = select(self._waiting, here)

    def _choose_direction(self, m: Module) -> None:
        """Which queue has the column slot: batches as long as the queues allow, within `batch_limit`."""
        reads, writes, writing = self._reads, self._writes, self._writing
        quiet, served = Signal(range(STALL_SWITCH + 1)), Signal(range(self._config.batch_limit + 1))
        issued = reads.take | writes.take
        other_full = Mux(writing, reads.full, writes.full)
        other_hit = Mux(writing, reads.any_hit, writes.any_hit)
        other_empty = Mux(writing, reads.empty, writes.empty)
        empty = Mux(writing, writes.empty, reads.empty)
        overdue, other_overdue = Mux(writing, writes.strict, reads.strict), Mux(writing, reads.strict, writes.strict)
        stalled, switch = Signal(), Signal()
        m.d.comb += [
            stalled.eq(quiet == STALL_SWITCH),
            switch.eq(
                ~other_empty
                & (
                    (empty & (writing | other_full | stalled))
                    | ((served == self._config.batch_limit) & ~overdue)
                    | (stalled & other_hit & (other_full | writing))
                    | (other_overdue & ~overdue)
                    | Mux(writing, self._hazard[1], self._hazard[0])
                )
            ),
        ]
        with m.If(switch):
            m.d.sync += [writing.eq(~writing), quiet.eq(0), served.eq(0)]
        with m.Else():
            m.d.sync += quiet.eq(Mux(issued, 0, quiet + ~stalled))
            with m.If(issued & other_full & (served != self._config.batch_limit)):
                m.d.sync += served.eq(served + 1)

    def _issue_columns(self, m: Module) -> None:
        reads, writes, banks, device = self._reads, self._writes, self._banks, self.device
        stop, count = self._refresh.stop, self._config.timing.total_banks
        bank = Mux(self._writing, writes.pick_bank, reads.pick_bank)
        here = Signal(count)
        m.d.comb += [
            reads.column_ready.eq(banks.can_read),
            writes.column_ready.eq(banks.can_write),
            reads.take.eq(reads.pick_valid & ~self._writing & ~stop),
            writes.take.eq(writes.pick_valid & self._writing & ~stop),
            here.eq(one_hot(bank, count)),
            banks.read.eq(select(reads.take, here)),
            banks.write.eq(select(writes.take, here)),
            self._read_path.issue.eq(reads.take),
            self._read_path.tag.eq(reads.pick_tag),
            self._write_path.issue.eq(writes.take),
            self._write_path.issue_slot.eq(writes.pick_tag),
            device.write_data.eq(self._write_path.write_data),
            device.write_check.eq(self._write_path.write_check),
            self._read_path.read_valid.eq(device.read_valid),
            self._read_path.read_data.eq(device.read_data),
            self._read_path.read_check.eq(device.read_check),
            self.response_valid.eq(self._read_path.valid),
            self.response.tag.eq(self._read_path.out_tag),
            self.response.data.eq(self._read_path.out_data),
            self.response.error.eq(self._read_path.failed),
            self.response.corrected.eq(self._read_path.corrected),
            self.response.place.eq(self._read_path.out_place),
        ]
        m.d.sync += [
            device.column.op.eq(Mux(reads.take, ColumnOp.RD, Mux(writes.take, ColumnOp.WR, ColumnOp.NOP))),
            device.column.bank.eq(bank),
            device.column.column.eq(Mux(self._writing, writes.pick_column, reads.pick_column)),
        ]

    def _issue_rows(self, m: Module) -> None:
        """Row slot, in order: refresh, forced close, ACT and PRE for the direction served, then for the other."""
        reads, writes, banks, refresh = self._reads, self._writes, self._banks, self._refresh
        count, writing = self._config.timing.total_banks, self._writing
        hits = reads.hits | writes.hits
        pending = reads.pending | writes.pending
        served, served_hits = Mux(writing, writes.pending, reads.pending), Mux(writing, writes.hits, reads.hits)
        can_act = banks.can_act & ~refresh.hold
        for queue, active in ((reads, ~writing), (writes, writing)):
            wait = Mux(active, 0, served)
            m.d.comb += [
                queue.act_ready.eq(can_act & ~wait),
                queue.close_ready.eq(banks.can_pre & ~Mux(active, served_hits, served | hits)),
            ]
        drop = banks.can_pre & refresh.close
        idle = ~pending & ~self._near if self._config.close == "adaptive" else 0
        idle_drop = banks.can_pre & (refresh.close | idle) & ~hits
        forced = Signal(count)
        m.d.comb += forced.eq(select(refresh.force, drop))
        all_bank = self._config.refresh == "all_bank"

        act, pre = Signal(count), Signal(count)
        row = Mux(writing ^ ~Mux(writing, writes.act_valid, reads.act_valid), writes.act_pick_row, reads.act_pick_row)
        refreshes = refresh.issue.any() | refresh.issue_all
        with m.If(refreshes):
            pass
        with m.Elif(forced.any()):
            # For REFab every bank closes at once (PREA), when the last one may.
            m.d.comb += pre.eq(select((banks.open & ~banks.can_pre) == 0, banks.open) if all_bank else lowest(forced))
        with m.Elif(reads.act_valid | writes.act_valid):
            m.d.comb += act.eq(
                Mux(writing ^ ~Mux(writing, writes.act_valid, reads.act_valid), writes.act_pick, reads.act_pick)
            )
        with m.Elif(reads.close_valid | writes.close_valid):
            m.d.comb += pre.eq(
                Mux(writing ^ ~Mux(writing, writes.close_valid, reads.close_valid), writes.close_pick, reads.close_pick)
            )
        with m.Else():
            m.d.comb += pre.eq(lowest(idle_drop))
        m.d.comb += [
            banks.act.eq(act), banks.pre.eq(pre), banks.refresh.eq(refresh.issue),
            banks.refresh_all.eq(refresh.issue_all),
            refresh.pending.eq(pending | self._at_door), refresh.open.eq(banks.open),
            refresh.can_refresh.eq(banks.can_refresh), refresh.can_refresh_all.eq(banks.can_refresh_all),
            self._open_write.en.eq(act.any()), self._open_write.addr.eq(index_of(act)), self._open_write.data.eq(row),
        ]  # fmt: skip
        for queue in (reads, writes):
            m.d.comb += [queue.act.eq(act.any()), queue.act_bank.eq(act), queue.act_row.eq(row), queue.closed.eq(pre)]
        self._drive_row(m, act, pre, row)

    def _drive_row(self, m: Module, act: Signal, pre: Signal, row: Value) -> None:
        refresh, command = self._refresh, self.device.row
        several = refresh.stop  # a drain for REFab closes with PREA
        m.d.sync += [
            command.op.eq(
                Mux(
                    act.any(), RowOp.ACT,
                    Mux(
                        pre.any(), Mux(several, RowOp.PREA, RowOp.PRE),
                        Mux(
                            refresh.issue_all, RowOp.REFAB, Mux(refresh.issue.any(), RowOp.REFPB, RowOp.NOP)
                        ),
                    ),
                )
            ),
            command.bank.eq(index_of(act | pre | refresh.issue)),
            command.row.eq(row),
        ]  # fmt: skip

    def _count(self, m: Module) -> None:
        reads, writes, banks, refresh = self._reads, self._writes, self._banks, self._refresh
        c, count = self._config.cycles, self.counters
        column = reads.take | writes.take
        fresh, before = Signal(len(banks.act)), Signal()
        m.d.sync += fresh.eq((fresh | banks.act) & ~(banks.read | banks.write))
        with m.If(column):
            m.d.sync += before.eq(writes.take)
        first = (fresh & (banks.read | banks.write)).any()
        failed, corrected = self._read_path.failed, self._read_path.corrected
        events = {
            "cycles": 1, "reads": reads.take, "writes": writes.take, "activates": banks.act.any(),
            "precharges": banks.pre.any(), "refreshes": banks.refresh.any() | refresh.issue_all,
            "row_hits": column & ~first, "turnarounds": column & (before != writes.take),
            "stalled": ~column & ~(reads.empty & writes.empty), "corrected": self._read_path.valid & corrected,
            "uncorrectable": self._read_path.valid & failed,
        }  # fmt: skip
        for name, event in events.items():
            m.d.sync += count[name].eq(count[name] + (event & ~count[name].all()))
        step = Mux(column & (count.busy <= (1 << 32) - 1 - c.bl), c.bl, 0)
        m.d.sync += count.busy.eq(count.busy + step)
