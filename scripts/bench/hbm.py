"""Figures of the HBM controller on the eleven traces, beside DRAMsim3's and Ramulator 2.1's on the same work.

Rules as the peers were measured: requests in order, at most one a controller clock, stall while the queue is full; the
first tenth warms up; utilisation is requests * burst clocks / clocks to accept them; latency from acceptance to last
data. Buffering: the queues of the configuration (32 + 32, or 64 + 64 entries) and one request in front of them.
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from golden.hbm_traces import LINES, TRACES, trace
from hw.hbm.config import HbmConfig
from scripts.figures import Figure
from scripts.simulator import SimulatorError, Testbench, run
from tb.hbm.models import channels_model, configuration, trace_model

__all__ = ["Run", "figures", "lost_requests", "measure"]

PEERS = {  # utilisation in percent at saturation, in the order of TRACES
    "hbm2a": ("DRAMsim3", (91.9, 71.5, 71.3, 24.6, 3.9, 86.0, 91.0, 90.8, 49.0, 90.6, 92.0)),
    "hbm2c": ("Ramulator 2.1", (92.1, 59.9, 64.3, 45.8, 3.9, 88.6, 90.1, 90.2, 81.0, 87.7, 91.9)),
    "hbm3d": ("Ramulator 2.1", (87.8, 46.7, 57.8, 30.0, 2.5, 80.3, 85.0, 85.5, 58.2, 79.8, 85.0)),
}
PER_BANK = {"hbm2a_pb": 97, "hbm2c_pb": 97, "hbm3d_pb": 96, "hbm4_pb": 96}
PER_BANK_TRACES = ("seq", "kv256", "kv1024", "kv4096")
LOW_LOAD_P99: dict[str, dict[str, float | None]] = {  # peers at 2 % load, all-bank refresh, nanoseconds; none ran HBM4
    "hbm2a_pb": {"seq": 307, "rand": 323, "kv256": 317, "rw11": 307, "conf": 304},
    "hbm2c_pb": {"seq": 303, "rand": 303, "kv256": 303, "rw11": 303},
    "hbm3d_pb": {"seq": 366, "rand": 382, "kv256": 374, "rw11": 391},
    "hbm4_pb": {"seq": None, "rand": None, "kv256": None},
}
LOW_LOAD, LOW_LOAD_LINES = 0.02, 5000
CHANNELS, CHANNEL_GRANULES = 8, 20_000


@dataclass(frozen=True)
class Run:
    """Result of one trace: utilisation (share of the peak), latencies of reads in ns, requests lost, simulated clocks
    a second, and the controller's counters."""

    utilisation: float
    latencies: np.ndarray
    lost: int
    clocks_per_second: float
    counters: dict[str, int]


def measure(name: str, requests: np.ndarray, config: HbmConfig | None = None, load: float | None = None) -> Run:
    """Run a trace on configuration `name` (`config` where it differs from the name's), at a `load` of the peak."""
    config = config or configuration(name)
    bench = Testbench(f"hbm_trace_{name}", trace_model(name, config), "tb.hbm.trace_runner")
    burst = config.cycles.bl
    spacing = 0 if load is None else round(256 * burst / load)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        requests.astype("<u4").tofile(work / "trace.bin")
        results = run(
            bench, work=work,
            environment={"HBM_RESULT": str(work / "result.json")},
            plusargs=[
                f"+trace={work / 'trace.bin'}", "+hbm_pattern", f"+latencies={work / 'latencies.bin'}",
                f"+trace_spacing={spacing}",
            ],
        )  # fmt: skip
        failed = [result.message for result in results if not result.passed]
        if failed:
            raise SimulatorError(f"Trace on {name} failed: {failed[0]}")
        result = json.loads((work / "result.json").read_text())
        latencies = np.fromfile(work / "latencies.bin", "<u4") * config.timing.clock
    measured = len(requests) - len(requests) // 10
    clocks = result["last_clock"] - result["first_clock"]
    utilisation = (measured - 1) * burst / clocks
    lost = lost_requests(len(requests), result)
    print(f"  {name}: {100 * utilisation:.2f} % of the peak, {len(requests)} requests", file=sys.stderr, flush=True)
    return Run(utilisation, latencies, lost, result["counters"]["cycles"] / result["wall"], result["counters"])


