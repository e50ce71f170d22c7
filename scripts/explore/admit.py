"""Let a Verilog candidate in, or refuse it. The candidate is hostile until shown otherwise.

Four walls, each enough for most attacks: the text is filtered after comments are cut out; Yosys elaborates what is left
in the sandbox; the result must be one flat module of plain gates with exactly the wanted ports; and only the netlist,
printed anew with our own names, goes any further. No simulator and no synthesis ever sees the candidate's text.
"""

import re

from golden.specifications import Specification
from scripts.verify import elaborate, sandbox
from scripts.verify.netlist import Netlist, NetlistError

MAX_TEXT = 256 << 10
MAX_GATES = 200_000
LIMITS = sandbox.Limits(seconds=120, cpu=15, memory=1 << 30, disk=64 << 20, output=32 << 20, processes=16)

ALLOWED_FUNCTIONS = {"$signed", "$unsigned", "$clog2"}
REFUSED_WORDS = frozenset(
    """
    accept_on alias assert assume before bind bins binsof casex casez chandle checker class clocking config
    constraint context cover covergroup coverpoint cross deassign defparam design disable dist edge endclass event
    expect export extends extern final first_match force foreach forever fork highz0 highz1 iff ifnone implements
    import incdir include initial inout instance interconnect interface join join_any join_none large library
    liblist local macromodule matches medium modport nettype new nexttime null package primitive program property
    protected pull0 pull1 pulldown pullup pulsestyle_ondetect pulsestyle_onevent pure rand randc randcase
    randsequence real realtime ref reject_on release repeat restrict rtran s_always sequence shortreal showcancelled
    small soft solve specify specparam static string strong strong0 strong1 super supply0 supply1 sync_accept_on
    table tagged this throughout time timeprecision timeunit tran tri tri0 tri1 triand trior trireg unique unique0
    untyped use uwire virtual wait wait_order wand weak weak0 weak1 while with within wor priority do return break
    continue tranif0 tranif1 rtranif0 rtranif1 nmos pmos cmos rnmos rpmos rcmos posedge negedge always_ff
    always_latch
    """.split()
)


class Refused(ValueError):
    """The candidate is not let in; the message says why, for its author."""


def strip_comments(text: str) -> str:
    """The text without comments. Strings are not known here: a quote outside a comment is refused later."""
    result: list[str] = []
    at = 0
    while True:
        line, block = text.find("//", at), text.find("/*", at)
        starts = [start for start in (line, block) if start >= 0]
        if not starts:
            return "".join([*result, text[at:]])
        start = min(starts)
        quoted = text.find('"', at)
        if 0 <= quoted < start:
            raise Refused("strings are not allowed")
        result += [text[at:start], " "]
        end = text.find("\n", start) if start == line else text.find("*/", start + 2)
        if end < 0:
            if start == block:
                raise Refused("a comment is not closed")
            return "".join(result)
        at = end if start == line else end + 2


def filter_text(text: str, module: str) -> str:
    """The text without comments if nothing in it is refused; raises `Refused`."""
    if len(text) > MAX_TEXT:
        raise Refused(f"text longer than {MAX_TEXT} bytes")
    if not text.isascii() or any(ord(c) < 32 and c not in "\t\n\r" for c in text):
        raise Refused("only printable ASCII text is allowed")
    bare = strip_comments(text)
    for mark, name in (("`", "backtick (compiler directive)"), ('"', "string"), ("\\", "escaped identifier")):
        if mark in bare:
            raise Refused(f"{name} is not allowed")
    if re.search(r"\(\s*\*(?!\s*\))", bare) or re.search(r"(?<!\()\*\s*\)", bare):
        raise Refused("attributes (* ... *) are not allowed")
    for name in re.findall(r"\$\w*", bare):
        if name not in ALLOWED_FUNCTIONS:
            raise Refused(f"{name} is not allowed; allowed: {', '.join(sorted(ALLOWED_FUNCTIONS))}")
    words = re.findall(r"[A-Za-z_]\w*", re.sub(r"\d*\s*'\s*[sS]?[bBoOdDhH]\s*[0-9a-fA-F_xXzZ?]+", " ", bare))
    for word in words:
        if word in REFUSED_WORDS:
            raise Refused(f"keyword {word!r} is not allowed")
    if re.search(r"'\s*[sS]?[bBoOdDhH]\s*[0-9a-fA-F_]*[xXzZ?]", bare) or re.search(r"'\s*[xXzZ]", bare):
        raise Refused("x, z and ? in literals are not allowed")
    if re.search(r"[=!]==", bare) or re.search(r"[=!]=\?", bare):
        raise Refused("===, !==, ==? and !=? are not allowed")
    if re.search(r"#(?!\s*\(\s*parameter\b)", bare):
        raise Refused("delays and parameter overrides (#) are not allowed")
    if re.search(r"[A-Za-z_]\w*\s*\.\s*[A-Za-z_]", bare):
        raise Refused("hierarchical names are not allowed")
    if words.count("module") != 1 or words.count("endmodule") != 1:
        raise Refused("exactly one module is allowed")
    if not re.search(rf"\bmodule\s+{re.escape(module)}\b", bare):
        raise Refused(f"the module must be called {module}")
    return bare


def admit(text: str, specification: Specification) -> Netlist:
    """The candidate's netlist, with the specification's ports, combinational, nothing undefined.

    Raises `Refused`, and `sandbox.SandboxUnavailable` where no sandbox can be had (nothing has been read then).
    """
    sandbox.available()
    bare = filter_text(text, specification.name)
    try:
        netlist, why, _ = elaborate.lower({"candidate.sv": bare}, specification.name, LIMITS, cxxrtl=False)
    except elaborate.ElaborationError as error:
        raise Refused(f"Yosys: {error}") from error
    except NetlistError as error:
        raise Refused(str(error)) from error
    if netlist is None:
        raise Refused(why)
    return accept(netlist, specification)


def accept(netlist: Netlist, specification: Specification) -> Netlist:
    """The netlist if it is combinational and has exactly the specification's ports; raises `Refused`."""
    want_in = {port.name: port.bits for port in specification.inputs}
    want_out = {port.name: port.bits for port in specification.outputs}
    if {name: len(bits) for name, bits in netlist.inputs.items()} != want_in:
        raise Refused(f"inputs must be exactly {want_in}")
    if {name: len(bits) for name, bits in netlist.outputs.items()} != want_out:
        raise Refused(f"outputs must be exactly {want_out}")
    if netlist.registers:
        raise Refused("the circuit must be combinational, but it has registers")
    if netlist.undefined:
        raise Refused(f"{netlist.undefined} bits are undefined (x, z or undriven)")
    if len(netlist.cells) > MAX_GATES:
        raise Refused(f"more than {MAX_GATES} gates")
    netlist.names = {}
    return netlist
