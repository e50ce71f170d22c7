"""Verilog from Amaranth components, with each repeated block emitted once.

Amaranth makes a module of its own for every instance of a component. For a block that stands many times in a design
that means slow conversion, long Verilog and a slow simulation. `once` wraps such a block: the parent gets an instance
of a named module, and the module itself is emitted a single time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from amaranth.back import rtlil, verilog
from amaranth.hdl import ClockDomain, ClockSignal, Elaboratable, Fragment, Instance, ResetSignal, Value
from amaranth.hdl._ast import SignalDict
from amaranth.hdl._ir import PortDirection, build_netlist
from amaranth.hdl._nir import Memory
from amaranth.hdl._nir import Value as NetValue
from amaranth.lib import wiring

__all__ = ["emit", "once"]

_CONSTANT_PROCESS = re.compile(r"always @\*(\n *[^=;\n]+ = \d+'[bdh][0-9a-f]+;\n)")
_ALIKE = re.compile(
    r"^(  reg (?:\[\d+:0\] )?(\\\S+ |\w+) ?\[(\d+):0\];)\n  initial begin\n    \2\[0\] = (\d+'[bdh][0-9a-f]+);\n  end$",
    re.M,
)
_pending: dict[str, wiring.Component] = {}


def _ports(component: wiring.Component, interface: object) -> Iterator[tuple[wiring.Flow, str, Value]]:
    """Leaf ports of `component`: flow, Verilog name, value on `interface` (the component or a stand-in)."""
    for path, member, value in component.signature.flatten(interface):
        yield member.flow, "__".join(map(str, path)), Value.cast(value)


def _expect_unused(component: Elaboratable) -> None:
    """No warning for a component, and the parts that it holds, when it is never elaborated."""
    component._MustUse__silence = True  # type: ignore[attr-defined]
    for part in vars(component).values():
        for item in part if isinstance(part, list | tuple) else [part]:
            if isinstance(item, Elaboratable):
                _expect_unused(item)


def _interface(component: wiring.Component) -> list[tuple[wiring.Flow, str, int]]:
    return [(flow, name, len(value)) for flow, name, value in _ports(component, component)]


class _Once(wiring.Component):
    """Stands for `component` in a parent; elaborates to an instance of module `name`."""

    def __init__(self, component: wiring.Component, name: str):
        _expect_unused(component)  # of many equal ones only the first is elaborated
        self._component = component
        self._name = name
        component._MustUse__used = True  # of equal components only one is elaborated
        super().__init__(component.signature)

    def elaborate(self, platform: object) -> Instance:
        known = _pending.setdefault(self._name, self._component)
        if type(known) is not type(self._component) or _interface(known) != _interface(self._component):
            raise ValueError(f"Module name '{self._name}' stands for two different components; give each its own name")
        ports = {
            f"{'i' if flow == wiring.In else 'o'}_{name}": value for flow, name, value in _ports(self._component, self)
        }
        return Instance(self._name, i_clk=ClockSignal("sync"), i_rst=ResetSignal("sync"), **ports)


def once(component: wiring.Component, name: str) -> wiring.Component:
    """A stand-in for `component` whose Verilog is emitted a single time, as module `name`.

    `name` must tell apart components of different parameters. The component uses the `sync` domain and no other.
    Attributes other than ports (such as a latency) are read from the component itself. The stand-in has the
    component's signature; like any component it is connected, then added to `m.submodules`.
    """
    return _Once(component, name)


def _convert(component: wiring.Component, name: str) -> str:
    # Sequential or not, every module has a clock and a reset, so that instances can always connect them.
    fragment = Fragment.get(component, None)
    domain = ClockDomain("sync")
    fragment.add_domains(domain)
    ports: dict[str, tuple[Value, PortDirection]] = {
        "clk": (domain.clk, PortDirection.Input),
        "rst": (domain.rst, PortDirection.Input),
    }
    for flow, port, value in _ports(component, component):
        ports[port] = (value, PortDirection.Input if flow == wiring.In else PortDirection.Output)
    rtlil_text = _rtlil(fragment, ports, name)
    text = verilog._convert_rtlil_text(rtlil_text, strip_internal_attrs=True)
    # `always @*` over a constant waits for a change that never comes; `always_comb` also runs at time zero.
    text = _CONSTANT_PROCESS.sub(r"always_comb\1", text)
    text, loops = _ALIKE.subn(_for_all_words, text)
    if loops != rtlil_text.count("parameter \\WORDS 1\n"):
        raise ValueError(f"Module '{name}': not every memory's initial word was found in the Verilog")
    return text


class _ModuleEmitter(rtlil.ModuleEmitter):
    """Amaranth's, except that a memory whose initial words are all alike is given the first alone.

    Amaranth writes every bit of every word, which for a large memory takes longer than the whole design.
    `_for_all_words` gives the word to all.
    """

    def emit_memory(self, cell_idx: int, cell: Memory) -> None:
        if len(set(cell.init)) > 1:
            super().emit_memory(cell_idx, cell)
            return
        word = NetValue.from_const(cell.init[0], cell.width)
        ports = {"ADDR": self.sigspec(), "DATA": self.sigspec(word), "EN": self.sigspec(NetValue.ones(cell.width))}
        memory = self.memories[cell_idx].memid
        parameters = {"MEMID": memory, "ABITS": 0, "WIDTH": cell.width, "WORDS": 1, "PRIORITY": 0}
        self.builder.cell("$meminit_v2", ports=ports, parameters=parameters)


def _rtlil(fragment: Fragment, ports: dict[str, tuple[Value, PortDirection]], name: str) -> str:
    """`amaranth.back.rtlil.convert_fragment` with our emitter."""
    netlist, names = build_netlist(fragment, ports=ports, name=name), SignalDict()
    empty, design = rtlil.EmptyModuleChecker(netlist), rtlil.Design(emit_src=False)
    for index, module in enumerate(netlist.modules):
        if empty.is_empty(index):
            continue
        builder = design.module(".".join(module.name), src_loc=module.src_loc)
        if index == 0:
            builder.attribute("top", 1)
        _ModuleEmitter(builder, netlist, module, names, empty_checker=empty).emit()
    return str(design)


def _for_all_words(memory: re.Match[str]) -> str:
    declaration, name, last, value = memory.groups()
    loop = f"for (int _word_ = 0; _word_ <= {last}; _word_ = _word_ + 1) {name}[_word_] = {value};"
    return f"{declaration}\n  initial begin\n    {loop}\n  end"


def emit(component: wiring.Component, name: str, directory: Path) -> list[Path]:
    """Write `component` as module `name`, and every block that it uses through `once`, one file a module.

    Files whose text did not change keep their time stamps; files of an earlier emission that are no longer part of
    the design are removed. Every module has ports `clk` and `rst` (synchronous, active high) and its signature's
    leaves, nested names joined with `__`. Returns the paths, the top last.
    """
    directory.mkdir(parents=True, exist_ok=True)
    _pending.clear()
    done: dict[str, Path] = {}
    todo = {name: component}
    while todo:
        module, block = todo.popitem()
        path = directory / f"{module}.v"
        text = _convert(block, module)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
        done[module] = path
        todo.update({key: value for key, value in _pending.items() if key not in done})
    for stale in directory.glob("*.v"):
        if stale.stem not in done:
            stale.unlink()
    top = done.pop(name)
    return [*done.values(), top]
