"""Serving by discrete-event simulation: continuous batching with chunked prefill, at a constant concurrency.

The load is InferenceX's 8k/1k: lengths drawn uniformly from [0.8 L, L], no prefix cache, a new request as soon as one
is done. An iteration takes all running users' decode positions and fills the rest of its budget with the prefill of
the oldest waiting requests. Iterations end when `step` says; nothing happens between them.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import ceil

from scripts.extrapolate.chips import Band, Chip
from scripts.extrapolate.cycles import Constants
from scripts.extrapolate.energy import energy
from scripts.extrapolate.shapes import Model
from scripts.extrapolate.step import Batch, Step, step


@dataclass(frozen=True)
class Load:
    """`requests` requests, `concurrency` of them at a time, of at most `inputs` and `outputs` tokens."""

    concurrency: int
    requests: int
    inputs: int = 8192
    outputs: int = 1024
    range_ratio: float = 0.8
    seed: int = 1

    def __post_init__(self) -> None:
        if self.concurrency < 1 or self.requests < self.concurrency:
            raise ValueError(f"{self.requests} requests cannot keep {self.concurrency} at a time")

    def lengths(self) -> list[tuple[int, int]]:
        """Input and output tokens of each request."""
        draw = random.Random(self.seed)
        return [
            (draw.randint(round(self.range_ratio * self.inputs), self.inputs),
             draw.randint(round(self.range_ratio * self.outputs), self.outputs))
            for _ in range(self.requests)
        ]  # fmt: skip


@dataclass(frozen=True)
class Policy:
    """Positions of an iteration; speculation: `draft` tokens a step, each accepted with probability `acceptance`
    as long as those before it were, drafting costs `draft_cost` of the step's time."""

    budget: int = 2048
    draft: int = 0
    acceptance: float = 0.0
    draft_cost: float = 0.0

    def __post_init__(self) -> None:
        if self.budget < 1 or self.draft < 0 or not 0 <= self.acceptance <= 1 or self.draft_cost < 0:
            raise ValueError(f"a budget of at least 1, a draft of at least 0, an acceptance of 0 to 1; not {self}")


@dataclass(eq=False)
class Request:
    """A request under way; times in seconds."""

    inputs: int
    outputs: int
    arrived: float
    prefilled: int = 0
    produced: int = 0
    first: float = 0.0
    done: float = 0.0

    @property
    def context(self) -> int:
        return self.prefilled + self.produced

    @property
    def ttft(self) -> float:
        return self.first - self.arrived

    @property
    def end_to_end(self) -> float:
        return self.done - self.arrived

    @property
    def tpot(self) -> float:
        return (self.done - self.first) / max(1, self.outputs - 1)


@dataclass(frozen=True)
class Outcome:
    """What a load gave: times in seconds as (median, p95), rates in tokens per second, watts a chip as a band."""

    concurrency: int
    ttft: tuple[float, float]
    tpot: tuple[float, float]
    end_to_end: tuple[float, float]
    output_rate: float
    total_rate: float
    chip_watts: Band
    peak_watts: Band
    seconds: float
    iterations: int
    chips: int

    @property
    def per_user(self) -> float:
        """Interactivity as InferenceX has it: the inverse of the median TPOT."""
        return 1 / self.tpot[0] if self.tpot[0] else float("inf")

    @property
    def rate_a_chip(self) -> float:
        """Input and output tokens per second and chip."""
        return self.total_rate / self.chips


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of all are not above."""
    ordered = sorted(values)
    return ordered[max(0, ceil(len(ordered) * share) - 1)]


@dataclass
class Server:
    """The domain, its queue of requests, and the clock."""

    model: Model
    chip: Chip
    time_of: Callable[[Batch], tuple[float, Band]]
    policy: Policy
    draw: random.Random
    now: float = 0.0
    waiting: deque[Request] = field(default_factory=deque)
    running: list[Request] = field(default_factory=list)
    finished: list[Request] = field(default_factory=list)
    joules: list[float] = field(default_factory=lambda: [0.0, 0.0])
    peak: list[float] = field(default_factory=lambda: [0.0, 0.0])
    iterations: int = 0

    def __post_init__(self) -> None:
        free = self.chip.capacity - self.model.resident
        self.tokens_held = int(free / self.model.kv_token)
        if self.tokens_held < 1:
            raise ValueError(
                f"{self.model.name} takes {self.model.resident / 1e9:.0f} GB, the domain of '{self.chip.name}' has "
                f"{self.chip.capacity / 1e9:.0f} GB"
            )

    def _admitted(self) -> int:
        """How many of the waiting requests have room for all their tokens beside those that run."""
        free = self.tokens_held - sum(r.inputs + r.outputs for r in self.running)
        for count, request in enumerate(self.waiting):
            free -= request.inputs + request.outputs
            if free < 0:
                return count
        return len(self.waiting)

    def iterate(self) -> list[Request]:
        """One iteration; returns the requests that it finished."""
        positions = len(self.running) * (1 + self.policy.draft)
        left = max(0, self.policy.budget - positions)
        parts, starting = [], []
        for request in list(self.waiting)[: self._admitted()]:
            if not left:
                break
            now = min(left, request.inputs - request.prefilled)
            parts.append((now, request.prefilled))
            request.prefilled += now
            left -= now
            if request.prefilled == request.inputs:
                starting.append(request)
        prefill = sum(now for now, _ in parts)
        if not positions and not prefill:
            raise ValueError(f"a request does not fit: the memory has room for {self.tokens_held} tokens of KV cache")
        context = sum(r.context for r in self.running) / len(self.running) if self.running else 0.0
        history = sum(now * before for now, before in parts) / prefill if prefill else 0.0
        seconds, joules = self.time_of(Batch(positions, context, prefill, history, bool(starting)))
        if self.policy.draft and positions:
            seconds *= 1 + self.policy.draft_cost
        self._account(seconds, joules)
        return self._advance(starting)

    def _account(self, seconds: float, joules: Band) -> None:
        self.now += seconds
        self.iterations += 1
        for end in (0, 1):
            self.joules[end] += joules[end]
            self.peak[end] = max(self.peak[end], joules[end] / seconds)

    def _advance(self, starting: list[Request]) -> list[Request]:
        done = []
        for request in self.running:
            accepted = 0
            while accepted < self.policy.draft and self.draw.random() < self.policy.acceptance:
                accepted += 1
            request.produced = min(request.outputs, request.produced + 1 + accepted)
        for request in starting:
            self.waiting.remove(request)
            request.first, request.produced = self.now, 1
            self.running.append(request)
        for request in [r for r in self.running if r.produced == r.outputs]:
            request.done = self.now
            self.running.remove(request)
            done.append(request)
        self.finished += done
        return done


def timer(model: Model, chip: Chip, constants: Constants) -> Callable[[Batch], tuple[float, Band]]:
    """Seconds and joules (domain, without static power) of a batch; contexts are rounded to 64 positions."""
    known: dict[Batch, tuple[float, Band]] = {}

    def time_of(batch: Batch) -> tuple[float, Band]:
        rounded = Batch(batch.decode, round(batch.context / 64) * 64, batch.prefill, round(batch.history / 64) * 64,
                        batch.last)  # fmt: skip
        if rounded not in known:
            found: Step = step(model, chip, constants, rounded)
            known[rounded] = found.cycles / chip.clock_hz, energy(found, chip).total
        return known[rounded]

    return time_of


def simulate(
    model: Model,
    chip: Chip,
    constants: Constants,
    load: Load,
    policy: Policy | None = None,
    time_of: Callable[[Batch], tuple[float, Band]] | None = None,
) -> Outcome:
    """Serve `load`. ValueError when the weights or a single request do not fit in the domain's memory."""
    server = Server(
        model, chip, time_of or timer(model, chip, constants), policy or Policy(), random.Random(load.seed + 1)
    )
    lengths = deque(load.lengths())
    for _ in range(load.concurrency):
        server.waiting.append(Request(*lengths.popleft(), arrived=0.0))
    while len(server.finished) < load.requests:
        for _ in server.iterate():
            if lengths:
                server.waiting.append(Request(*lengths.popleft(), arrived=server.now))
    return outcome([server], server.finished, load)


