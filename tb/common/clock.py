"""The clock of a testbench."""

from __future__ import annotations

from typing import Any

from cocotb.clock import Clock
from cocotb.handle import Immediate


def start_clock(clock: Any) -> None:
    """Run `clock` at 1 ns a cycle.

    The simulator toggles it (cocotb's default is a coroutine), at once: a change that waits for the next write phase
    has the whole model evaluated twice at each edge. Python still sees what was before the edge when it wakes on it.
    """
    Clock(clock, 1, "ns", impl="gpi", set_action=Immediate).start()
