"""The stages of a run: shown while they last, timed, kept for the summary."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

_HEARTBEAT = 15.0  # seconds between signs of life where there is no terminal to draw on


@dataclass
class Stage:
    """One stage; `detail` is shown beside it, `cached` says that an earlier result was used."""

    name: str
    detail: str = ""
    seconds: float = 0.0
    cached: bool = False


@dataclass
class Stages:
    """Stages in order. `record` is their part of the summary."""

    console: Console = field(default_factory=Console)
    done: list[Stage] = field(default_factory=list)

    @contextmanager
    def stage(self, name: str, follow: Path | None = None) -> Iterator[Stage]:
        """Run a stage; the last line of the file `follow` is shown as its progress."""
        stage, begun, finished = Stage(name), time.perf_counter(), threading.Event()
        with self.console.status(name) as status:
            watcher = threading.Thread(target=self._watch, args=(stage, status, follow, finished), daemon=True)
            watcher.start()
            try:
                yield stage
            finally:
                finished.set()
                watcher.join()
        stage.seconds = time.perf_counter() - begun
        self.done.append(stage)
        detail = f"  {stage.detail}" if stage.detail else ""
        self.console.print(f"[green]✓[/] {name:<10} {stage.seconds:6.1f} s{detail}", highlight=False, soft_wrap=True)

    def _watch(self, stage: Stage, status: object, follow: Path | None, finished: threading.Event) -> None:
        begun = last = time.perf_counter()
        while not finished.wait(0.5):
            now = time.perf_counter()
            lines = follow.read_text().splitlines() if follow and follow.exists() else []
            text = f"{stage.name} {now - begun:.0f} s  {lines[-1] if lines else stage.detail}"
            status.update(text)  # type: ignore[attr-defined]
            if not self.console.is_terminal and now - last > _HEARTBEAT:
                last = now
                self.console.print(f"  {text}", highlight=False, soft_wrap=True)

    def record(self) -> list[dict[str, object]]:
        return [{"name": s.name, "seconds": round(s.seconds, 3), "cached": s.cached} for s in self.done]