def outcome(servers: Sequence[Server], requests: Sequence[Request], load: Load) -> Outcome:
    """What `requests`, all done, were given by one server or by several together; power is over all chips."""
    seconds = max(server.now for server in servers)
    chips = sum(server.chip.domain.chips for server in servers)

    def both(values: Sequence[float]) -> tuple[float, float]:
        return percentile(values, 0.5), percentile(values, 0.95)

    def watts(of: Callable[[Server, int], float]) -> Band:
        low, high = (
            sum(of(server, end) + server.chip.domain.chips * server.chip.power.static_watts[end] for server in servers)
            / chips
            for end in (0, 1)
        )
        return low, high

    outputs = sum(r.outputs for r in requests)
    return Outcome(
        concurrency=load.concurrency,
        ttft=both([r.ttft for r in requests]),
        tpot=both([r.tpot for r in requests]),
        end_to_end=both([r.end_to_end for r in requests]),
        output_rate=outputs / seconds,
        total_rate=(outputs + sum(r.inputs for r in requests)) / seconds,
        chip_watts=watts(lambda server, end: server.joules[end] / seconds),
        peak_watts=watts(lambda server, end: server.peak[end]),
        seconds=seconds,
        iterations=sum(server.iterations for server in servers),
        chips=chips,
    )


def sweep(
    model: Model, chip: Chip, constants: Constants, concurrencies: Sequence[int], rounds: int = 4,
    policy: Policy | None = None, seed: int = 1,
) -> list[Outcome]:  # fmt: skip
    """One outcome for each concurrency, with `rounds` requests for each place (at least 16 requests)."""
    time_of = timer(model, chip, constants)
    loads = [Load(c, max(16, rounds * c), seed=seed) for c in concurrencies]
    return [simulate(model, chip, constants, load, policy, time_of) for load in loads]


def per_kilowatt(outcome: Outcome, chip: Chip) -> dict[str, Band | float]:
    """Input and output tokens per second and kW, on each basis of power: named, never mixed."""
    bases: dict[str, Band | float] = {
        "modelled chip power": (1e3 * outcome.rate_a_chip / outcome.chip_watts[1],
                                1e3 * outcome.rate_a_chip / outcome.chip_watts[0]),
    }  # fmt: skip
    if chip.power.tdp_watts:
        tdp = chip.power.tdp_watts
        bases["chip TDP (assumed)"] = 1e3 * outcome.rate_a_chip / tdp
        low, high = chip.power.all_in_ratio
        bases["all-in utility (assumed TDP)"] = (
            1e3 * outcome.rate_a_chip / (tdp * high), 1e3 * outcome.rate_a_chip / (tdp * low)
        )  # fmt: skip
    return bases
