"""An in-order scoreboard: what the golden model expects against what a monitor saw."""

from __future__ import annotations

from collections import deque
from typing import Any

from pyuvm import uvm_subscriber


class Scoreboard(uvm_subscriber):
    """Compares in order. Connect a monitor's analysis port to `analysis_export`; call `expect` for each golden value.

    A value may be found before it is expected. `check_phase` fails when anything is left over on either side, and when
    nothing was compared at all.
    """

    def __init__(self, name: str, parent: Any):
        super().__init__(name, parent)
        self.expected: deque[Any] = deque()
        self.found: deque[Any] = deque()
        self.compared = 0

    def expect(self, value: Any) -> None:
        self.expected.append(value)
        self._compare()

    def write(self, value: Any) -> None:
        self.found.append(value)
        self._compare()

    def _compare(self) -> None:
        while self.expected and self.found:
            expected, found = self.expected.popleft(), self.found.popleft()
            assert expected == found, (
                f"{self.get_full_name()}: item {self.compared}: expected {_show(expected)}, found {_show(found)}"
            )
            self.compared += 1

    def check_phase(self) -> None:
        name = self.get_full_name()
        assert not self.expected, f"{name}: {len(self.expected)} items never came; first: {_show(self.expected[0])}"
        assert not self.found, f"{name}: {len(self.found)} items were not expected; first: {_show(self.found[0])}"
        assert self.compared, f"{name}: nothing was compared"


def _show(value: Any) -> str:
    if isinstance(value, int):
        return hex(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_show(part)}" for key, part in value.items()) + "}"
    return repr(value)
