"""The line protocol between the explorer and a proposer: JSON objects, one a line, over standard input and output.

To the proposer: `hello` (specification, budget, forms, what is known so far), `propose` (what is left of the budget),
`result` (verdict, figures or counterexample of one candidate), `done`. From it, after each `propose`, one line:

    {"kind": "graph", "graph": {...}, "rationale": "...", "origin": "..."}
    {"kind": "verilog", "verilog": "module ...", "rationale": "...", "origin": "..."}
    {"kind": "stop"}

Whatever else it writes costs it its budget and nothing more: a line that is no candidate is answered by a `result` with
verdict `invalid`; silence ends with the time limit; a line longer than `MAX_LINE` ends the proposer.
"""

import json
import os
import selectors
import shlex
import signal
import subprocess
import time
from collections.abc import Sequence

from scripts.explore.archive import text
from scripts.explore.judge import Candidate

PROTOCOL = 1
MAX_LINE = 16 << 20
MAX_INVALID = 20
"""Lines in a row that are no candidates, after which a proposer is ended."""


class ProposerGone(RuntimeError):
    """The proposer has ended, stopped, or was ended: the message says why."""


def parse(line: str) -> Candidate | None:
    """A candidate, or None for `stop`; raises `ValueError` for a line that is neither."""
    try:
        message = json.loads(line)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(message, dict):
        raise ValueError("not a JSON object")
    kind = message.get("kind")
    if kind == "stop":
        return None
    labels = {key: message.get(key, "") for key in ("origin", "rationale")}
    if not all(isinstance(value, str) for value in labels.values()):
        raise ValueError("origin and rationale must be text")
    labels = {key: value[:2000] for key, value in labels.items()}
    if kind == "graph" and isinstance(message.get("graph"), dict):
        return Candidate("graph", text(message["graph"]), **labels)
    if kind == "verilog" and isinstance(message.get("verilog"), str):
        return Candidate("verilog", message["verilog"], **labels)
    raise ValueError('a candidate is {"kind": "graph", "graph": {...}} or {"kind": "verilog", "verilog": "..."}')


class Proposer:
    """A running proposer program."""

    def __init__(self, command: str | Sequence[str]) -> None:
        words = shlex.split(command) if isinstance(command, str) else list(command)
        if not words:
            raise ProposerGone("no command was given")
        try:
            self._process = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
            )
        except OSError as error:
            raise ProposerGone(f"cannot start {words[0]!r}: {error.strerror}") from error
        assert self._process.stdin is not None and self._process.stdout is not None
        os.set_blocking(self._process.stdin.fileno(), False)
        self._buffer = b""

    def send(self, message: dict, seconds: float = 10.0) -> None:
        """One line to the proposer; raises `ProposerGone` if it does not read."""
        data = (text(message) + "\n").encode()
        pipe = self._process.stdin
        assert pipe is not None
        deadline = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_WRITE)
            while data:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise ProposerGone("it does not read its input")
                try:
                    data = data[os.write(pipe.fileno(), data[: 1 << 16]) :]
                except BrokenPipeError as error:
                    raise ProposerGone("it has ended") from error

    def receive(self, seconds: float) -> str:
        """The next line; raises `ProposerGone` at the end, after `seconds`, or for a line that is too long."""
        pipe = self._process.stdout
        assert pipe is not None
        deadline = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                if len(self._buffer) > MAX_LINE:
                    raise ProposerGone(f"it wrote a line longer than {MAX_LINE} bytes")
                left = deadline - time.monotonic()
                if left <= 0 or not selector.select(left):
                    raise ProposerGone(f"it was silent for {seconds:.0f} s")
                data = os.read(pipe.fileno(), 1 << 16)
                if not data:
                    raise ProposerGone("it has ended")
                self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode(errors="replace")

    def close(self) -> None:
        """End the proposer and whatever it started."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:
                    pass
        try:
            self._process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
