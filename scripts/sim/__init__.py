"""`make sim`: a real transformer layer on the RTL, bit for bit, with a report."""

from __future__ import annotations

import datetime
import json
import pickle
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from golden.compiler import Plan, lower
from golden.layer import LayerPlan, lower_layer
from golden.smollm2 import ModelFileError
from hw.config import DEFAULT, ChipConfig, ConfigError, load
from hw.variants import switch_arguments
from scripts.extrapolate import extrapolate
from scripts.figures import Figure, commit, record
from scripts.sim.measure import first_difference, product_records
from scripts.sim.stages import Stages
from scripts.sim.work import DEFAULT_PROMPT, PromptError, Work, prepare
from scripts.simulator import BUILD, SimulatorError, Testbench, build, run
from tb.chip import images, model
from tb.chip.execute import Execution

OUTPUT = BUILD / "sim"


def main(
    config: Path | None = None, prompt: str | None = None, layer: int = 0, seed: int = 1, waves: bool = False
) -> int:
    """Run, compare, report. Returns the exit code: 0, 1 for a difference, 2 for an input that cannot be used."""
    console = Console()
    try:
        return _main(console, config or DEFAULT, prompt or DEFAULT_PROMPT, layer, seed, waves)
    except (ConfigError, PromptError, ModelFileError, SimulatorError) as error:
        console.print(f"[red]error:[/] {error}", highlight=False, soft_wrap=True)
        return 2


def _main(console: Console, path: Path, prompt: str, layer: int, seed: int, waves: bool) -> int:
    stages, chip = Stages(console), load(path)
    with stages.stage("golden") as stage:
        work = prepare(prompt, layer, chip)
        plans: dict[str, Plan | LayerPlan] = {mode: lower_layer(chip, whole) for mode, whole in work.layers.items()}
        plans = plans or {mode: lower(chip, phases) for mode, phases in work.phases.items()}
        stage.detail = f"{work.model_file}, layer {layer}, {len(work.tokens)} tokens"
    with stages.stage("build") as stage:
        stamp = _stamp(chip, waves)
        build(model(chip), waves)
        stage.cached = stamp is not None and stamp == _stamp(chip, waves)
        stage.detail = "nothing to build" if stage.cached else f"Verilator model of chip '{chip.name}'"
    folder = OUTPUT / "work"
    _write_work(folder, plans)
    with stages.stage("simulate", follow=folder / "progress.txt") as stage:
        executions = _simulate(chip, folder, seed, waves)
        cycles = sum(execution.cycles for execution in executions.values())
        stage.detail = f"{cycles} cycles"
    with stages.stage("compare"):
        products, difference = _compare(work, plans, executions)
    command = _command(path, prompt, layer, seed)
    summary = _summary(path, chip, work, seed, stages, executions, products, difference, command)
    return _report(console, stages, summary)


def _stamp(chip: ChipConfig, waves: bool) -> float | None:
    from scripts.simulator import model_directory

    stamp = model_directory(model(chip), waves) / "built.stamp"
    return stamp.stat().st_mtime if stamp.exists() else None


def _write_work(folder: Path, plans: dict[str, Plan | LayerPlan]) -> None:
    """What the simulation reads: a DRAM image for each channel (both modes use the same) and the plans."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "progress.txt").unlink(missing_ok=True)
    (folder / "executions.pickle").unlink(missing_ok=True)
    first, *others = plans.values()
    for other in others:
        assert all((a == b).all() for a, b in zip(first.images, other.images, strict=True)), "images differ by mode"
    for tile, image in enumerate(first.images):
        image.tofile(folder / f"hbm{tile}.bin")
    (folder / "plans.pickle").write_bytes(pickle.dumps(plans))


def _simulate(chip: ChipConfig, folder: Path, seed: int, waves: bool) -> dict[str, Execution]:
    testbench = Testbench(
        name=f"layer_{chip.name}", model=model(chip), module="tb.chip.test_layer", plusargs=images(chip),
        environment={"SERRANO_WORK": str(folder)},
    )  # fmt: skip
    results = run(testbench, seed=seed, waves=waves, work=folder)
    failed = [result.message for result in results if not result.passed]
    if failed:
        raise SimulatorError(f"the simulation failed: {failed[0]}\n  its log is {folder / 'simulation.log'}")
    found: dict[str, Execution] = pickle.loads((folder / "executions.pickle").read_bytes())
    return found


def _compare(
    work: Work, plans: dict[str, Plan | LayerPlan], executions: dict[str, Execution]
) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    products, difference = [], None
    for mode, plan in plans.items():
        memory = executions[mode].memory
        exact, wrong = first_difference(work, mode, plan, memory)
        difference = difference or wrong
        products += product_records(mode, plan, memory, exact)
    return products, difference


def _command(path: Path, prompt: str, layer: int, seed: int) -> str:
    parts = ["make", "sim"]
    if path != DEFAULT:
        parts.append(f"CONFIG={path}")
    if prompt != DEFAULT_PROMPT:
        parts.append(f"PROMPT={prompt}")
    return shlex.join([*parts, f"LAYER={layer}", f"SEED={seed}", *switch_arguments()])


def _summary(
    path: Path, chip: ChipConfig, work: Work, seed: int, stages: Stages, executions: dict[str, Execution],
    products: list[dict[str, Any]], difference: dict[str, Any] | None, command: str,
) -> dict[str, Any]:  # fmt: skip
    cycles = sum(execution.cycles for execution in executions.values())
    seconds = sum(execution.seconds for execution in executions.values())
    if difference:
        difference |= {"seed": seed, "rerun": command}
    exact = sum(product["bit_exact"] for product in products)
    figures = [
        Figure("slice.bit_exact", exact, "products", f"== {len(products)}", how="RTL against golden model, all bits"),
    ]
    summary: dict[str, Any] = {
        "schema": "serrano.summary",
        "version": 1,
        "made_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": command,
        "commit": commit(),
        "passed": difference is None,
        "config": {"name": chip.name, "path": str(path), "values": _values(chip)},
        "model": {"name": "SmolLM2-135M-Instruct", "file": work.model_file, "format": "MXINT8"},
        "prompt": {"text": work.text, "tokens": len(work.tokens)},
        "layer": work.layer,
        "seed": seed,
        "products": products,
        "stages": stages.record(),
        "simulation": {
            "cycles": cycles, "seconds": seconds, "cycles_per_second": cycles / seconds,
            "simulator": "Verilator 5.48.0, cocotb", "clock_hz": chip.clock_hz,
        },
        "outside_rtl": work.outside,
        "extrapolation": [],
        "figures": [asdict(figure) for figure in figures],
    }  # fmt: skip
    if difference:
        summary["difference"] = difference
    summary["extrapolation"] = extrapolate(summary)
    record("sim", figures)
    return summary


def _values(chip: ChipConfig) -> dict[str, Any]:
    """The resolved configuration as plain data."""
    mesh = {name: getattr(chip.mesh, name) for name in ("columns", "rows", "classes", "channels", "depth")}
    top = {"name": chip.name, "clock_hz": chip.clock_hz, "result_granules": chip.result_granules}
    return {**top, "mesh": mesh, "tile": asdict(chip.tile), "hbm": asdict(chip.hbm)}


def _report(console: Console, stages: Stages, summary: dict[str, Any]) -> int:
    from scripts.report import check, show, write_page

    with stages.stage("report") as stage:
        page = write_page(check(json.loads(json.dumps(summary))), OUTPUT / "report.html")
        stage.detail = str(page)
    summary["stages"] = stages.record()
    (OUTPUT / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    show(summary)
    return 0 if summary["passed"] else 1
