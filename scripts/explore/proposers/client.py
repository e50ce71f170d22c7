"""The proposer's side of the line protocol."""

import json
import sys
from collections.abc import Callable
from typing import Protocol


class Strategy(Protocol):
    """What a proposer decides. `propose` returns a message for the explorer, `learn` takes its `result`."""

    def propose(self, number: int) -> dict: ...

    def learn(self, result: dict) -> None: ...


def serve(start: Callable[[dict], Strategy]) -> None:
    """Speak the protocol on standard input and output until `done` or the end of the input."""
    strategy: Strategy | None = None
    for line in sys.stdin:
        message = json.loads(line)
        if message["type"] == "hello":
            strategy = start(message)
        elif message["type"] == "propose" and strategy is not None:
            print(json.dumps(strategy.propose(message["number"])), flush=True)
        elif message["type"] == "result" and strategy is not None:
            strategy.learn(message)
        elif message["type"] == "done":
            return
