"""One exploration: ask the proposer, judge, record, answer; until the budget is spent.

Candidates are judged by a pool of processes (or a Parsl executor). A proposer that answers several `propose` lines at
once keeps every worker busy: up to `workers` candidates are in flight, results come back in the order of submission, so
that a run is the same however many workers there are.
"""

import dataclasses
import re
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future

from golden.specifications import Specification
from scripts.explore import archive as archives
from scripts.explore import baselines, protocol
from scripts.explore.archive import Archive
from scripts.explore.judge import Candidate, Judged
from scripts.explore.measure import FLAVOURS, LARGE_FLAVOURS, Recipe, tool_hashes

PATIENCE = 120.0


@dataclasses.dataclass(frozen=True)
class Budget:
    """Seconds on the wall and number of candidates, whichever ends first; None: no limit."""

    seconds: float | None = None
    candidates: int | None = None

    @classmethod
    def parse(cls, words: str) -> "Budget":
        """`10m`, `90s`, `2h`, `200` (candidates), or two of them with a comma; raises `ValueError`."""
        seconds, candidates = None, None
        for word in words.split(","):
            match = re.fullmatch(r"\s*(\d+)\s*(s|m|h|)\s*", word)
            if not match or not int(match[1]):
                raise ValueError(f"a budget is 90s, 10m, 2h or a number of candidates, not {word!r}")
            if match[2]:
                seconds = float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2]]
            else:
                candidates = int(match[1])
        return cls(seconds, candidates)


@dataclasses.dataclass
class Outcome:
    """What a session did: candidates judged in this call, and why it ended."""

    judged: int = 0
    replayed: int = 0
    seconds: float = 0.0
    reason: str = ""
    verdicts: dict[str, int] = dataclasses.field(default_factory=dict)


class Session:
    """`run` names the series of submissions in the archive; the same name goes on where it was killed."""

    def __init__(
        self,
        specification: Specification,
        archive: Archive,
        recipe: Recipe,
        executor: Executor,
        judge: Callable[..., Judged],
        run: str,
        workers: int = 2,
    ) -> None:
        self.specification, self.archive, self.recipe = specification, archive, recipe
        self.executor, self.judge, self.run_name, self.workers = executor, judge, run, workers
        archive.add_recipe(
            recipe.hash,
            {
                "flavours": FLAVOURS,
                "large": LARGE_FLAVOURS,
                "tools": tool_hashes(),
                "library": "built in" if not recipe.liberty else archives.candidate_id("", "liberty", recipe.liberty),
            },
        )

    def hello(self, budget: Budget) -> dict:
        """The first message: everything a proposer needs to know."""
        specification = self.specification
        ports = {"inputs": specification.inputs, "outputs": specification.outputs}
        return {
            "type": "hello",
            "protocol": protocol.PROTOCOL,
            "forms": ["graph", "verilog"],
            "specification": {
                "name": specification.name,
                "title": specification.title,
                "verilog": specification.verilog,
                **{way: [dataclasses.asdict(port) for port in group] for way, group in ports.items()},
            },
            "budget": dataclasses.asdict(budget),
            "recipe": self.recipe.hash,
            "baselines": [{"origin": origin, **self._known(key)} for origin, key in self.baselines],
            "history": [
                {"candidate": row["candidate"], "origin": row["origin"], "result": row["result"]}
                for row in self.archive.submissions(self.run_name)
            ],
        }

    def _known(self, netlist: str) -> dict:
        return self.archive.find(self.specification.name, self.recipe.hash, netlist) or {}

    def measure_baselines(self) -> None:
        """Yosys's own circuits of the same function, judged by the same recipe, as run `baseline`."""
        self.baselines: list[tuple[str, str]] = []
        for number, (name, candidate) in enumerate(baselines.candidates(self.specification)):
            judged = self._finish(self._submit(candidate))
            self._record("baseline", number, candidate, judged)
            if judged.netlist:
                self.baselines.append((name, judged.netlist))

    def _submit(self, candidate: Candidate) -> Future:
        return self.executor.submit(
            self.judge,
            candidate,
            self.specification.name,
            self.recipe,
            self.archive.known(self.specification.name, self.recipe.hash),
        )

    def _finish(self, future: Future) -> Judged:
        """The result, from the archive where the circuit is known."""
        judged: Judged = future.result()
        if judged.netlist and judged.result["verdict"] == "known":
            return dataclasses.replace(judged, result=self._known(judged.netlist))
        return judged

    def _record(self, run: str, number: int, candidate: Candidate, judged: Judged) -> str:
        if judged.netlist and judged.result["verdict"] in ("correct", "wrong"):
            self.archive.add_circuit(self.specification.name, self.recipe.hash, judged.netlist, judged.result)
        return self.archive.add_submission(
            run,
            number,
            specification=self.specification.name,
            kind=candidate.kind,
            content=candidate.content,
            recipe=self.recipe.hash,
            netlist=judged.netlist,
            origin=candidate.origin,
            rationale=candidate.rationale,
            result=judged.result,
        )

    def run(self, proposer: protocol.Proposer, budget: Budget) -> Outcome:
        """Until the budget is spent or the proposer is gone. Nothing that a proposer does raises out of here."""
        start, outcome = time.monotonic(), Outcome()
        self.measure_baselines()
        past = self.archive.submissions(self.run_name)
        outcome.replayed = len(past)
        pending: deque[tuple[int, Candidate, Future]] = deque()
        number, invalid = len(past), 0

        def left() -> float:
            return PATIENCE if budget.seconds is None else budget.seconds - (time.monotonic() - start)

        def settle() -> None:
            index, candidate, future = pending.popleft()
            judged = self._finish(future)
            key = self._record(self.run_name, index, candidate, judged)
            outcome.judged += 1
            verdict = judged.result["verdict"]
            outcome.verdicts[verdict] = outcome.verdicts.get(verdict, 0) + 1
            proposer.send({"type": "result", "number": index, "candidate": key, **judged.result})

        try:
            proposer.send(self.hello(budget))
            while left() > 0 and (budget.candidates is None or number < budget.candidates):
                if len(pending) >= self.workers:
                    settle()
                proposer.send(
                    {
                        "type": "propose",
                        "number": number,
                        "seconds_left": round(left(), 1),
                        "candidates_left": None if budget.candidates is None else budget.candidates - number,
                    }
                )
                line = proposer.receive(min(max(left(), 0.0), PATIENCE))
                try:
                    candidate = protocol.parse(line)
                except ValueError as error:
                    invalid += 1
                    proposer.send(
                        {"type": "result", "number": number, "verdict": "invalid", "reason": str(error)[:300]}
                    )
                    if invalid >= protocol.MAX_INVALID:
                        raise protocol.ProposerGone(f"{invalid} lines in a row were no candidates") from error
                    continue
                invalid = 0
                if candidate is None:
                    outcome.reason = "the proposer stopped"
                    break
                pending.append((number, candidate, self._submit(candidate)))
                number += 1
            outcome.reason = outcome.reason or "the budget is spent"
        except protocol.ProposerGone as gone:
            spent = budget.seconds is not None and left() <= 0
            outcome.reason = "the budget is spent" if spent else f"the proposer is gone: {gone}"
        while pending:  # what was handed in before the end still counts
            try:
                settle()
            except protocol.ProposerGone:
                pass
        try:
            proposer.send({"type": "done", "reason": outcome.reason}, seconds=1.0)
        except protocol.ProposerGone:
            pass
        proposer.close()
        outcome.seconds = time.monotonic() - start
        return outcome
