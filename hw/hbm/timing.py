"""Timings of the HBM generations: the one table that controller, device model and checkers are built from.

Values are nanoseconds, as the standards and data sheets state them; `Timing.cycles` turns them into controller
clocks, rounded up, and nothing else in the hardware knows a generation. Columns `hbm2a`, `hbm2c` and `hbm3d` are the
configurations that DRAMsim3 (A) and Ramulator 2.1 (C, D) were measured with, so that figures can stand side by side.
Per-bank refresh times: HBM2 tRFCSB 160 ns (up to 8 Gb), HBM3 200 ns, HBM4 280 ns.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

__all__ = ["GENERATIONS", "Cycles", "Timing"]


@dataclass(frozen=True)
class Cycles:
    """Minimum distances in controller clocks. Write distances (`wr_pre`, `wtrs`, `wtrl`) count from the command.

    `bl` is the clocks that a burst holds the data bus; `act_slot` the clocks that ACT holds the row command bus.
    """

    bl: int
    cl: int
    cwl: int
    rcdrd: int
    rcdwr: int
    rp: int
    ras: int
    rc: int
    ccds: int
    ccdl: int
    ccdr: int
    rrds: int
    rrdl: int
    faw: int
    rtp: int
    wr_pre: int
    wtrs: int
    wtrl: int
    rtw: int
    ppd: int
    rfcab: int
    rfcpb: int
    rrefd: int
    refi: int
    act_slot: int


@dataclass(frozen=True)
class Timing:
    """One generation: organisation of a pseudo-channel and its times in nanoseconds.

    `ck` is the command clock; `ratio` the command clocks in a controller clock, so a controller clock is `ck * ratio`.
    `wr`, `wtrs` and `wtrl` count from the end of write data, as the standard has them; `rtw` from read command to
    write command.
    """

    name: str
    ck: float
    ratio: int
    sids: int
    groups: int
    banks: int
    burst: float
    cl: float
    cwl: float
    rcdrd: float
    rcdwr: float
    rp: float
    ras: float
    rc: float
    ccds: float
    ccdl: float
    ccdr: float
    rrds: float
    rrdl: float
    faw: float
    rtp: float
    wr: float
    wtrs: float
    wtrl: float
    rtw: float
    ppd: float
    rfcab: float
    rfcpb: float
    rrefd: float
    refi: float
    act_slot: float
    columns: int = 32
    postpone: int = 8

    @property
    def clock(self) -> float:
        """Controller clock period in nanoseconds."""
        return self.ck * self.ratio

    @property
    def total_banks(self) -> int:
        return self.sids * self.groups * self.banks

    def up(self, ns: float) -> int:
        """Nanoseconds as controller clocks, rounded up (a picosecond of slack absorbs binary fractions)."""
        return max(0, math.ceil(round(ns / self.clock, 6)))

    def cycles(self) -> Cycles:
        """The table in controller clocks."""
        write_end = self.up(self.cwl) + self.up(self.burst)
        derived = {
            "bl": self.up(self.burst),
            "wr_pre": write_end + self.up(self.wr),
            "wtrs": write_end + self.up(self.wtrs),
            "wtrl": write_end + self.up(self.wtrl),
            "refi": math.floor(self.refi / self.clock),
        }
        names = [f.name for f in fields(Cycles) if f.name not in derived]
        return Cycles(**derived, **{name: self.up(getattr(self, name)) for name in names})


def _table(ck: float, **clocks: float | int | str) -> dict:
    """Times given in command clocks, as the peers' configurations have them, turned into nanoseconds."""
    fixed = {"name", "ratio", "sids", "groups", "banks"}
    return {"ck": ck, **{k: v if k in fixed else v * ck for k, v in clocks.items()}}


GENERATIONS: dict[str, Timing] = {
    timing.name: timing
    for timing in (
        # HBM4, 8 Gb/s, 32 DQ, BL8, 8-high; RFCab for a channel of up to 8 Gb.
        Timing(
            "hbm4", ck=0.5, ratio=2, sids=2, groups=2, banks=8, burst=1.0, cl=10, cwl=5, rcdrd=19.5, rcdwr=9.5,
            rp=16.5, ras=28.5, rc=45, ccds=1, ccdl=2, ccdr=1, rrds=2.5, rrdl=3.5, faw=15, rtp=6, wr=21, wtrs=4.5,
            wtrl=6.5, rtw=12.5, ppd=1, rfcab=450, rfcpb=280, rrefd=8, refi=3900, act_slot=0.75,
        ),
        # HBM3, 6.4 Gb/s (Ramulator column D), clocks of 0.625 ns.
        Timing(**_table(
            0.625, name="hbm3d", ratio=1, sids=2, groups=4, banks=4, burst=2, cl=20, cwl=10, rcdrd=31, rcdwr=15,
            rp=26, ras=45, rc=72, ccds=2, ccdl=4, ccdr=3, rrds=4, rrdl=5, faw=24, rtp=9, wr=33, wtrs=7, wtrl=10,
            rtw=20, ppd=2, rfcab=560, rfcpb=320, rrefd=8, refi=6240, act_slot=1.5,
        )),
        # HBM2, 2 Gb/s (Ramulator column C), clocks of 1 ns.
        Timing(**_table(
            1.0, name="hbm2c", ratio=1, sids=1, groups=4, banks=4, burst=2, cl=14, cwl=5, rcdrd=14, rcdwr=12,
            rp=14, ras=34, rc=48, ccds=2, ccdl=4, ccdr=2, rrds=4, rrdl=4, faw=15, rtp=5, wr=16, wtrs=6, wtrl=8,
            rtw=13, ppd=1, rfcab=260, rfcpb=160, rrefd=8, refi=3900, act_slot=2,
        )),
        # HBM2, 2 Gb/s (DRAMsim3 column A), clocks of 1 ns.
        Timing(**_table(
            1.0, name="hbm2a", ratio=1, sids=1, groups=4, banks=4, burst=2, cl=14, cwl=4, rcdrd=14, rcdwr=14,
            rp=14, ras=34, rc=48, ccds=2, ccdl=4, ccdr=2, rrds=4, rrdl=6, faw=30, rtp=5, wr=16, wtrs=6, wtrl=8,
            rtw=13, ppd=1, rfcab=260, rfcpb=160, rrefd=8, refi=3900, act_slot=1,
        )),
    )
}  # fmt: skip