def lost_requests(offered: int, result: dict[str, Any]) -> int:
    """Requests that were not accepted, reads without their data, writes that did not go to the DRAM.

    None makes up for another: `returned` counts each read once (rtl/hbm_trace.sv), and one too many of a kind counts as
    one that is missing.
    """
    writes = result["accepted"] - result["reads"]
    missing = (
        offered - result["accepted"], result["reads"] - result["returned"], writes - result["counters"]["writes"]
    )  # fmt: skip
    return sum(abs(count) for count in missing)


def _map(config: HbmConfig) -> str:
    return f"address map {config.address_map}" if config.address_map else "default address map"


@cache
def saturated(name: str, workload: str) -> Run:
    return measure(name, trace(workload, LINES))


@cache
def unhurried(name: str, workload: str) -> Run:
    return measure(name, trace(workload, LOW_LOAD_LINES), load=LOW_LOAD)


def _bounds(config: HbmConfig, workload: str) -> tuple[float, str]:
    """What the standard allows, as a share of the peak, and which rule binds."""
    c, t = config.cycles, config.timing
    refresh = 1 - t.rfcab / t.refi if config.refresh == "all_bank" else 1.0
    faw = min(1.0, 4 * c.bl / max(c.faw, 4 * c.rrds))
    # A random request needs an ACT of its own; a stride of 64 KiB too.
    return (refresh * faw, "FAW or RRDS, refresh") if workload in ("rand", "conf") else (refresh, "refresh")


def _saturation(name: str) -> list[Figure]:
    peer, floors = PEERS[name]
    found = []
    for workload, floor in zip(TRACES, floors, strict=True):
        result, config = saturated(name, workload), configuration(name)
        bound, why = _bounds(config, workload)
        value = 100 * result.utilisation
        found.append(
            Figure(
                f"hbm.{name}.{workload}.utilisation", round(value, 2), "%", f">= {floor}",
                reference=f"{peer} {floor} %; bound {100 * bound:.1f} % ({why})",
                how="100,000 requests, all-bank refresh (four at a time), 32 + 32 entries and 1 in front, "
                f"{_map(config)}",
            )
        )  # fmt: skip
    return found


def _per_bank(name: str, workloads: tuple[str, ...]) -> list[Figure]:
    return [
        Figure(
            f"hbm.{name}.{workload}.utilisation", round(100 * saturated(name, workload).utilisation, 2), "%",
            f">= {PER_BANK[name]}" if workload in PER_BANK_TRACES else "",
            reference="Ramulator per-bank, seq: 93.4 % (HBM2), 84.4 % (HBM3)",
            how=f"100,000 requests, per-bank refresh, 32 + 32 entries and 1 in front, {_map(configuration(name))}",
        )
        for workload in workloads
    ]  # fmt: skip


