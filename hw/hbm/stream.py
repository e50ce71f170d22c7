"""The streaming port: descriptors in, the granules of their ranges out, in order.

Reads are issued ahead into a reorder buffer as long as it has room, over the ends of descriptors, so that the DRAM may
answer in its own order and the tile sees none of it.
"""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.fifo import StreamFifo

from .config import HbmConfig
from .interface import GRANULE_BITS, Hint, StreamDescriptor

__all__ = ["StreamReader"]


class StreamReader(wiring.Component):
    """Parameters
    ----------
    config : HbmConfig
        The pseudo-channel.
    depth : int
        Granules in flight or waiting, a power of two.
    waiting : int
        Descriptors that wait.

    Interface attributes
    --------------------
    descriptor : In
        Stream of `StreamDescriptor`; `length` 0 reads nothing.
    data : Out
        Stream of 256-bit granules; `error` belongs to the one offered (its data could not be corrected).
    read : Out
        Stream of granule addresses to be read; `slot`, `hint` and `last` (of its range) belong to the one offered.
    fill, fill_slot, fill_data, fill_error : In
        Data of the read that had this slot; any order, always accepted.
    """

    def __init__(self, config: HbmConfig, depth: int, waiting: int):
        self._config = config
        self._depth = depth
        self._waiting = waiting
        bits = depth.bit_length() - 1
        super().__init__({
            "descriptor": In(stream.Signature(StreamDescriptor(config))),
            "data": Out(stream.Signature(GRANULE_BITS)),
            "read": Out(stream.Signature(config.address_bits)), "slot": Out(bits),
            "hint": Out(Hint), "last": Out(1),
            "fill": In(1), "fill_slot": In(bits), "fill_data": In(GRANULE_BITS), "fill_error": In(1),
            "error": Out(1), "idle": Out(1),
        })  # fmt: skip

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        depth = self._depth
        m.submodules.queue = queue = StreamFifo(StreamDescriptor(config), max(2, self._waiting))
        m.submodules.buffer = buffer = Memory(shape=GRANULE_BITS + 1, depth=depth, init=[])
        into, out = buffer.write_port(), buffer.read_port()
        connect(m, flipped(self.descriptor), queue.i)

        # Addresses: `left` granules of the current descriptor from `address` on.
        address, left = Signal(config.address_bits), Signal(config.address_bits)
        used, arrived = Signal(range(depth + 1)), Signal(depth)
        issue, leave = Signal(), Signal()
        m.d.comb += [
            self.read.valid.eq((left != 0) & (used != depth)),
            self.read.payload.eq(address),
            issue.eq(self.read.valid & self.read.ready),
            self.last.eq(left == 1),
            queue.o.ready.eq((left == 0) | ((left == 1) & issue)),
        ]
        with m.If(issue):
            m.d.sync += [address.eq(address + 1), left.eq(left - 1), self.slot.eq(self.slot + 1)]
        with m.If(queue.o.valid & queue.o.ready):
            m.d.sync += [
                address.eq(queue.o.payload.address), left.eq(queue.o.payload.length),
                self.hint.eq(queue.o.payload.hint),
            ]  # fmt: skip

        # Data: the oldest slot leaves when its granule has arrived; the memory's output register holds it.
        oldest = Signal(len(self.slot))
        here, gone = Signal(depth), Signal(depth)
        m.d.comb += [
            into.en.eq(self.fill),
            into.addr.eq(self.fill_slot),
            into.data.eq(Cat(self.fill_data, self.fill_error)),
            here.eq(self.fill.replicate(depth) & (Const(1, 1) << self.fill_slot)[:depth]),
            leave.eq(arrived.bit_select(oldest, 1) & (~self.data.valid | self.data.ready)),
            gone.eq(leave.replicate(depth) & (Const(1, 1) << oldest)[:depth]),
            out.addr.eq(oldest),
            out.en.eq(leave),
            Cat(self.data.payload, self.error).eq(out.data),
            self.idle.eq((left == 0) & (used == 0) & ~queue.o.valid & ~self.data.valid),
        ]
        m.d.sync += [
            arrived.eq((arrived | here) & ~gone),
            oldest.eq(oldest + leave),
            used.eq(used + issue - leave),
            self.data.valid.eq(leave | (self.data.valid & ~self.data.ready)),
        ]
        return m
