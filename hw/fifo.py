"""A queue between two streams."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Shape, ShapeLike, Signal, Value
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["StreamFifo"]


class StreamFifo(wiring.Component):
    """First-in first-out queue, full throughput at any depth, order kept.

    Latency is one cycle: an item accepted in a cycle is offered in the next. `o` and `i.ready` come from registers
    and from a memory read; no path leads from `o.ready` to `i.ready`.

    Parameters
    ----------
    shape: payload of both streams.
    depth: items held, at least 2.

    Interface attributes
    --------------------
    i, o: the streams.
    level: items held, 0 to `depth`.
    """

    def __init__(self, shape: ShapeLike, depth: int):
        if not isinstance(depth, int) or depth < 2:
            raise ValueError(f"Queue depth must be an integer of at least 2, not {depth!r}")
        self.shape = shape
        self.depth = depth
        super().__init__(
            {"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape)), "level": Out(range(depth + 1))}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.storage = storage = memory.Memory(shape=Shape.cast(self.shape).width, depth=self.depth, init=[])
        write = storage.write_port()
        read = storage.read_port(domain="comb")
        produce = Signal(range(self.depth))
        consume = Signal(range(self.depth))

        push = Signal()
        pop = Signal()
        m.d.comb += [
            self.i.ready.eq(self.level != self.depth),
            self.o.valid.eq(self.level != 0),
            push.eq(self.i.valid & self.i.ready),
            pop.eq(self.o.valid & self.o.ready),
            write.addr.eq(produce),
            write.data.eq(self.i.payload),
            write.en.eq(push),
            read.addr.eq(consume),
            Value.cast(self.o.payload).eq(read.data),
        ]
        with m.If(push):
            m.d.sync += produce.eq(_next(produce, self.depth))
        with m.If(pop):
            m.d.sync += consume.eq(_next(consume, self.depth))
        m.d.sync += self.level.eq(self.level + push - pop)
        return m


def _next(pointer: Signal, depth: int) -> Value:
    return Mux(pointer == depth - 1, 0, pointer + 1)
