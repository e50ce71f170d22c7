"""Proofs about the fused accumulate: it is the correctly rounded sum, by a specification that does not compute it.

The specification (`Harness`) takes the result as given and checks it by the definition of round to nearest even: the
exact sum is a fixed-point integer, and must lie between the midpoints to the two neighbours of the result (on a
midpoint only if the result is even). It shares nothing with the circuit: no alignment by difference, no sticky bit, no
normalisation.

The pipeline's registers are turned into wires, which leaves a combinational property for abc. `python -m
scripts.formal.numerics` prints what is proven.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import pyosys
from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw.emit import emit
from hw.numerics.accumulate import FusedAccumulate

ABC = Path(pyosys.__file__).with_name("yosys-abc")
_WIRES = """
(* techmap_celltype = "$dff" *)
module wire_dff (CLK, D, Q);
parameter WIDTH = 1; parameter CLK_POLARITY = 1;
input CLK; input [WIDTH-1:0] D; output [WIDTH-1:0] Q; assign Q = D;
endmodule
"""


@dataclass(frozen=True)
class Sizes:
    """Widths of a proof. Stands for a `FormatSet`: all that the accumulate needs of one is its block sum."""

    fraction_bits: int
    exponent_bits: int
    sum_bits: int
    least: int
    """Least and greatest exponent of the sum's leading bit, biased as the accumulator's."""
    greatest: int

    @property
    def block_sum(self) -> data.StructLayout:
        return data.StructLayout(
            {
                "magnitude": unsigned(self.sum_bits),
                "exponent": signed(11),
                "sign": unsigned(1),
                "infinite": unsigned(1),
                "nan": unsigned(1),
            }
        )


class Harness(wiring.Component):
    """The accumulate and its specification; `bad` is high where the result is wrong.

    `fault`: turn the result's last bit where the sum's magnitude is odd, to see the proof fail.
    """

    def __init__(self, sizes: Sizes, fault: bool = False):
        self.sizes = sizes
        self.fault = fault
        width = 1 + sizes.fraction_bits + sizes.exponent_bits
        super().__init__({"accumulator": In(width), "sum": In(sizes.block_sum), "bad": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        sizes = self.sizes
        m.submodules.dut = dut = FusedAccumulate(sizes, sizes.fraction_bits, sizes.exponent_bits)
        m.d.comb += [dut.accumulator.eq(self.accumulator), dut.sum.eq(self.sum), dut.enable.eq(1)]
        zero = self.sum.magnitude == 0
        in_range = (self.sum.exponent >= sizes.least) & (self.sum.exponent <= sizes.greatest)
        normal = self.sum.magnitude[-1] & in_range
        assumed = Mux(zero, (self.sum.exponent == -1024) & ~self.sum.sign, normal)
        result = dut.result ^ (self.sum.magnitude[0] if self.fault else 0)
        m.d.comb += self.bad.eq(assumed & ~self._right(m, result, zero))
        return m

    def _right(self, m: Module, result: Value, zero: Value) -> Value:
        sizes = self.sizes
        infinity = ((1 << sizes.exponent_bits) - 1) << sizes.fraction_bits
        held, found = self.accumulator[:-1], result[:-1]
        special = held >= infinity
        nan = (
            (held > infinity)
            | self.sum.nan
            | ((held == infinity) & self.sum.infinite & (self.accumulator[-1] ^ self.sum.sign))
        )
        infinite_sign = Mux(special, self.accumulator[-1], self.sum.sign)
        canonical = infinity | 1 << (sizes.fraction_bits - 1)
        finite = self._nearest(m, result, zero)
        return Mux(
            nan,
            result == canonical,
            Mux(special | self.sum.infinite, (found == infinity) & (result[-1] == infinite_sign), finite),
        )

    def _nearest(self, m: Module, result: Value, zero: Value) -> Value:
        """The definition: |exact| within the midpoints around |result|, in units of half the least bit."""
        sizes = self.sizes
        top = 1 << sizes.exponent_bits
        lowest = min(sizes.least - sizes.sum_bits + 1, 1 - sizes.fraction_bits) - 1
        width = max(top, sizes.greatest) - lowest + 4
        exact, magnitude = Signal(signed(width)), Signal(width)

        def code(bits: Value) -> Value:
            """Value of a magnitude code, the one after the largest finite included."""
            field, fraction = bits[sizes.fraction_bits :], bits[: sizes.fraction_bits]
            exponent = Mux(field == 0, 1, field)
            return (Cat(fraction, field != 0) << exponent) << (-lowest - sizes.fraction_bits)

        place = Signal(range(sizes.greatest - sizes.least + 1))
        m.d.comb += place.eq(self.sum.exponent - sizes.least)
        added = Mux(zero, 0, self.sum.magnitude << place) << (sizes.least - sizes.sum_bits + 1 - lowest)
        held = code(self.accumulator[:-1])
        m.d.comb += exact.eq(Mux(self.accumulator[-1], -held, held) + Mux(self.sum.sign, -added, added))
        m.d.comb += magnitude.eq(Mux(exact < 0, -exact, exact))

        found = result[:-1]
        bits = sizes.fraction_bits + sizes.exponent_bits
        above, below = Signal(bits + 1), Signal(bits)
        m.d.comb += [above.eq(found + 1), below.eq(found - 1)]
        infinity = ((1 << sizes.exponent_bits) - 1) << sizes.fraction_bits
        is_infinity = found == infinity
        even = ~found[0]
        upper, lower = code(Cat(found, Const(0, 1))) + code(above), code(Cat(found, Const(0, 1))) + code(below)
        twice = magnitude << 1
        under = is_infinity | (twice < upper) | ((twice == upper) & even)
        over = (found == 0) | (twice > lower) | ((twice == lower) & even)
        sign = result[-1] == (exact < 0)
        return (found <= infinity) & under & over & sign


@dataclass(frozen=True)
class Proof:
    """Outcome: `proven` is None where the engine gave up in its time."""

    proven: bool | None
    seconds: float
    log: str


def prove(sizes: Sizes, seconds: int = 100, fault: bool = False) -> Proof:
    """Prove `Harness(sizes)`. RuntimeError where a tool did not do its part."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        emit(Harness(sizes, fault), "harness", directory)
        (directory / "wires.tech").write_text(_WIRES)
        script = [
            "read_verilog -sv *.v",
            "hierarchy -top harness",
            "proc",
            "flatten",
            "opt_expr",
            "opt_clean",
            "techmap -map wires.tech",
            "opt -full",
            "techmap",
            "opt -full",
            "aigmap",
            "write_aiger harness.aig",
        ]
        program = "from pyosys import libyosys as ys\nd = ys.Design()\n" + "".join(
            f"ys.run_pass({command!r}, d)\n" for command in script
        )
        done = subprocess.run([sys.executable, "-c", program], cwd=directory, text=True, capture_output=True)
        if done.returncode or not (directory / "harness.aig").exists():
            raise RuntimeError(f"no AIGER came out of Yosys:\n{(done.stdout + done.stderr)[-2000:]}")
        header = (directory / "harness.aig").read_bytes().split(b"\n", 1)[0].decode().split()
        if int(header[3]) != 0:
            raise RuntimeError(f"{header[3]} registers are left, the property is not combinational")
        try:
            found = subprocess.run(
                [str(ABC), "-c", "read_aiger harness.aig; strash; dc2; fraig; iprove; print_stats"],
                cwd=directory,
                text=True,
                capture_output=True,
                timeout=seconds,
            )
        except subprocess.TimeoutExpired:
            return Proof(None, time.monotonic() - start, "out of time")
    log, spent = found.stdout + found.stderr, time.monotonic() - start
    if re.search(r"UNSATISFIABLE|Networks are equivalent|constant 0", log):
        return Proof(True, spent, log)
    if re.search(r"SATISFIABLE", log):
        return Proof(False, spent, log)
    return Proof(None, spent, log)


SMALL = Sizes(fraction_bits=2, exponent_bits=3, sum_bits=3, least=-4, greatest=9)
"""Every case is in it: sums far below, around and above the accumulator, subnormal and overflowing results."""
MEDIUM = Sizes(fraction_bits=3, exponent_bits=4, sum_bits=5, least=-8, greatest=18)
WIDER_SUM = Sizes(fraction_bits=3, exponent_bits=3, sum_bits=9, least=-10, greatest=12)


def main() -> int:
    """Print the proofs; the exit code is 1 where one does not hold."""
    worst = 0
    for name, sizes in (("small", SMALL), ("medium", MEDIUM), ("wider sum", WIDER_SUM)):
        proof = prove(sizes, 600)
        word = {True: "proven", False: "REFUTED", None: "not closed"}[proof.proven]
        print(f"accumulate, {name} ({sizes}): {word}, {proof.seconds:.1f} s", flush=True)
        worst = max(worst, 0 if proof.proven else 1)
    return worst


if __name__ == "__main__":
    sys.exit(main())
