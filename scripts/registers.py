"""Writes docs/registers.md from hw/chip/registers.py: `python -m scripts.registers`."""

from __future__ import annotations

import ast
import inspect
from enum import IntEnum
from pathlib import Path

from hw.chip import registers

PAGE = Path(__file__).parent.parent / "docs" / "registers.md"


def _meanings(enumeration: type[IntEnum]) -> list[tuple[str, int, str]]:
    """Name, value and documentation string of each member."""
    tree = ast.parse(inspect.getsource(enumeration)).body[0]
    assert isinstance(tree, ast.ClassDef)
    found = []
    for statement, comment in zip(tree.body, tree.body[1:], strict=False):
        if isinstance(statement, ast.Assign) and isinstance(comment, ast.Expr):
            name = ast.unparse(statement.targets[0])
            found.append((name, int(enumeration[name]), str(ast.literal_eval(comment.value))))
    return found


def page() -> str:
    """The page's text."""
    lines = [
        "# Registers and data windows of the host port",
        "",
        "Generated from `hw/chip/registers.py` by `python -m scripts.registers`.",
        "",
        "## Registers",
        "",
        "AXI4-Lite, 32 bits, whole words. Writing a read-only or unknown register, or reading an unknown one, is",
        "answered with SLVERR.",
        "",
        "| offset | name | access | meaning |",
        "|---|---|---|---|",
    ]
    lines += [f"| 0x{r.offset:02X} | `{r.name}` | {r.access} | {r.meaning} |" for r in registers.REGISTERS.values()]
    lines += ["", "Bits of `error`:", "", "| bit | name | meaning |", "|---|---|---|"]
    lines += [f"| {value} | `{name}` | {text} |" for name, value, text in _meanings(registers.Error)]
    lines += [
        "",
        "## Counters",
        "",
        f"Tile t's counter i is at 0x{registers.COUNTER_BASE:X} + t * 0x{registers.COUNTER_STRIDE:X} + 4 * i; its",
        f"memory controller's counters follow at +0x{registers.HBM_COUNTER_OFFSET:X}.",
        "",
        "| i | tile | memory controller |",
        "|---|---|---|",
    ]
    tile, hbm = registers.TILE_COUNTERS, registers.HBM_COUNTERS
    for index in range(max(len(tile), len(hbm))):
        names = [f"`{group[index]}`" if index < len(group) else "" for group in (tile, hbm)]
        lines.append(f"| {index} | {names[0]} | {names[1]} |")
    lines += [
        "",
        "## Data windows",
        "",
        "AXI4, 256 bits, INCR bursts of whole, aligned beats; bits 31:28 of the address are the window. A burst of",
        "another kind, a partial strobe or the wrong direction is answered with SLVERR, an address outside with "
        "DECERR.",
        "",
        "| bits 31:28 | window | use |",
        "|---|---|---|",
    ]
    lines += [f"| {value} | `{name}` | {text} |" for name, value, text in _meanings(registers.Window)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
