"""The report's pictures, as SVG text. Colours are told apart by colour-blind readers (Okabe and Ito's palette)."""

import io
from collections.abc import Callable, Mapping
from typing import Any

import matplotlib

matplotlib.use("svg")  # first: there is no display
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from scripts.report import terminal

BLUE, ORANGE, GREEN, PURPLE, RED, SKY, YELLOW, GREY = (
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#f0e442", "#b8bec6")  # fmt: skip
CAUSES = (ORANGE, GREEN, PURPLE, YELLOW, RED, SKY)
KINDS = {"measured": GREEN, "derived": BLUE, "published": ORANGE, "assumed": GREY}
STYLE: Any = {
    "font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans"], "font.size": 9, "axes.spines.top": False,
    "axes.spines.right": False, "axes.edgecolor": "#8a929c", "axes.labelcolor": "#39424e", "text.color": "#1b222b",
    "xtick.color": "#39424e", "ytick.color": "#39424e", "axes.titlesize": 10, "axes.titleweight": "bold",
    "axes.titlelocation": "left", "svg.hashsalt": "serrano", "legend.frameon": False,
    "figure.constrained_layout.use": True,
}  # fmt: skip


def _svg(draw: Callable[[], Canvas]) -> str:
    with plt.rc_context(STYLE):
        figure = draw()
        text = io.StringIO()
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
        plt.close(figure)
    return text.getvalue()[text.getvalue().index("<svg") :]


def _labels(products: list[Mapping[str, Any]]) -> list[str]:
    return [f"{item['name']}" for item in products]


def _modes(summary: Mapping[str, Any]) -> list[tuple[str, list[Mapping[str, Any]]]]:
    """The products of each mode that the run has, titled with the number of positions."""
    groups: list[tuple[str, list[Mapping[str, Any]]]] = []
    for mode in ("decode", "prefill"):
        chosen = [item for item in summary["products"] if item["mode"] == mode]
        if chosen:
            positions = max(item["M"] for item in chosen)
            groups.append((f"{mode}, {positions} position{'s' if positions > 1 else ''}", chosen))
    return groups


def _panels(summary: Mapping[str, Any], draw: Callable[[Axes, list[Mapping[str, Any]]], None]) -> Canvas:
    """One panel a mode, the products down the side."""
    groups = _modes(summary)
    rows = max(len(chosen) for _, chosen in groups)
    figure, axes = plt.subplots(1, len(groups), figsize=(9.6, 0.75 + 0.42 * rows), squeeze=False)
    for axis, (title, chosen) in zip(axes[0], groups, strict=True):
        draw(axis, chosen)
        axis.set_title(title)
        axis.set_yticks(range(len(chosen)), _labels(chosen))
        axis.invert_yaxis()
        axis.tick_params(axis="y", length=0)
    handles, names = axes[0][0].get_legend_handles_labels()
    for axis in axes[0][1:]:
        for handle, name in zip(*axis.get_legend_handles_labels(), strict=True):
            if name not in names:
                handles, names = [*handles, handle], [*names, name]
    if handles:
        figure.legend(handles, names, loc="outside lower center", ncols=min(6, len(names)))
    return figure


def utilisation(summary: Mapping[str, Any]) -> str:
    """Array and HBM utilisation of every product, per cent."""

    def draw(axis: Axes, chosen: list[Mapping[str, Any]]) -> None:
        for offset, key, name, colour in ((-0.19, "array_utilisation", "array", BLUE),
                                          (0.19, "hbm_utilisation", "HBM", ORANGE)):  # fmt: skip
            values = [100 * item[key] for item in chosen]
            bars = axis.barh([row + offset for row in range(len(chosen))], values, 0.36, color=colour, label=name)
            axis.bar_label(bars, [f"{value:.0f}" for value in values], padding=3, fontsize=8)
        axis.set_xlim(0, 110)
        axis.set_xticks(range(0, 101, 25))
        axis.set_xlabel("utilisation, % of peak")

    return _svg(lambda: _panels(summary, draw))


def stalls(summary: Mapping[str, Any]) -> str:
    """Where the array's cycles went: busy, or idle by cause, per cent."""
    causes = sorted({cause for item in summary["products"] for cause, cycles in item["stalls"].items() if cycles})

    def draw(axis: Axes, chosen: list[Mapping[str, Any]]) -> None:
        rows = range(len(chosen))
        busy = [100 * (1 - min(1, sum(item["stalls"].values()) / item["cycles"])) for item in chosen]
        axis.barh(rows, busy, 0.62, color=BLUE, label="busy")
        left = busy
        for index, cause in enumerate(causes):
            part = [100 * item["stalls"].get(cause, 0) / item["cycles"] for item in chosen]
            axis.barh(rows, part, 0.62, left=left, color=CAUSES[index % len(CAUSES)], label=cause.replace("_", " "))
            left = [a + b for a, b in zip(left, part, strict=True)]
        axis.set_xlim(0, 100)
        axis.set_xlabel("cycles of the slowest tile, %")

    return _svg(lambda: _panels(summary, draw))


