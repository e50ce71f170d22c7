"""The report of a run as one self-contained HTML page."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2

from scripts.figures import text
from scripts.report import pictures, terminal

TEMPLATE = Path(__file__).with_name("page.html.j2")
KINDS = {
    "measured": "counted in the RTL in this run",
    "derived": "computed from measured numbers",
    "published": "from a public document",
    "assumed": "neither; the reason is given",
}


def headline(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The few numbers that stand on top of the page: label and value."""
    tiles = [
        ("products bit-exact", f"{sum(p['bit_exact'] for p in summary['products'])} of {len(summary['products'])}")
    ]
    for mode, key, label in (("decode", "hbm_utilisation", "HBM used in decode"),
                             ("prefill", "array_utilisation", "array used in prefill")):  # fmt: skip
        chosen = [item for item in summary["products"] if item["mode"] == mode]
        if chosen:
            cycles = sum(item["cycles"] for item in chosen)
            tiles.append((label, terminal.percent(sum(item[key] * item["cycles"] for item in chosen) / cycles)))
    tiles.append(("cycles simulated", text(summary["simulation"]["cycles"])))
    tiles.append(("cycles a second", text(float(summary["simulation"]["cycles_per_second"]))))
    return tiles


def render(summary: Mapping[str, Any]) -> str:
    """The page of a checked summary."""
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True,
                                     lstrip_blocks=True)  # fmt: skip
    environment.filters |= {"text": text, "percent": terminal.percent, "band": terminal.band,
                            "main_stall": terminal.main_stall, "shares": terminal.shares}  # fmt: skip
    drawn = [("How busy the array and the memory were", pictures.utilisation(summary)),
             ("Where the array's cycles went", pictures.stalls(summary)),
             ("What the memory delivered", pictures.bandwidth(summary))]  # fmt: skip
    extrapolated = [
        pictures.quantities(summary, {"tok/s/user": 1}), pictures.quantities(summary, {"W": 1, "kW": 1000}),
        pictures.shares(summary),
    ]  # fmt: skip
    return environment.from_string(TEMPLATE.read_text()).render(
        summary=summary, headline=headline(summary), kinds=KINDS, pictures=drawn,
        extrapolated=[picture for picture in extrapolated if picture],
        time=pictures.time(summary) if summary["stages"] else "",
    )  # fmt: skip


def write_page(summary: Mapping[str, Any], path: Path) -> Path:
    """Write the page in one step and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(render(summary))
    return temporary.replace(path)
