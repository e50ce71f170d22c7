"""Naive flows: what people do with a Verilog file that somebody handed in. Each returns what became observable.

They run inside the sandbox, so that an attack that takes effect here takes it on nobody. The working folder starts
empty; a file called `pwned` in it, a secret in the output, or a verdict that is not true is the effect.
"""

import json
import sys

from scripts.verify import sandbox
from scripts.verify.simulators import VERILATOR_ROOT, runtime

SECRET = "51966"
LIMITS = sandbox.Limits(seconds=300, memory=4 << 30, output=8 << 20)
TESTBENCH = """module reference(input [7:0] a, input [7:0] b, output [15:0] y); assign y = a * b; endmodule
module tb;
  integer errors = 0, i;
  reg tick = 0;
  reg [7:0] a, b;
  wire [15:0] y, r;
  mul_u8 dut(a, b, y);
  reference golden(a, b, r);
  initial begin
    for (i = 0; i < 1000; i = i + 1) begin
      a = i; b = 3 * i + 1; #1;
      if (y != r) errors = errors + 1;
      tick = 1; #1; tick = 0; #1;
    end
    if (errors == 0) $display("PASS"); else $display("FAIL");
    $finish;
  end
endmodule
"""


def _run(script: str, text: str, files: dict[str, str] | None = None, limits: sandbox.Limits = LIMITS) -> str:
    """Output, errors, `pwned` and how it ended, as one text."""
    every = {"candidate.v": text, "secret.txt": SECRET, "secret.hex": f"{int(SECRET):x}", **(files or {})}
    binds = {str(runtime()): "/run"}
    done = sandbox.run(
        ["/bin/sh", "-c", f"export SECRET_TOKEN={SECRET}\n{script}\necho status $?; test -e pwned && echo PWNED"],
        every,
        limits,
        binds,
    )
    return f"{done.stdout.decode(errors='replace')}\n{done.stderr}\n{done.reason}"


def _verilate(top: str, sources: str) -> str:
    include = VERILATOR_ROOT / "include"
    return (
        f"export VERILATOR_ROOT={VERILATOR_ROOT}\n"
        f"$VERILATOR_ROOT/bin/verilator_bin --cc --main --timing -Wno-fatal -Wno-lint -Mdir obj --top-module {top} "
        f'{sources} >/dev/null && for f in obj/*.cpp; do echo "#include \\"$f\\""; done > all.cpp && '
        f"g++ -std=gnu++17 -O0 -w -fcoroutines -include /run/v.h -I. -I{include} -I{include}/vltstd -Iobj all.cpp "
        "/run/libverilated.a -pthread -o sim && timeout 20 ./sim"
    )


def simulate(text: str) -> str:
    """Verilator on the file as it is."""
    return _run(_verilate("mul_u8", "/in/candidate.v"), text)


def bench(text: str) -> str:
    """Verilator with a testbench that prints PASS or FAIL."""
    return _run(_verilate("tb", "/in/candidate.v /in/tb.v"), text, {"tb.v": TESTBENCH})


def _yosys(text: str, commands: list[str], files: dict[str, str] | None = None, seconds: float = 20) -> str:
    driver = (
        "import sys\nfrom pyosys import libyosys\ndesign = libyosys.Design()\n"
        f"for command in {json.dumps(commands)}: libyosys.run_pass(command, design)\n"
    )
    limits = sandbox.Limits(seconds=seconds, memory=2 << 30, output=8 << 20)
    return _run(f"{sys.executable} -I /in/driver.py 2>&1", text, {"driver.py": driver, **(files or {})}, limits)


READ = ["read_verilog -sv /in/candidate.v", "hierarchy -top mul_u8"]


def synthesise(text: str) -> str:
    """Yosys on the file as it is: statistics and the netlist."""
    return _yosys(text, [*READ, "synth -flatten -top mul_u8", "stat", "write_verilog -noattr /dev/stdout"], seconds=12)


def prove(text: str) -> str:
    """Yosys's SAT proof of equivalence with the reference, assumptions taken along."""
    reference = "module gold(input [7:0] a, input [7:0] b, output [15:0] y); assign y = a * b; endmodule\n"
    return _yosys(
        text,
        [
            "read_verilog /in/gold.v",
            "read_verilog -formal -sv /in/candidate.v",
            "proc",
            "async2sync",
            "miter -equiv -flatten -make_outputs -ignore_gold_x mul_u8 gold miter",
            "hierarchy -top miter",
            "flatten",
            "chformal -lower",
            "opt",
            "sat -verify -set-assumes -prove trigger 0 miter",
        ],
        {"gold.v": reference},
    )


def shell(text: str) -> str:
    """A script that takes the module's name from the text."""
    name = text.split("module", 1)[1].split("(", 1)[0].strip().lstrip("\\").strip()
    return _run(f"echo 'hierarchy -top {name}' > script.ys", text)


FLOWS = {"simulate": simulate, "bench": bench, "synthesise": synthesise, "prove": prove, "shell": shell}
