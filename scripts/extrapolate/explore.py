"""Free parameters swept: which chips and domains reach the published latencies of all three models, and which not.

Stacks, clock, domain and links of Jalapeño have no public value. A combination that reaches its figures is therefore
one of many, and never "the" chip.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rich.table import Table

from scripts.extrapolate.chips import Chip
from scripts.extrapolate.cycles import Constants
from scripts.extrapolate.scenarios import LARGE, fits, request, resized
from scripts.extrapolate.shapes import load
from scripts.published import published

STACKS = (6, 8)
DOMAINS = (1, 2, 4, 8, 16, 32)
CLOCKS = (1.0, 2.0)
LINKS = (200.0, 400.0, 800.0)


@dataclass(frozen=True)
class Point:
    """One combination: tokens per second and user and end-to-end seconds by model; None where it does not fit."""

    chip: Chip
    users: dict[str, tuple[float, float] | None]

    def reaches(self, name: str) -> bool:
        """Whether a model's published tok/s/user and end-to-end time are both reached."""
        found = self.users[name]
        if found is None:
            return False
        wanted = (published(f"jalapeno.{name}.{key}").number for key in ("tok_per_user", "e2e"))
        return found[0] >= next(wanted) and found[1] <= next(wanted)

    @property
    def reaches_all(self) -> bool:
        return all(self.reaches(name) for name in self.users)


def combinations(base: Chip) -> Iterator[Chip]:
    """`base` with every choice of stacks, domain, clock (GHz) and link latency (ns)."""
    for stacks, chips, clock, link in itertools.product(STACKS, DOMAINS, CLOCKS, LINKS):
        if chips == 1 and link != LINKS[0]:
            continue
        sized = resized(base, chips)
        yield replace(
            sized,
            name=f"{stacks} stacks, {chips} chips, {clock:g} GHz, links {link:g} ns",
            clock_hz=int(clock * 1e9),
            columns=round(base.columns * stacks / base.hbm.stacks),
            hbm=replace(base.hbm, stacks=stacks),
            domain=replace(sized.domain, link_nanoseconds=link),
        )


def explore(base: Chip, constants: Constants, names: Sequence[str] = LARGE) -> list[Point]:
    """Every combination with what each model does on it, one user, InferenceX's mean request."""
    models = {name: load(name) for name in names}
    inputs, outputs = (round(published(f"inferencex.mean_{end}").number) for end in ("input", "output"))
    points = []
    for chip in combinations(base):
        users: dict[str, tuple[float, float] | None] = {}
        for name, model in models.items():
            users[name] = None
            if fits(model, chip):
                first, each, _ = request(model, chip, constants, inputs, outputs)
                users[name] = 1 / each, first + (outputs - 1) * each
        points.append(Point(chip, users))
    return points


def table(points: Sequence[Point]) -> Table:
    """One row a combination: tok/s/user and end-to-end seconds of each model, and whether all are reached."""
    names = list(points[0].users)
    made = Table(title="Free parameters: one user, 8k/1k, tok/s/user and end to end", title_justify="left")
    made.add_column("chip")
    for name in names:
        made.add_column(load(name).name, justify="right")
    made.add_column("reaches")
    for point in points:
        cells = []
        for name, found in point.users.items():
            text = f"{found[0]:,.0f}; {found[1]:.2f} s" if found else "does not fit"
            cells.append(f"[green]{text}[/]" if point.reaches(name) else text)
        made.add_row(point.chip.name, *cells, "all" if point.reaches_all else "")
    made.add_section()
    targets = [f"{published(f'jalapeno.{n}.tok_per_user').number:,.0f}; {published(f'jalapeno.{n}.e2e').number} s"
               for n in names]  # fmt: skip
    made.add_row("published for Jalapeño", *targets)
    return made