def _random_p99_bound(config: HbmConfig, endless: bool = False) -> float:
    """Least p99 (ns) of reads of random banks that come every P ns, whatever the schedule of per-bank refreshes.

    A bank that is refreshed for RFCpb is met by at least one request while more than x remains, where RFCpb - x > P,
    by two where it is above 2 P, and so on: best when the refresh starts right after a request. A request meets its
    bank's refresh in one such slot with probability P / REFI, less what postponing before and after the run saves
    (nothing, in an `endless` one).
    All-bank refresh is worse: the same slots, and RFCab in place of RFCpb.
    """
    t, c = config.timing, config.cycles
    gap = t.burst / LOW_LOAD
    intervals = (LOW_LOAD_LINES - LOW_LOAD_LINES // 10) * gap / t.refi
    met = gap / t.refi * (1 if endless else max(0.0, 1 - 2 * t.postpone / intervals))
    slots = int(0.01 / met) if met else t.rfcpb / gap
    return max(0.0, t.rfcpb - (slots + 1) * gap) + (c.rcdrd + c.cl + c.bl) * t.clock


def _p99_bar(peer: float | None, bound: float) -> str:
    """A third of the peer's; where the standard's bound makes that impossible, what is 98 % of the bound."""
    if peer is None:
        return ""
    if bound <= peer / 3:
        return f"<= {peer / 3:.1f}"
    return f"<= {math.floor(10 * bound / 0.98) / 10} (98 % of the bound; a third of the peer's is {peer / 3:.1f})"


def _low_load(name: str) -> list[Figure]:
    config, found = configuration(name), []
    for workload, peer in LOW_LOAD_P99[name].items():
        result = unhurried(name, workload)
        p50, p99 = (float(np.percentile(result.latencies, percent)) for percent in (50, 99))
        bound, reference = 0.0, f"peer {peer} ns" if peer else "no peer"
        if workload == "rand":
            bound = _random_p99_bound(config)
            reference += f"; bound {bound:.1f} ns (RFCpb, requests at random), "
            reference += f"{_random_p99_bound(config, endless=True):.1f} in a run without end"
        found.append(
            Figure(
                f"hbm.{name}.{workload}.p99_low_load", round(p99, 1), "ns", _p99_bar(peer, bound),
                reference=reference,
                how=f"{LOW_LOAD_LINES} requests at 2 % of the peak, per-bank refresh, {_map(config)}; p50 {p50:.1f}, "
                f"mean {result.latencies.mean():.1f}",
            )
        )  # fmt: skip
    return found


def _channels() -> Figure:
    """Eight channels read in lockstep, one granule of each at a time, against a channel on its own."""
    clocks = {}
    for channels in (1, CHANNELS):
        bench = Testbench(f"hbm_channels_{channels}", channels_model(channels), "tb.hbm.channels_runner")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "clocks.json"
            results = run(
                bench, work=Path(folder),
                environment={"HBM_RESULT": str(path), "HBM_GRANULES": str(CHANNEL_GRANULES)},
                plusargs=["+hbm_pattern"],
            )  # fmt: skip
            if not results[0].passed:
                raise SimulatorError(f"{channels} channels failed: {results[0].message}")
            clocks[channels] = json.loads(path.read_text())
    share = 100 * clocks[1] / clocks[CHANNELS]
    return Figure(
        "hbm.eight_channels_share", round(share, 2), "%", ">= 97",
        how=f"{CHANNEL_GRANULES} granules of each of 8 channels taken in lockstep, each from its own address, "
        "against one alone (HBM4)",
    )  # fmt: skip


def figures(long: bool = False) -> list[Figure]:
    """All figures of the issue; `long` adds the traces that have no bar with per-bank refresh."""
    workloads = TRACES if long else PER_BANK_TRACES
    found = [figure for name in PEERS for figure in _saturation(name)]
    found += [figure for name in PER_BANK for figure in _per_bank(name, workloads)]
    result = saturated("hbm3d_pb64", "rw11")
    found.append(
        Figure(
            "hbm.hbm3d_pb64.rw11.utilisation", round(100 * result.utilisation, 2), "%", ">= 80",
            reference="Ramulator 65.5 % all-bank at 64 + 64, 46.0 % per-bank at 32 + 32",
            how="100,000 requests, per-bank refresh, 64 + 64 entries and 1 in front, "
            f"{_map(configuration('hbm3d_pb64'))}",
        )
    )  # fmt: skip
    found += [figure for name in LOW_LOAD_P99 for figure in _low_load(name)]
    runs = [saturated(name, workload) for name in PEERS for workload in TRACES]
    runs += [saturated(name, workload) for name in PER_BANK for workload in workloads]
    runs += [unhurried(name, workload) for name in LOW_LOAD_P99 for workload in LOW_LOAD_P99[name]]
    runs.append(result)
    found.append(
        Figure("hbm.lost_requests", sum(r.lost for r in runs), "", "== 0", how=f"{len(runs)} runs, data compared")
    )
    speed = saturated("hbm4_pb", "kv256").clocks_per_second
    found.append(
        Figure(
            "hbm.sim_cycles_per_second",
            round(speed),
            "1/s",
            ">= 200000",
            how="hbm4_pb, kv256 saturated, rules checked, cocotb attached; depends on the machine and its load",
        )
    )
    return [*found, _channels()]
