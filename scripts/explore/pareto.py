"""The Pareto front of area, delay and energy, as rows, table, plot and page."""

import html
from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.table import Column, Table

AXES = ("area", "delay", "energy")


def rows(circuits: Sequence[dict]) -> list[dict]:
    """One row a point: candidate, origin, flavour and figures, sorted by delay, area and netlist."""
    result = [
        {"candidate": entry["candidate"], "origin": entry["origin"], "netlist": entry["netlist"][:12], **point}
        for entry in circuits
        for point in entry["result"]["points"]
    ]
    return sorted(result, key=lambda row: (row["delay"], row["area"], row["netlist"], row["flavour"]))


def dominates(left: dict, right: dict, axes: Sequence[str] = ("area", "delay")) -> bool:
    """Nowhere worse and somewhere better."""
    pairs = [(left[axis], right[axis]) for axis in axes if left[axis] is not None and right[axis] is not None]
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)


def front(points: Sequence[dict], axes: Sequence[str] = ("area", "delay")) -> list[dict]:
    """Points that no other dominates; of equal ones the first."""
    kept: list[dict] = []
    for point in points:
        twin = any(all(point[axis] == other[axis] for axis in axes) for other in kept)
        if not twin and not any(dominates(other, point, axes) for other in points):
            kept.append(point)
    return kept


def table(points: Sequence[dict], title: str, unit: str = "GE") -> Table:
    """For a terminal; `unit` is that of the areas."""
    result = Table(Column("candidate", no_wrap=True), "origin", "flavour", title=title, box=box.SIMPLE_HEAD)
    for head in (f"area ({unit})", "delay (ps)", "energy (fJ/op)", "area x delay / 1000"):
        result.add_column(head, justify="right")
    for row in points:
        energy = "" if row["energy"] is None else f"{row['energy']:.1f}"
        result.add_row(
            row["candidate"] or "",
            row["origin"] or "",
            row["flavour"],
            f"{row['area']:.1f}",
            f"{row['delay']:.1f}",
            energy,
            f"{row['area'] * row['delay'] / 1000:.1f}",
        )
    return result


def plot(
    points: Sequence[dict], best: Sequence[dict], baselines: Sequence[dict], path: Path, title: str, unit: str = "GE"
) -> None:
    """Area over delay as SVG; the same input gives the same bytes."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "serrano"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 5))
    axes.scatter([p["delay"] for p in points], [p["area"] for p in points], s=12, color="0.7", label="candidates")
    axes.plot([p["delay"] for p in best], [p["area"] for p in best], "o-", color="tab:blue", label="front")
    for name, mark in (("yosys", "s"), ("yosys booth", "^")):
        mine = [p for p in baselines if p["origin"] == f"baseline: {name}"]
        axes.scatter([p["delay"] for p in mine], [p["area"] for p in mine], marker=mark, color="tab:red", label=name)
    axes.set(xlabel="delay (ps)", ylabel=f"area ({unit})", title=title)
    axes.legend()
    figure.savefig(path, format="svg", metadata={"Date": None})
    pyplot.close(figure)


def page(points: Sequence[dict], best: Sequence[dict], image: str, title: str, notes: Sequence[str]) -> str:
    """One HTML page: picture, front, notes. Text from candidates is escaped."""

    def cell(value: object) -> str:
        return f"<td>{html.escape('' if value is None else str(value))}</td>"

    heads = ("candidate", "origin", "flavour", "area", "delay", "energy")
    body = "\n".join("<tr>" + "".join(cell(row[key]) for key in heads) + "</tr>" for row in best)
    return (
        f"<!doctype html><meta charset=utf-8><title>{html.escape(title)}</title>"
        "<style>body{font:15px sans-serif;margin:2em}td,th{padding:2px 12px;text-align:right}</style>"
        f"<h1>{html.escape(title)}</h1><p>{len(points)} points of correct circuits; {len(best)} on the front.</p>"
        f'<img src="{html.escape(image)}" alt="area over delay">'
        f"<table><tr>{''.join(f'<th>{head}</th>' for head in heads)}</tr>{body}</table>"
        f"<ul>{''.join(f'<li>{html.escape(note)}</li>' for note in notes)}</ul>\n"
    )
