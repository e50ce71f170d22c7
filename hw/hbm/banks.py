"""State of the banks and every timing rule of the command slots, as masks of what may be issued now."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .config import HbmConfig
from .mask import MaskTimer

__all__ = ["BankState"]


class BankState(wiring.Component):
    """Open banks and timers of a pseudo-channel.

    Interface attributes
    --------------------
    act, pre, refresh, read, write : In
        Banks (one-hot; `pre` any mask, for PREA) to which a command is issued at this clock. `refresh` is REFpb.
    refresh_all : In
        REFab is issued at this clock.
    open : Out
        Banks with an open row.
    can_act, can_pre, can_read, can_write, can_refresh : Out
        Banks in which the command breaks no rule now.
    can_refresh_all : Out
        REFab breaks no rule now.
    row_free : Out
        The row command bus is free.
    """

    def __init__(self, config: HbmConfig):
        self._config = config
        banks = config.timing.total_banks
        inputs = ("act", "pre", "refresh", "read", "write")
        outputs = ("open", "can_act", "can_pre", "can_read", "can_write", "can_refresh")
        super().__init__(
            {
                **{name: In(banks) for name in inputs},
                **{name: Out(banks) for name in outputs},
                "refresh_all": In(1), "can_refresh_all": Out(1), "row_free": Out(1),
            }
        )  # fmt: skip

    def elaborate(self, platform: object) -> Module:
        m = Module()
        c, t = self._config.cycles, self._config.timing
        banks, per_group = t.total_banks, t.banks

        def timer(name: str, start: Value, cycles: int) -> Value:
            m.submodules[name] = block = MaskTimer(len(start), cycles)
            m.d.comb += block.start.eq(start)
            return block.busy

        def groups(mask: Value, size: int = per_group) -> Value:
            """One bit for each bank group (or stack, with its size)."""
            return Cat(mask[k : k + size].any() for k in range(0, banks, size))

        def spread(mask: Value, size: int = per_group) -> Value:
            return Cat(bit.replicate(size) for bit in mask)

        column = self.read | self.write
        act, read, write = self.act.any(), self.read.any(), self.write.any()
        stack = t.groups * t.banks
        stacks = groups(column, stack)
        other_stack = Cat(stacks.any() & ~bit for bit in stacks)

        # The last four ACTs, one timer each.
        turn = Signal(4, init=1)
        with m.If(act):
            m.d.sync += turn.eq(turn.rotate_left(1))
        faw = (timer("faw", turn & act.replicate(4), c.faw) & turn).any()
        act_wait = timer("rrds", act, c.rrds) | timer("rrefd", self.refresh.any(), c.rrefd) | faw
        row_busy = timer("act_slot", act, c.act_slot)
        ppd = timer("ppd", self.pre.any(), c.ppd)
        rc, rp = timer("rc", self.act, c.rc), timer("rp", self.pre, c.rp)
        rfc = timer("rfcpb", self.refresh, c.rfcpb)
        rfc_all = timer("rfcab", self.refresh_all, c.rfcab)
        closed = Signal(banks)  # closed, precharged and past every refresh
        column_wait = timer("ccds", column.any(), c.ccds)
        column_banks = spread(timer("ccdl", groups(column), c.ccdl)) | spread(timer("ccdr", other_stack, c.ccdr), stack)
        pre_wait = timer("ras", self.act, c.ras) | timer("rtp", self.read, c.rtp) | timer("wr", self.write, c.wr_pre)
        m.d.sync += self.open.eq((self.open | self.act) & ~self.pre)
        m.d.comb += [
            self.row_free.eq(~row_busy),
            closed.eq(~(self.open | rc | rp | rfc | rfc_all.replicate(banks))),
            self.can_act.eq(
                closed & ~spread(timer("rrdl", groups(self.act), c.rrdl)) & ~(act_wait | row_busy).replicate(banks)
            ),
            self.can_pre.eq(self.open & ~pre_wait & ~(ppd | row_busy).replicate(banks)),
            self.can_read.eq(
                self.open & ~timer("rcdrd", self.act, c.rcdrd) & ~column_banks
                & ~spread(timer("wtrl", groups(self.write), c.wtrl))
                & ~(column_wait | timer("wtrs", write, c.wtrs)).replicate(banks)
            ),
            self.can_write.eq(
                self.open & ~timer("rcdwr", self.act, c.rcdwr) & ~column_banks
                & ~(column_wait | timer("rtw", read, c.rtw)).replicate(banks)
            ),
            self.can_refresh.eq(
                closed & ~spread(timer("refrrdl", groups(self.act), c.rrdl))
                & ~(row_busy | timer("refrrd", act, c.rrds) | timer("refrefd", self.refresh.any(), c.rrefd))
                .replicate(banks)
            ),
            self.can_refresh_all.eq(closed.all() & ~row_busy),
        ]  # fmt: skip
        return m
