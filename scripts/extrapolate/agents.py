"""Multi-turn agents with prefix reuse, by the serving simulation: what a KV cache that stays is worth.

The load stands for agentic coding as AgentX replays it: sessions of many turns, each adding a tool's output or a
user's message to a growing context, with pauses of at most 10 s. The recorded traces are not public; the lengths here
are drawn from stated distributions and are an assumption, not a measurement.
"""

from __future__ import annotations

import heapq
import random
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from scripts.extrapolate.chips import Band, Chip
from scripts.extrapolate.cycles import Constants
from scripts.extrapolate.serving import Policy, Request, Server, percentile, timer
from scripts.extrapolate.shapes import Model
from scripts.extrapolate.step import Batch

IDLE_CAP = 10.0
"""Seconds that a pause may last: AgentX caps it there."""


@dataclass(frozen=True)
class Agents:
    """`sessions` sessions, `concurrency` of them at a time.

    A session begins with `system` tokens and the first task; each of its turns adds `added` tokens (median; log-normal
    with `spread`), produces `outputs` (the same), and is followed by a pause of mean `pause` seconds, at most 10.
    """

    concurrency: int
    sessions: int
    turns: int = 20
    system: int = 12_000
    added: int = 1_500
    outputs: int = 300
    spread: float = 0.6
    pause: float = 2.0
    seed: int = 1

    def __post_init__(self) -> None:
        if self.concurrency < 1 or self.sessions < self.concurrency or self.turns < 1:
            raise ValueError(f"{self.sessions} sessions of {self.turns} turns cannot keep {self.concurrency} at a time")
        if min(self.system, self.added, self.outputs) < 1 or self.spread < 0 or self.pause < 0:
            raise ValueError(f"lengths must be at least 1, spread and pause at least 0; not {self}")

    def session(self, number: int) -> list[tuple[int, int, float]]:
        """The turns of a session: tokens added, tokens produced, pause after it in seconds."""
        draw = random.Random(f"{self.seed} {number}")

        def length(median: int) -> int:
            return max(1, round(median * draw.lognormvariate(0, self.spread)))

        turns = []
        for turn in range(self.turns):
            added = length(self.added) + (0 if turn else self.system)
            pause = min(IDLE_CAP, draw.expovariate(1 / self.pause)) if self.pause else 0.0
            turns.append((added, length(self.outputs), pause))
        return turns


@dataclass(frozen=True)
class AgentOutcome:
    """Times of turns in seconds as (median, p95); `headline` is 1 / P90(end to end / tokens produced)."""

    turns: int
    ttft: tuple[float, float]
    end_to_end: tuple[float, float]
    headline: float
    output_rate: float
    reused: float
    longest_context: int
    seconds: float


@dataclass
class _Session:
    number: int
    turns: list[tuple[int, int, float]]
    turn: int = 0
    context: int = 0


@dataclass
class _Fleet:
    """Sessions over a server. A session's KV cache stays while there is room; the longest unused goes first."""

    server: Server
    reuse: bool
    kept: OrderedDict[int, int] = field(default_factory=OrderedDict)
    owners: dict[int, _Session] = field(default_factory=dict)
    asked: int = 0
    found: int = 0  # tokens of context asked for, and found kept
    longest: int = 0

    def submit(self, session: _Session, now: float) -> None:
        """Queue a session's next turn; what is kept of its context need not be computed again."""
        added, outputs, _ = session.turns[session.turn]
        kept = self.kept.pop(session.number, 0) if self.reuse else 0
        inputs = session.context + added
        self.asked += inputs
        self.found += kept
        request = Request(inputs, outputs, arrived=now, prefilled=kept)
        self.longest = max(self.longest, inputs + outputs)
        self.owners[id(request)] = session
        self.server.waiting.append(request)
        self._evict()

    def finish(self, request: Request) -> _Session:
        """A turn is done: its context may be kept."""
        session = self.owners.pop(id(request))
        session.context = request.inputs + request.outputs
        session.turn += 1
        if session.turn < len(session.turns):
            self.kept[session.number] = session.context
        self._evict()
        return session

    def _evict(self) -> None:
        needed = sum(r.inputs + r.outputs for r in (*self.server.running, *self.server.waiting))
        while self.kept and needed + sum(self.kept.values()) > self.server.tokens_held:
            self.kept.popitem(last=False)


def simulate_agents(
    model: Model,
    chip: Chip,
    constants: Constants,
    load: Agents,
    policy: Policy | None = None,
    reuse: bool = True,
    time_of: Callable[[Batch], tuple[float, Band]] | None = None,
) -> AgentOutcome:
    """Serve `load`; without `reuse` every turn computes its whole context again. ValueError as `serving.simulate`."""
    server = Server(model, chip, time_of or timer(model, chip, constants), policy or Policy(), random.Random(load.seed))
    fleet = _Fleet(server, reuse)
    coming: list[tuple[float, int, _Session]] = []
    unstarted = iter(range(load.sessions))
    for number in (next(unstarted) for _ in range(load.concurrency)):
        heapq.heappush(coming, (0.0, number, _Session(number, load.session(number))))
    while coming or server.waiting or server.running:
        if not server.waiting and not server.running:
            server.now = max(server.now, coming[0][0])
        while coming and coming[0][0] <= server.now:
            at, _, session = heapq.heappop(coming)
            fleet.submit(session, at)
        for request in server.iterate():
            session = fleet.finish(request)
            pause = session.turns[session.turn - 1][2]
            if session.turn == len(session.turns):
                following = next(unstarted, None)
                if following is None:
                    continue
                session, pause = _Session(following, load.session(following)), 0.0
            heapq.heappush(coming, (server.now + pause, session.number, session))
    return _outcome(server, fleet)


def _outcome(server: Server, fleet: _Fleet) -> AgentOutcome:
    done = server.finished
    first, whole = [r.ttft for r in done], [r.end_to_end for r in done]
    return AgentOutcome(
        turns=len(done),
        ttft=(percentile(first, 0.5), percentile(first, 0.95)),
        end_to_end=(percentile(whole, 0.5), percentile(whole, 0.95)),
        headline=1 / percentile([r.end_to_end / r.outputs for r in done], 0.9),
        output_rate=sum(r.outputs for r in done) / server.now,
        reused=fleet.found / fleet.asked,
        longest_context=fleet.longest,
        seconds=server.now,
    )
