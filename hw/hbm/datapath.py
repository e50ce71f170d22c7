"""Data of reads and writes: write buffer, command-to-data delays, ECC."""

from __future__ import annotations

from itertools import pairwise

from amaranth.hdl import Cat, Const, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from .config import HbmConfig
from .ecc import Decoder, encode
from .interface import CHECK_BITS, GRANULE_BITS
from .mask import lowest, select

__all__ = ["ReadPath", "WritePath", "index_of"]


def index_of(mask: Value) -> Value:
    """Index of the only set bit of a mask."""
    bits = (len(mask) - 1).bit_length()
    return Cat(Cat(mask[k] for k in range(len(mask)) if k >> bit & 1).any() for bit in range(bits))


class WritePath(wiring.Component):
    """Holds the data of queued writes and hands it to the device CWL clocks after the command.

    `store` with `data` takes a free `slot` (shown beforehand; none while `full`); `issue` names the slot whose write
    command is picked at this clock. Write data stands on `write_data` while the device samples it.
    """

    def __init__(self, config: HbmConfig):
        self._config = config
        bits = config.write_buffer.bit_length() - 1
        super().__init__({
            "store": In(1), "data": In(GRANULE_BITS), "slot": Out(bits), "full": Out(1),
            "issue": In(1), "issue_slot": In(bits), "write_data": Out(GRANULE_BITS), "write_check": Out(CHECK_BITS),
            "busy": Out(1),
        })  # fmt: skip

    def elaborate(self, platform: object) -> Module:
        m = Module()
        depth, delay = self._config.write_buffer, self._config.cycles.cwl
        m.submodules.memory = memory = Memory(shape=GRANULE_BITS + CHECK_BITS, depth=depth, init=[])
        into, out = memory.write_port(), memory.read_port()
        used, taken, freed = Signal(depth), Signal(depth), Signal(depth)
        # Issued slots wait for their data's turn: stage k is k clocks after the pick.
        slots = [self.issue_slot] + [Signal(len(self.slot), name=f"slot{k}") for k in range(1, delay + 1)]
        valid = [self.issue] + [Signal(name=f"valid{k}") for k in range(1, delay + 1)]
        m.d.sync += [b.eq(a) for a, b in pairwise(slots)]
        m.d.sync += [b.eq(a) for a, b in pairwise(valid)]
        m.d.comb += [
            taken.eq(lowest(~used)),
            self.slot.eq(index_of(taken)),
            self.full.eq(used.all()),
            into.en.eq(self.store),
            into.addr.eq(self.slot),
            into.data.eq(Cat(self.data, encode(self.data) if self._config.ecc else 0)),
            out.addr.eq(slots[-1]),
            out.en.eq(valid[-1]),
            freed.eq(select(valid[-1], (Const(1, 1) << slots[-1])[:depth])),
            Cat(self.write_data, self.write_check).eq(out.data),
            self.busy.eq(used.any()),
        ]
        m.d.sync += used.eq((used | select(self.store, taken)) & ~freed)
        return m


class ReadPath(wiring.Component):
    """Gives each read's data its tag back. Reads return in the order of their commands.

    `issue` with `tag` and `place` (device bits) at the pick of a command; `read_*` from the device; `valid`, `out_*`
    one clock later, corrected.
    """

    def __init__(self, config: HbmConfig):
        self._config = config
        super().__init__({
            "issue": In(1), "tag": In(config.tag_bits), "place": In(config.address_bits),
            "read_valid": In(1), "read_data": In(GRANULE_BITS), "read_check": In(CHECK_BITS),
            "valid": Out(1), "out_tag": Out(config.tag_bits), "out_place": Out(config.address_bits),
            "out_data": Out(GRANULE_BITS), "corrected": Out(1), "failed": Out(1), "busy": Out(1),
        })  # fmt: skip

    def elaborate(self, platform: object) -> Module:
        m = Module()
        c = self._config.cycles
        depth = 1 << (c.cl + c.bl + 4).bit_length()
        m.submodules.tags = tags = Memory(shape=self._config.tag_bits + self._config.address_bits, depth=depth, init=[])
        into, out = tags.write_port(), tags.read_port(domain="comb")
        head, tail = Signal(range(depth)), Signal(range(depth))
        m.d.comb += [
            into.en.eq(self.issue),
            into.addr.eq(tail),
            into.data.eq(Cat(self.tag, self.place)),
            out.addr.eq(head),
            self.busy.eq((head != tail) | self.valid),
        ]
        fixed, corrected, failed = self.read_data, 0, 0
        if self._config.ecc:
            m.submodules.decoder = decoder = Decoder()
            m.d.comb += [decoder.data.eq(self.read_data), decoder.check.eq(self.read_check)]
            fixed, corrected, failed = decoder.fixed, decoder.corrected, decoder.failed
        m.d.sync += [
            tail.eq(tail + self.issue),
            head.eq(head + self.read_valid),
            self.valid.eq(self.read_valid),
        ]
        with m.If(self.read_valid):
            m.d.sync += [
                Cat(self.out_tag, self.out_place).eq(out.data),
                self.out_data.eq(fixed),
                self.corrected.eq(corrected),
                self.failed.eq(failed),
            ]
        return m
