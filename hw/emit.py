"""Verilog from Amaranth components, with each repeated block emitted once.

Amaranth makes a module of its own for every instance of a component. For a block that stands many times in a design
that means slow conversion, long Verilog and a slow simulation. `once` wraps such a block: the parent gets an instance
of a named module, and the module itself is emitted a single time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from amaranth.back import verilog
from amaranth.hdl import ClockDomain, ClockSignal, Elaboratable, Fragment, Instance, ResetSignal, Value
from amaranth.hdl._ir import PortDirection
from amaranth.lib import wiring

__all__ = ["emit", "once"]

_CONSTANT_PROCESS = re.compile(r"always @\*(\n *[^=;\n]+ = \d+'[bdh][0-9a-f]+;\n)")
_EQUAL_WORDS = re.compile(r"^ +(\\\S+ |\w+)\[\d+\] = (\d+'h[0-9a-f]+);\n(?: +\1\[\d+\] = \2;\n){63,}", re.M)
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
    text, _ = verilog.convert_fragment(fragment, ports, name, emit_src=False, strip_internal_attrs=True)
    # `always @*` over a constant waits for a change that never comes; `always_comb` also runs at time zero.
    text = _CONSTANT_PROCESS.sub(r"always_comb\1", text)
    return _EQUAL_WORDS.sub(_as_loop, text)


def _as_loop(words: re.Match[str]) -> str:
    """A memory's initial words, all equal, as a loop: thousands of statements would be thousands of lines of C++."""
    indices = [int(index) for index in re.findall(r"\[(\d+)\] =", words[0])]
    if indices != list(range(indices[0], indices[0] + len(indices))):
        return words[0]
    first, last, name, value = indices[0], indices[-1], words[1], words[2]
    return f"    for (int word = {first}; word <= {last}; word = word + 1) {name}[word] = {value};\n"


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
