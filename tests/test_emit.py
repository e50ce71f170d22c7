"""Verilog emission: what the memories of a design start with."""

import re

import pytest
from amaranth.hdl import Module
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from hw.emit import emit

CONTENTS = {
    "zero": ([], 64),
    "ones": ([1] * 64, 64),
    "last": ([0] * 63 + [5], 64),
    "wide": ([0xABCD] * 8, 8),
    "single": ([3], 1),
}


class _Memories(wiring.Component):
    def __init__(self) -> None:
        super().__init__({name: Out(16) for name in CONTENTS} | {"address": In(6), "write": In(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for name, (init, depth) in CONTENTS.items():
            m.submodules[f"memory_{name}"] = words = memory.Memory(shape=16, depth=depth, init=init)
            write, read = words.write_port(), words.read_port(domain="comb")
            m.d.comb += [write.addr.eq(self.address), write.en.eq(self.write), read.addr.eq(self.address)]
            m.d.comb += getattr(self, name).eq(read.data)
        return m


def _initial_words(verilog: str) -> dict[int, list[int]]:
    """Memories by their depth: what each word starts with, loops unrolled."""
    found = {}
    for name, last in re.findall(r"^  reg \[15:0\] (\S+) +\[(\d+):0\];", verilog, re.M):
        words = dict.fromkeys(range(int(last) + 1))
        target = re.escape(name) + r" ?"
        loop = r"for \(int _word_ = (\d+); _word_ <= (\d+); _word_ = _word_ \+ 1\) "
        for first, end, value in re.findall(rf"{loop}{target}\[_word_\] = 16'h(\w+);", verilog):
            words.update(dict.fromkeys(range(int(first), int(end) + 1), int(value, 16)))
        for index, value in re.findall(rf"{target}\[(\d+)\] = 16'h(\w+);", verilog):
            words[int(index)] = int(value, 16)
        found.setdefault(int(last) + 1, []).append(list(words.values()))
    return found


def test_every_word_of_a_memory_has_its_initial_value(tmp_path):
    [path] = emit(_Memories(), "memories", tmp_path)
    found = _initial_words(path.read_text())
    assert found[8] == [[0xABCD] * 8] and found[1] == [[3]]
    assert sorted(found[64]) == sorted([[0] * 64, [1] * 64, [0] * 63 + [5]])
    assert path.read_text().count("for (int _word_") == len(CONTENTS) - 1, "alike words are a loop"


def test_a_memory_that_the_text_does_not_show_is_refused(tmp_path, monkeypatch):
    """One word alone would leave the others undefined."""
    monkeypatch.setattr("hw.emit._ALIKE", re.compile("never"))
    with pytest.raises(ValueError, match="memories"):
        emit(_Memories(), "memories", tmp_path)
