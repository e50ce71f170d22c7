"""Circuits in files, and the one that the environment puts into the tile.

A file is JSON: `schema`, `specification`, `cuts` (see `PipelinedCircuit`), `inputs` and `outputs` (port name to nets,
lowest bits first; 0 and 1 are the constants) and `cells` (`[kind, *input nets, output net]` in topological order). What
else it holds (origin, figures) is for people.
"""

from __future__ import annotations

import functools
import json
import os
from dataclasses import dataclass, field
from pathlib import Path

from hw.numerics.formats import FormatSet
from hw.variants.circuit import KINDS, Gates, VariantBlockDot

__all__ = ["SCHEMA", "SWITCH", "VariantError", "VariantFile", "read", "selected", "switch_arguments", "write"]

SCHEMA = "serrano.variant/1"
SWITCH = "SERRANO_VARIANT"
"""Environment variable that names the file; `make ... VARIANT=file` sets it."""


class VariantError(ValueError):
    """A file that holds no circuit variant; the message is complete and printable."""


@dataclass(frozen=True)
class _Cell:
    kind: str
    inputs: tuple[int, ...]
    output: int


@dataclass(frozen=True)
class VariantFile:
    """A circuit (`Gates`) with the specification that it was proved against and where it is cut into stages."""

    specification: str
    cuts: tuple[int, ...]
    inputs: dict[str, list[int]]
    outputs: dict[str, list[int]]
    cells: tuple[_Cell, ...] = field(repr=False)

    def fits(self, formats: FormatSet) -> bool:
        """Whether it can stand for the block dot of these formats."""
        return self.specification == "dot_s8x32" and VariantBlockDot.fits(formats, self)

    def block_dot(self, formats: FormatSet) -> VariantBlockDot:
        """The block dot around this circuit; raises ValueError where it does not fit."""
        return VariantBlockDot(formats, self, self.cuts)


def switch_arguments() -> list[str]:
    """What a command line needs beside its own arguments to run with the circuit of this one."""
    path = os.environ.get(SWITCH, "")
    return [f"VARIANT={path}"] if path else []


def write(path: Path, specification: str, cuts: tuple[int, ...], gates: Gates, notes: dict) -> None:
    """Keep a circuit in a file; `notes` are further keys for people."""
    content = {
        "schema": SCHEMA,
        "specification": specification,
        **notes,
        "cuts": list(cuts),
        "inputs": gates.inputs,
        "outputs": gates.outputs,
        "cells": [[cell.kind, *cell.inputs, cell.output] for cell in gates.cells],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, separators=(",", ":")) + "\n")


def read(path: Path) -> VariantFile:
    """The circuit in a file; raises `VariantError` with the path and what is wrong with it."""
    try:
        content = json.loads(path.read_text())
        if content["schema"] != SCHEMA:
            raise ValueError(f"its schema must be {SCHEMA!r}, not {content['schema']!r}")
        cells = tuple(_Cell(kind, tuple(pins), output) for kind, *pins, output in content["cells"])
        found = VariantFile(
            content["specification"], tuple(content["cuts"]), content["inputs"], content["outputs"], cells
        )
        known = {0, 1} | {net for nets in found.inputs.values() for net in nets}
        for cell in cells:
            if cell.kind not in KINDS or not known.issuperset(cell.inputs) or cell.output in known:
                raise ValueError(f"cell {cell.kind} {cell.inputs} -> {cell.output} is not a gate on nets before it")
            known.add(cell.output)
        if not known.issuperset(net for nets in found.outputs.values() for net in nets):
            raise ValueError("an output is not driven")
    except (OSError, KeyError, TypeError, AttributeError, ValueError) as error:
        missing = f"it has no {error}" if isinstance(error, KeyError) else error
        raise VariantError(f"{path} is no circuit variant: {missing}") from None
    return found


@functools.lru_cache(maxsize=4)
def _read(path: str, _: int) -> VariantFile:
    return read(Path(path))


def selected() -> VariantFile | None:
    """The circuit that `SERRANO_VARIANT` names, or None where it is empty; raises `VariantError` for a bad file."""
    path = os.environ.get(SWITCH, "")
    if not path:
        return None
    try:
        changed = Path(path).stat().st_mtime_ns
    except OSError as error:
        raise VariantError(f"{SWITCH}={path}: {error.strerror}") from None
    return _read(path, changed)
