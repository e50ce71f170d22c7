"""The tile: sequencer, weight path, array, vector side, counters, and its doors to the memory and the network."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.emit import once
from hw.fifo import StreamFifo
from hw.tile.array import Array
from hw.tile.attention import MEMORY_AXI, AttentionPath, MemoryWriter
from hw.tile.collect import WeightCollector
from hw.tile.config import TileConfig
from hw.tile.counters import CounterFile
from hw.tile.drain import Outgoing
from hw.tile.isa import ROW_BITS, Counters, Memory, RemoteWrite, TileError, WeightRange
from hw.tile.sequencer import Sequencer
from hw.tile.sets import SetBuffer
from hw.tile.streams import RangeSharer, arbitrate, choose
from hw.tile.unpack import GRANULE, FrameUnpacker
from hw.tile.vector import VectorPath

__all__ = ["Tile"]


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
    i: remote writes from the network (activation blocks, granules for the vector memory, instructions, the start of
        the program). Only a granule for the vector memory ever waits, and no longer than the vector unit writes there.
    o: remote writes to the network (results, activation blocks, counters, signals); signals behind all before them.
    memory: where the tile has attention, AXI4 to its memory, for single granules of the KV cache.
    """

    def __init__(self, config: TileConfig):
        self.config = config
        ports = {
            "running": Out(1),
            "done": Out(1),
            "error": Out(TileError),
            "counters": Out(Counters),
            "descriptors": Out(stream.Signature(WeightRange)),
            "granules": In(stream.Signature(GRANULE)),
            "i": In(stream.Signature(RemoteWrite)),
            "o": Out(stream.Signature(Outgoing)),
        }
        if config.attention_rows:
            ports["memory"] = Out(MEMORY_AXI)
        super().__init__(ports)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        m.submodules.sequencer = sequencer = Sequencer(config)
        m.submodules.unpacker = unpacker = FrameUnpacker(config.formats)
        m.submodules.array = array = Array(config)
        m.submodules.buffer = buffer = SetBuffer(
            config.columns, config.weight_sets, unpacker.at_once, array.formats.scale_bits
        )
        m.submodules.counters = counters = CounterFile(config.rows * config.columns)

        wiring.connect(m, sequencer.matrices, unpacker.matrix)
        wiring.connect(m, unpacker.blocks, buffer.blocks)
        m.d.comb += [buffer.discard.eq(sequencer.discard), sequencer.set_taken.eq(buffer.taken)]
        attention = None
        if config.attention_rows:
            m.submodules.attention = attention = AttentionPath(config)
            self._attend(m, sequencer, attention, array, buffer)
        else:
            wiring.connect(m, sequencer.jobs, array.jobs)
            wiring.connect(m, buffer.sets, array.sets)
        self._memory(m, sequencer, unpacker, attention)
        sources, vector = [array.o, sequencer.signals], None
        if config.vector_depth:
            m.submodules.vector = vector = once(VectorPath(config), f"vector_path_{config.vector_key}")
            m.submodules.vector_queue = queue = StreamFifo(Outgoing, 2)
            wiring.connect(m, sequencer.vector, vector.command)
            wiring.connect(m, sequencer.moves, vector.move)
            wiring.connect(m, vector.o, queue.i)
            sources.insert(1, queue.o)
            idle = vector.idle & ~queue.o.valid
            if config.attention_rows:
                idle &= self._append(m, sequencer, vector)
                wiring.connect(m, sequencer.sinks, vector.sinks)
                m.d.comb += [attention.sink_enable.eq(vector.sink_enable), attention.sink.eq(vector.sink)]
            m.d.comb += sequencer.vector_idle.eq(idle)
        else:
            m.d.comb += sequencer.vector_idle.eq(1)
        self._receive(m, sequencer, array, vector, attention)
        self._send(m, sources)
        m.d.comb += [
            sequencer.quiet.eq(~array.busy),
            self.running.eq(sequencer.running),
            self.done.eq(sequencer.done),
            self.error.eq(sequencer.error),
            array.counters.eq(counters.values),
            self.counters.eq(counters.values),
        ]
        self._count(m, sequencer, array, counters, unpacker, attention)
        return m

    def _attend(
        self, m: Module, sequencer: Sequencer, attention: AttentionPath, array: Array, buffer: SetBuffer
    ) -> None:
        """While an ATTEND runs, the array is the engine's; weights for later go into their buffer meanwhile."""
        m.submodules.collector = collector = WeightCollector(self.config.columns, len(attention.blocks.payload.block))
        attending = sequencer.attend.valid
        wiring.connect(m, sequencer.attend, attention.attend)
        wiring.connect(m, array.local, attention.array)
        wiring.connect(m, attention.blocks, collector.blocks)
        m.d.comb += [
            attention.pages_enable.eq(sequencer.page_enable),
            attention.pages_address.eq(sequencer.page.entry),
            attention.pages_data.eq(sequencer.page.granule),
            sequencer.refused.eq(attention.error),
        ]
        choose(m, attending, array.jobs, attention.jobs, sequencer.jobs)
        choose(m, attending, array.sets, collector.sets, buffer.sets)

    def _memory(
        self, m: Module, sequencer: Sequencer, unpacker: FrameUnpacker, attention: AttentionPath | None
    ) -> None:
        """The memory's ranges and granules, for weights and, where the tile has attention, for its cache."""
        m.submodules.granule_queue = granules = StreamFifo(GRANULE, 2)
        wiring.connect(m, wiring.flipped(self.granules), granules.i)
        if attention is None:
            wiring.connect(m, wiring.flipped(self.descriptors), sequencer.descriptors)
            wiring.connect(m, granules.o, unpacker.granules)
            return
        m.submodules.sharer = sharer = RangeSharer()
        wiring.connect(m, attention.ranges, sharer.first)
        wiring.connect(m, sequencer.descriptors, sharer.second)
        wiring.connect(m, wiring.flipped(self.descriptors), sharer.ranges)
        wiring.connect(m, granules.o, sharer.granules)
        wiring.connect(m, sharer.first_granules, attention.granules)
        wiring.connect(m, sharer.second_granules, unpacker.granules)

    def _append(self, m: Module, sequencer: Sequencer, vector: wiring.Component) -> Value:
        """APPEND and its writes. Returns whether the memory has answered all of them."""
        m.submodules.writer = writer = MemoryWriter()
        wiring.connect(m, sequencer.append, vector.append)
        wiring.connect(m, vector.writes, writer.i)
        wiring.connect(m, writer.axi, wiring.flipped(self.memory))
        m.d.comb += [
            sequencer.write_failed.eq(writer.failed),
            vector.pages_enable.eq(sequencer.page_enable),
            vector.pages_address.eq(sequencer.page.entry),
            vector.pages_data.eq(sequencer.page.granule),
        ]
        return writer.idle

    def _receive(
        self, m: Module, sequencer: Sequencer, array: Array, vector: wiring.Component | None,
        attention: AttentionPath | None,
    ) -> None:  # fmt: skip
        """Remote writes go to the memory that they name; one a cycle."""
        write = self.i.payload
        to = {memory: Signal(name=f"write_{memory.name.lower()}") for memory in Memory}
        m.d.comb += self.i.ready.eq(1)
        m.d.comb += [enable.eq(self.i.valid & (write.memory == memory)) for memory, enable in to.items()]
        m.d.comb += [
            array.write_enable.eq(to[Memory.ACTIVATIONS] & self.i.ready),
            array.write_row.eq(write.address[:ROW_BITS]),
            array.write_address.eq(write.address[ROW_BITS:]),
            array.write_data.eq(write.data),
            sequencer.arrived.eq((to[Memory.ACTIVATIONS] | to[Memory.RESULTS]) & self.i.ready),
            sequencer.arrival_counter.eq(write.counter),
            sequencer.write_enable.eq(to[Memory.PROGRAM]),
            sequencer.write_address.eq(write.address),
            sequencer.write_data.eq(write.data.elements.as_value()),
            sequencer.start.eq(to[Memory.SIGNAL]),
        ]
        if vector is not None:
            m.d.comb += [
                vector.load.valid.eq(to[Memory.RESULTS]),
                vector.load.payload.address.eq(write.address),
                vector.load.payload.elements.eq(write.data.elements.as_value()),
            ]
            with m.If(write.memory == Memory.RESULTS):
                m.d.comb += self.i.ready.eq(vector.load.ready)
        if attention is not None:  # the engine's blocks and rows share the ports; a row waits for the network
            with m.If(write.memory == Memory.ACTIVATIONS):
                m.d.comb += self.i.ready.eq(~array.local.write_enable)
            with m.If(~to[Memory.RESULTS]):
                m.d.comb += [
                    vector.load.valid.eq(attention.rows.valid),
                    vector.load.payload.eq(attention.rows.payload),
                    attention.rows.ready.eq(vector.load.ready),
                ]

    def _send(self, m: Module, sources: list[stream.Interface]) -> None:
        """The array's results before the vector side's; a signal is offered only when both have nothing left."""
        arbitrate(m, self.o, sources)

    def _count(
        self, m: Module, sequencer: Sequencer, array: Array, counters: CounterFile, unpacker: FrameUnpacker,
        attention: AttentionPath | None,
    ) -> None:  # fmt: skip
        grow, running, attending = counters.increments, self.running & ~sequencer.attend.valid, sequencer.attend.valid
        no_job = running & array.stalls.no_job
        m.d.comb += [
            counters.clear.eq(sequencer.start),
            grow.cycles.eq(self.running),
            grow.issue.eq(array.issuing & ~attending),
            grow.block_dots.eq(Mux(attending, 0, array.block_dots)),
            grow.stall_weights.eq(running & array.stalls.weights),
            grow.stall_results.eq(running & array.stalls.results),
            grow.stall_order.eq(running & array.stalls.order),
            grow.stall_activations.eq(no_job & sequencer.awaiting),
            grow.stall_vector.eq(no_job & sequencer.vector_busy),
            grow.vector.eq(sequencer.vector_busy & ~attending),
            grow.attention.eq(attending),
            grow.idle.eq(no_job & ~sequencer.awaiting & ~sequencer.vector_busy),
            grow.weight_granules.eq(unpacker.granules.valid & unpacker.granules.ready),
            grow.weight_wait.eq(self.running & sequencer.no_room),
            grow.activation_blocks.eq(array.write_enable),
            grow.result_granules.eq(self.o.valid & self.o.ready),
        ]
        if attention is not None:
            m.d.comb += grow.cache_granules.eq(attention.granules.valid & attention.granules.ready)
