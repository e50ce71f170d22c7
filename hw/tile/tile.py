"""The tile: sequencer, weight path, array, counters, and its doors to the memory and the network."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.fifo import StreamFifo
from hw.tile.array import Array
from hw.tile.collect import WeightCollector
from hw.tile.config import TileConfig
from hw.tile.counters import CounterFile
from hw.tile.drain import Outgoing
from hw.tile.isa import Counters, Memory, RemoteWrite, TileError, WeightRange
from hw.tile.sequencer import Sequencer
from hw.tile.unpack import GRANULE, FrameUnpacker

__all__ = ["Tile"]

ROW_BITS = 6
"""Bits of an activation address that name the array row; the rest is the index in the row's memory."""


class Tile(wiring.Component):
    """One tile: runs its program on activations from the network and weights from its memory.

    Parameters
    ----------
    config: the tile.

    Interface attributes
    --------------------
    running, done, error: state of the program.
    counters: see `hw.tile.isa.COUNTERS`.
    descriptors: granules to read from the tile's memory; granules: what was read, in order.
    i: remote writes from the network (activation blocks, instructions, the start of the program); never refused.
    o: remote writes to the network (results, counters, signals), in program order.
    """

    def __init__(self, config: TileConfig):
        self.config = config
        super().__init__(
            {
                "running": Out(1),
                "done": Out(1),
                "error": Out(TileError),
                "counters": Out(Counters),
                "descriptors": Out(stream.Signature(WeightRange)),
                "granules": In(stream.Signature(GRANULE)),
                "i": In(stream.Signature(RemoteWrite)),
                "o": Out(stream.Signature(Outgoing)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        m.submodules.sequencer = sequencer = Sequencer(config)
        m.submodules.weight_queue = weights = StreamFifo(GRANULE, config.weight_queue)
        m.submodules.unpacker = unpacker = FrameUnpacker(config.formats)
        m.submodules.collector = collector = WeightCollector(config.columns, unpacker.at_once)
        m.submodules.array = array = Array(config)
        m.submodules.counters = counters = CounterFile(config.rows * config.columns)

        wiring.connect(m, wiring.flipped(self.descriptors), sequencer.descriptors)
        wiring.connect(m, sequencer.matrices, unpacker.matrix)
        wiring.connect(m, wiring.flipped(self.granules), weights.i)
        wiring.connect(m, weights.o, unpacker.granules)
        wiring.connect(m, unpacker.blocks, collector.blocks)
        wiring.connect(m, collector.sets, array.sets)
        wiring.connect(m, sequencer.jobs, array.jobs)
        self._receive(m, sequencer, array)
        self._send(m, sequencer, array)
        m.d.comb += [
            sequencer.quiet.eq(~array.busy),
            self.running.eq(sequencer.running),
            self.done.eq(sequencer.done),
            self.error.eq(sequencer.error),
            array.counters.eq(counters.values),
            self.counters.eq(counters.values),
        ]
        self._count(m, sequencer, array, counters)
        return m

    def _receive(self, m: Module, sequencer: Sequencer, array: Array) -> None:
        """Remote writes go to the memory that they name; one a cycle, always accepted."""
        write = self.i.payload
        to = {memory: Signal(name=f"write_{memory.name.lower()}") for memory in Memory}
        m.d.comb += self.i.ready.eq(1)
        m.d.comb += [enable.eq(self.i.valid & (write.memory == memory)) for memory, enable in to.items()]
        m.d.comb += [
            array.write_enable.eq(to[Memory.ACTIVATIONS]),
            array.write_row.eq(write.address[:ROW_BITS]),
            array.write_address.eq(write.address[ROW_BITS:]),
            array.write_data.eq(write.data),
            sequencer.arrived.eq(to[Memory.ACTIVATIONS]),
            sequencer.write_enable.eq(to[Memory.PROGRAM]),
            sequencer.write_address.eq(write.address),
            sequencer.write_data.eq(write.data.elements.as_value()),
            sequencer.start.eq(to[Memory.SIGNAL]),
        ]

    def _send(self, m: Module, sequencer: Sequencer, array: Array) -> None:
        """Results before signals: a signal is offered only when the array has nothing left to send."""
        m.d.comb += self.o.valid.eq(array.o.valid | sequencer.signals.valid)
        with m.If(array.o.valid):
            m.d.comb += [self.o.payload.eq(array.o.payload), array.o.ready.eq(self.o.ready)]
        with m.Else():
            m.d.comb += [self.o.payload.eq(sequencer.signals.payload), sequencer.signals.ready.eq(self.o.ready)]

    def _count(self, m: Module, sequencer: Sequencer, array: Array, counters: CounterFile) -> None:
        grow, running = counters.increments, self.running
        no_job = running & array.stalls.no_job
        m.d.comb += [
            counters.clear.eq(sequencer.start),
            grow.cycles.eq(running),
            grow.issue.eq(array.issuing),
            grow.block_dots.eq(array.block_dots),
            grow.stall_weights.eq(running & array.stalls.weights),
            grow.stall_results.eq(running & array.stalls.results),
            grow.stall_order.eq(running & array.stalls.order),
            grow.stall_activations.eq(no_job & sequencer.awaiting),
            grow.idle.eq(no_job & ~sequencer.awaiting),
            grow.weight_granules.eq(self.granules.valid & self.granules.ready),
            grow.weight_wait.eq(running & self.granules.valid & ~self.granules.ready),
            grow.activation_blocks.eq(sequencer.arrived),
            grow.result_granules.eq(self.o.valid & self.o.ready),
        ]
