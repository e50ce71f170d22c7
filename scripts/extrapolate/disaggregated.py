"""Prefill on one domain, decode on another: a switch of the serving simulation, with the transfer's cost stated.

The first token comes from the prefill domain. The request's KV cache then crosses the links, at the bandwidth of the
narrower domain, and the decode domain takes the request up in its next iteration.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from scripts.extrapolate.chips import Band, Chip
from scripts.extrapolate.cycles import Constants
from scripts.extrapolate.serving import Load, Outcome, Policy, Request, Server, outcome, timer
from scripts.extrapolate.shapes import Model
from scripts.extrapolate.step import Batch

Timer = Callable[[Batch], tuple[float, Band]]


def transfer_seconds(model: Model, prefill: Chip, decode: Chip, tokens: int) -> float:
    """Time in which `tokens` positions of KV cache cross from one domain to the other."""
    links = [c.domain.link_bytes_per_second * c.domain.chips for c in (prefill, decode)]
    if not min(links):
        raise ValueError("disaggregation needs links: give link_bytes_per_second of both domains")
    latency = max(c.domain.link_nanoseconds for c in (prefill, decode)) * 1e-9
    return latency + tokens * model.kv_token / min(links)


@dataclass
class _Pair:
    """Two servers with clocks of their own, and what is on its way between them."""

    prefill: Server
    decode: Server
    transfer: Callable[[int], float]
    lengths: deque[tuple[int, int]]
    crossing: list[tuple[float, int, Request]] = field(default_factory=list)
    count: int = 0

    def run(self, load: Load) -> None:
        for _ in range(load.concurrency):
            self._submit(0.0)
        while len(self.decode.finished) < load.requests:
            if self._prefill_first():
                self._prefill_step()
            else:
                self._decode_step()

    def _submit(self, now: float) -> None:
        if self.lengths:
            self.prefill.waiting.append(Request(*self.lengths.popleft(), arrived=now))

    def _prefill_first(self) -> bool:
        """Whether the prefill server's next iteration begins before the decode server's."""
        if not self.prefill.waiting:
            return False
        begins = max(self.prefill.now, self.prefill.waiting[0].arrived)
        if self.decode.running:
            return begins <= self.decode.now
        return not self.crossing or begins <= self.crossing[0][0]

    def _prefill_step(self) -> None:
        server = self.prefill
        server.now = max(server.now, server.waiting[0].arrived)
        late = [r for r in server.waiting if r.arrived > server.now]
        server.waiting = deque(r for r in server.waiting if r.arrived <= server.now)
        server.iterate()
        server.waiting.extend(late)
        for request in server.running + server.finished:
            self.count += 1
            at = server.now + self.transfer(request.inputs)
            heapq.heappush(self.crossing, (at, self.count, request))
        server.running, server.finished = [], []

    def _decode_step(self) -> None:
        server = self.decode
        if not server.running:
            server.now = max(server.now, self.crossing[0][0])
        held = sum(r.inputs + r.outputs for r in server.running)
        while self.crossing and self.crossing[0][0] <= server.now:
            request = self.crossing[0][2]
            held += request.inputs + request.outputs
            if held > server.tokens_held:
                if not server.running:
                    raise ValueError(f"a request does not fit: the memory has room for {server.tokens_held} tokens")
                break
            heapq.heappop(self.crossing)
            server.running.append(request)
        for _ in server.iterate():
            self._submit(server.now)


def simulate_disaggregated(
    model: Model,
    prefill: Chip,
    decode: Chip,
    constants: Constants,
    load: Load,
    policy: Policy | None = None,
    timers: tuple[Timer, Timer] | None = None,
) -> Outcome:
    """Serve `load` with prefill and decode apart; rates and power are over the chips of both domains."""
    policy = policy or Policy()
    found = timers or (timer(model, prefill, constants), timer(model, decode, constants))
    draw = random.Random(load.seed + 1)
    first = Server(model, prefill, found[0], replace(policy, draft=0), draw)
    second = Server(model, decode, found[1], policy, draw)
    pair = _Pair(first, second, lambda tokens: transfer_seconds(model, prefill, decode, tokens),
                 deque(load.lengths()))  # fmt: skip
    pair.run(load)
    return outcome([first, second], pair.decode.finished, load)
