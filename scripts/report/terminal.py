"""The report of a run on the terminal."""

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from scripts.figures import show as show_figures
from scripts.figures import text


def percent(fraction: float) -> str:
    """A fraction as the report prints it."""
    return f"{100 * fraction:.1f} %"


def main_stall(product: Mapping[str, Any]) -> str:
    """The largest stall cause of a product and its part of the cycles; empty where nothing stalled."""
    stalls = {cause: cycles for cause, cycles in product["stalls"].items() if cycles}
    if not stalls:
        return ""
    cause = max(stalls, key=lambda name: stalls[name])
    return f"{cause} {percent(stalls[cause] / product['cycles'])}"


def band(quantity: Mapping[str, Any]) -> str:
    """A quantity's value, with its band where it has one."""
    value = text(quantity["value"])
    if "low" in quantity and "high" in quantity:
        value += f" ({text(quantity['low'])} to {text(quantity['high'])})"
    return value


def table(title: str, left: tuple[str, ...], right: tuple[str, ...], tail: tuple[str, ...]) -> Table:
    """A narrow table, eighty columns being what a terminal is sure to have."""
    made = Table(title=title, title_justify="left", header_style="bold", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0),
                 pad_edge=False)  # fmt: skip
    for headers, justify in ((left, "left"), (right, "right"), (tail, "left")):
        for header in headers:
            made.add_column(header, justify=justify, overflow="fold")  # type: ignore[arg-type]
    return made


def products(summary: Mapping[str, Any]) -> Table:
    """One row for each product that ran on the RTL."""
    made = table(
        "Products on the RTL", ("product",), ("MxKxN", "cycles", "MACs", "array", "HBM"), ("main stall", "exact")
    )
    mode = ""
    for item in summary["products"]:
        if item["mode"] != mode:
            mode = item["mode"]
            made.add_section()
            made.add_row(f"[italic]{mode}[/]")
        made.add_row(
            f" {item['name']}", f"{item['M']}x{item['K']}x{item['N']}", text(item["cycles"]), text(item["macs"]),
            percent(item["array_utilisation"]), percent(item["hbm_utilisation"]), main_stall(item),
            "[green]yes[/]" if item["bit_exact"] else "[red]NO[/]",
        )  # fmt: skip
    return made


def shares(scenario: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The quantities of a scenario that say what part of a step's time goes where: named ``share: ...``, in %."""
    return [item for item in scenario["quantities"] if item["name"].startswith("share: ")]


def extrapolation(scenario: Mapping[str, Any]) -> Table:
    """What the run says about one model on one chip, each number with its kind; the shares are on the page."""
    title = f"{scenario['model']} on {scenario['chip']}"
    made = table(title, ("quantity",), ("value (band)",), ("unit", "kind"))
    for quantity in scenario["quantities"]:
        if quantity not in shares(scenario):
            made.add_row(f" {quantity['name']}", band(quantity), quantity["unit"], quantity["kind"])
    return made


def show(summary: Mapping[str, Any], console: Console | None = None) -> None:
    """Print the whole report of a checked summary."""
    console = console or Console()
    config, run = summary["config"]["name"], summary["simulation"]
    console.print(
        f"\n[bold]{summary['model']['name']}[/], layer {summary['layer']}, on chip '{config}', "
        f"seed {summary['seed']}, commit {summary['commit']}"
    )
    console.print(products(summary))
    stages = ", ".join(f"{item['name']} {item['seconds']:.1f} s{' (kept)' if item['cached'] else ''}"
                       for item in summary["stages"])  # fmt: skip
    console.print(
        f"Simulated {text(run['cycles'])} cycles in {run['seconds']:.1f} s: {text(run['cycles_per_second'])} cycles/s\n"
        f"Wall time: {stages}",
        highlight=False,
    )
    if summary["outside_rtl"]:
        outside = "; ".join(f"{item['what']} ({item['where']})" for item in summary["outside_rtl"])
        console.print(f"Computed outside the RTL: {outside}", highlight=False)
    for scenario in summary["extrapolation"]:
        console.print(extrapolation(scenario))
    if summary["figures"]:
        show_figures(summary["figures"], title="Figures", console=console)
    console.print(verdict(summary))


def verdict(summary: Mapping[str, Any]) -> str:
    """The last line: everything bit-exact, or the first difference and how to run just that again."""
    done = sum(item["bit_exact"] for item in summary["products"])
    if summary["passed"]:
        return f"[bold green]PASS[/] {done} of {len(summary['products'])} products bit-exact"
    lines = [f"[bold red]FAIL[/] {done} of {len(summary['products'])} products bit-exact"]
    if difference := summary.get("difference"):
        lines.append(
            f"  first difference: {difference['product']}{difference['index']}: expected {difference['expected']}, "
            f"found {difference['found']} (seed {difference['seed']})\n  rerun: {difference['rerun']}"
        )
    return "\n".join(lines)
