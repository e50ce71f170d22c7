"""Areas of the block-dot units by synthesis, and the figure `tile.dot_area_ratio`.

Synthesis is pyosys: synth without abc, then abc once, to simple gates. An area is in NAND2 equivalents (transistors /
4, the table below), flip-flops included; with SERRANO_LIBERTY set to a Liberty file, in that file's unit instead.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from amaranth.lib import wiring

from hw.emit import emit
from hw.numerics.accumulate import FusedAccumulate
from hw.numerics.decode import Decode
from hw.numerics.dot import BlockDot, DotUnit
from hw.numerics.formats import ElementFormat, FormatSet
from hw.numerics.quantise import Quantise
from hw.numerics.separate import SeparateDot
from scripts.figures import Figure

MX = ["MXINT8", "E4M3", "E5M2", "E2M3", "E3M2", "E2M1", "INT4"]
SETS = {
    "MXINT8": ["MXINT8"],
    "four": ["MXINT8", "E4M3", "E2M1", "INT4"],
    "mx": MX,
    "all": list(ElementFormat.__members__),
}
TRANSISTORS = {
    "$_NOT_": 2,
    "$_BUF_": 4,
    "$_NAND_": 4,
    "$_NOR_": 4,
    "$_AND_": 6,
    "$_OR_": 6,
    "$_ANDNOT_": 6,
    "$_ORNOT_": 6,
    "$_XOR_": 12,
    "$_XNOR_": 12,
    "$_MUX_": 12,
    "$_AOI3_": 6,
    "$_OAI3_": 6,
    "$_DFF_P_": 24,
}
"""Static CMOS, as Yosys' `stat -tech cmos` counts gates; 24 for a flip-flop. Kept enables are multiplexers."""
_GATES = "NAND,NOR,XOR,XNOR,AOI3,OAI3,MUX"
_MAP = "-script +strash;dc2;strash;&get,-n;&nf;&put"
"""Rewriting and mapping. The default script also looks for equal nets by SAT, which does not end on the multipliers of
the scale factors and gains 2.5 % where it ends ({MXINT8}: 34,225 for 35,106)."""


@dataclass(frozen=True)
class Area:
    """What synthesis says of one component."""

    area: float
    flops: int
    levels: int


def _script(top: str, liberty: str | None) -> list[str]:
    mapping = [f"dfflibmap -liberty {liberty}"] if liberty else []
    target = f"-liberty {liberty}" if liberty else f"-g {_GATES}"
    stat = f"stat -json -liberty {liberty}" if liberty else "stat -json"
    return [
        "read_verilog -sv *.v",
        f"synth -noabc -flatten -top {top}",
        "dfflegalize -cell $_DFF_P_ 0",
        *mapping,
        f"abc {target} {_MAP}",
        "opt_clean",
        "delete t:$scopeinfo",
        "tee -q -o levels.txt ltp -noff",
        f"tee -q -o stat.json {stat}",
    ]


def synthesise(component: wiring.Component) -> Area:
    """Area, flip-flops and longest path in gates. RuntimeError when Yosys fails or gives no statistics."""
    liberty = os.environ.get("SERRANO_LIBERTY")
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        emit(component, "unit", directory)
        program = "from pyosys import libyosys as ys\nd = ys.Design()\n" + "".join(
            f"ys.run_pass({command!r}, d)\n" for command in _script("unit", liberty)
        )
        done = subprocess.run([sys.executable, "-c", program], cwd=directory, text=True, capture_output=True)
        if done.returncode or not (directory / "stat.json").exists():
            log = (done.stdout + done.stderr)[-2000:]
            raise RuntimeError(f"Synthesis of {type(component).__name__} failed:\n{log}")
        text = (directory / "stat.json").read_text()
        design = json.loads(text[text.index("{") :])["design"]
        levels = int((directory / "levels.txt").read_text().split("length=")[1].split(")")[0])
    cells = design["num_cells_by_type"]
    if liberty:
        return Area(float(design["area"]), sum(count for cell, count in cells.items() if "DFF" in cell.upper()), levels)
    return Area(sum(TRANSISTORS[cell] * count for cell, count in cells.items()) / 4, cells.get("$_DFF_P_", 0), levels)


def _units(formats: FormatSet, long: bool) -> dict[str, wiring.Component]:
    units = {"decode_a": Decode(formats, "a"), "dot_unit": DotUnit(formats), "accumulate": FusedAccumulate(formats)}
    if formats.offsets:
        units["decode_b"] = Decode(formats, "b")
    if not formats.scaled and len(formats.names) > 1:
        units |= {"block_dot": BlockDot(formats), "separate": SeparateDot(formats)}
        if long:
            units["quantise"] = Quantise(formats)
    return units


def figures(long: bool = False) -> list[Figure]:
    """Areas for {MXINT8}, {MXINT8, E4M3, E2M1, INT4}, and (`long`) all MX formats and all formats."""
    unit = "Liberty area" if os.environ.get("SERRANO_LIBERTY") else "NAND2"
    how = "pyosys synth, abc (dc2) to simple gates, flip-flops included"
    result = []
    for name in SETS if long else ("MXINT8", "four"):
        units = _units(FormatSet(SETS[name]), long)
        areas = {}
        for key, component in units.items():
            areas[key] = area = synthesise(component)
            print(f"{name} {key}: {area.area:,.0f} {unit}, {area.flops} flip-flops, {area.levels} levels", flush=True)
        formats = ", ".join(SETS[name])
        both = areas["decode_a"].area + areas.get("decode_b", areas["decode_a"]).area
        whole = areas["dot_unit"].area + areas["accumulate"].area
        result.append(
            Figure(
                f"tile.dot_area_{name}",
                round(whole),
                unit,
                "report",
                how=f"one DotUnit and one FusedAccumulate, formats {formats}; {how}",
            )
        )
        result.append(
            Figure(
                f"tile.decode_area_{name}",
                round(both),
                unit,
                "report",
                how=f"two decoders, which the units of a row and of a column share; {how}",
            )
        )
        if "separate" not in areas:
            continue
        ratio = (both + areas["block_dot"].area) / areas["separate"].area
        result.append(
            Figure(
                "tile.dot_area_ratio" if name == "four" else f"tile.dot_area_ratio_{name}",
                round(ratio, 3),
                "",
                "report",
                reference="SeparateDot: a multiplier for each element format in each lane, a shared adder tree, "
                "both operands of one format",
                how=f"(2 Decode + BlockDot) / SeparateDot, formats {formats}; {how}",
            )
        )
    return result