def bandwidth(summary: Mapping[str, Any]) -> str:
    """HBM bandwidth of every product, GB/s at the chip's clock, with the peak as a line."""
    clock = summary["simulation"].get("clock_hz", 1e9)

    def rate(item: Mapping[str, Any]) -> float:
        return float(item["hbm_bytes"] / item["cycles"] * clock / 1e9)

    peaks = [rate(item) / item["hbm_utilisation"] for item in summary["products"] if item["hbm_utilisation"] > 0]
    peak = sorted(peaks)[len(peaks) // 2] if peaks else 0.0

    def draw(axis: Axes, chosen: list[Mapping[str, Any]]) -> None:
        values = [rate(item) for item in chosen]
        bars = axis.barh(range(len(chosen)), values, 0.55, color=ORANGE)
        axis.bar_label(bars, [f"{value:.1f}" for value in values], label_type="center", fontsize=8)
        axis.axvline(peak, color="#39424e", linewidth=1, linestyle="--", label=f"peak {peak:.0f} GB/s")
        axis.set_xlim(0, 1.12 * max([peak, *values]) or 1)
        axis.set_xlabel("HBM read bandwidth, GB/s")

    return _svg(lambda: _panels(summary, draw))


def time(summary: Mapping[str, Any]) -> str:
    """Wall time by stage, seconds; what an earlier run had built is hatched."""

    def draw() -> Canvas:
        stages = summary["stages"]
        figure, axis = plt.subplots(figsize=(9.6, 0.7 + 0.3 * len(stages)))
        bars = axis.barh([item["name"] for item in stages], [item["seconds"] for item in stages], 0.6,
                         color=[GREY if item["cached"] else GREEN for item in stages])  # fmt: skip
        axis.bar_label(bars, [f"{item['seconds']:.1f} s{' (kept)' if item['cached'] else ''}" for item in stages],
                       padding=3, fontsize=8)  # fmt: skip
        axis.invert_yaxis()
        axis.margins(x=0.15)
        axis.tick_params(axis="y", length=0)
        axis.set_xlabel("wall time, s")
        return figure

    return _svg(draw)


def _drawn(summary: Mapping[str, Any], units: Mapping[str, float]) -> list[tuple[str, Mapping[str, Any]]]:
    """Label and quantity of everything in these units, scaled to the first; a published number is of its own chip."""
    rows: list[tuple[str, Mapping[str, Any]]] = []
    for scenario in summary["extrapolation"]:
        for item in scenario["quantities"]:
            if item["unit"] not in units or not isinstance(item["value"], (int, float)) or item["value"] <= 0:
                continue
            scale = units[item["unit"]]
            scaled = {key: scale * item[key] for key in ("value", "low", "high") if key in item}
            chip = "" if item["kind"] == "published" else f", {scenario['chip']}"
            rows.append((f"{scenario['model']}\n{item['name']}{chip}", {**item, **scaled}))
    return rows


def quantities(summary: Mapping[str, Any], units: Mapping[str, float]) -> str:
    """Extrapolated quantities on a logarithmic scale, with their bands, coloured by kind; empty for fewer than two.

    `units` maps each unit that is drawn to its factor in the first one.
    """
    rows = _drawn(summary, units)

    def draw() -> Canvas:
        figure, axis = plt.subplots(figsize=(9.6, 0.8 + 0.5 * len(rows)))
        for row, (_, item) in enumerate(rows):
            low, high = item.get("low", item["value"]), item.get("high", item["value"])
            colour = KINDS[item["kind"]]
            axis.plot([low, high], [row, row], color=colour, linewidth=6, alpha=0.35, solid_capstyle="butt")
            axis.plot(item["value"], row, "o", color=colour, markersize=7)
            place = (item["value"], row)
            axis.annotate(f"{item['value']:,.4g}", place, (0, 8), textcoords="offset points", ha="center", fontsize=8)
        axis.set_yticks(range(len(rows)), [label for label, _ in rows], fontsize=8)
        axis.set_ylim(len(rows) - 0.5, -0.7)
        axis.set_xscale("log")
        axis.xaxis.set_major_formatter("{x:,g}")
        axis.xaxis.set_minor_formatter("")
        axis.margins(x=0.12)
        axis.grid(axis="x", color="#e3e7ec")
        axis.set_xlabel(f"{next(iter(units))} (band shaded)")
        used = [kind for kind in KINDS if any(item["kind"] == kind for _, item in rows)]
        handles = [plt.Line2D([], [], marker="o", linestyle="", color=KINDS[kind]) for kind in used]
        figure.legend(handles, used, loc="outside lower center", ncols=4)
        return figure

    return _svg(draw) if len(rows) > 1 else ""


def shares(summary: Mapping[str, Any]) -> str:
    """What part of a step's time goes where, a bar a scenario; what is assumed is hatched."""
    rows = [(scenario["model"], terminal.shares(scenario)) for scenario in summary["extrapolation"]]
    rows = [(model, parts) for model, parts in rows if parts]
    names = list(dict.fromkeys(item["name"].removeprefix("share: ") for _, parts in rows for item in parts))
    colours = dict(zip(names, (BLUE, *CAUSES, GREY, "#999933", "#882255"), strict=False))

    def draw() -> Canvas:
        figure, axis = plt.subplots(figsize=(9.6, 1.1 + 0.5 * len(rows)))
        for row, (_, parts) in enumerate(rows):
            left = 0.0
            for item in parts:
                name = item["name"].removeprefix("share: ")
                hatch = "//" if item["kind"] == "assumed" else None
                (bar,) = axis.barh(row, item["value"], 0.6, left=left, color=colours.get(name, GREY), hatch=hatch,
                                   edgecolor="white", linewidth=0.5)  # fmt: skip
                if item["value"] >= 4:
                    axis.annotate(f"{item['value']:.0f}", bar.get_center(), ha="center", va="center", fontsize=8)
                left += item["value"]
        axis.set_yticks(range(len(rows)), [model for model, _ in rows])
        axis.invert_yaxis()
        axis.tick_params(axis="y", length=0)
        axis.set_xlim(0, 100)
        axis.set_xlabel("time of a decode step, % (hatched: assumed)")
        patches = [plt.Rectangle((0, 0), 1, 1, color=colours.get(name, GREY)) for name in names]
        figure.legend(patches, names, loc="outside lower center", ncols=4)
        return figure

    return _svg(draw) if rows else ""
