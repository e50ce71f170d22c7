"""The tile: sequencer, weight path, array, vector side, counters, and its doors to the memory and the network."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.emit import once
from hw.fifo import StreamFifo
from hw.tile.array import Array
from hw.tile.attention import MEMORY_AXI, AttentionPath, MemoryWriter, attention_size
from hw.tile.collect import WeightCollector
from hw.tile.config import TileConfig
from hw.tile.counters import CounterFile
from hw.tile.drain import Outgoing
from hw.tile.isa import ROW_BITS, Counters, Memory, RemoteWrite, TileError, WeightRange
from hw.tile.sequencer import Sequencer
from hw.tile.unpack import GRANULE, FrameUnpacker, blocks_layout
from hw.tile.vector import VectorPath

__all__ = ["Tile"]


def _choose(m: Module, first: Value, target: stream.Interface, one: stream.Interface, other: stream.Interface) -> None:
    """`target` gets what `one` offers while `first` is high, else what `other` offers."""
    m.d.comb += [
        target.payload.eq(Mux(first, one.payload, other.payload)),
        target.valid.eq(Mux(first, one.valid, other.valid)),
        one.ready.eq(target.ready & first),
        other.ready.eq(target.ready & ~first),
    ]


def _widened(m: Module, source: stream.Interface, at_once: int, name: str) -> stream.Interface:
    """A stream of one or two blocks as one of `at_once`."""
    wide, payload = stream.Signature(blocks_layout(at_once)).create(path=(name,)), source.payload
    m.d.comb += [wide.valid.eq(source.valid), source.ready.eq(wide.ready)]
    m.d.comb += [wide.payload.block[index].eq(block) for index, block in enumerate(payload.block)]
    if len(payload.block) == 2:
        m.d.comb += wide.payload.two.eq(payload.two)
    return wide


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
        m.submodules.weight_queue = weights = StreamFifo(GRANULE, config.weight_queue)
        m.submodules.unpacker = unpacker = FrameUnpacker(config.formats)
        at_once = max(unpacker.at_once, attention_size(config).at_once if config.attention_rows else 1)
        m.submodules.collector = collector = WeightCollector(config.columns, at_once)
        m.submodules.array = array = Array(config)
        m.submodules.counters = counters = CounterFile(config.rows * config.columns)

        wiring.connect(m, sequencer.matrices, unpacker.matrix)
        wiring.connect(m, wiring.flipped(self.granules), weights.i)
        wiring.connect(m, collector.sets, array.sets)
        attention = None
        if config.attention_rows:
            m.submodules.attention = attention = AttentionPath(config)
            self._attend(m, sequencer, attention, weights, unpacker, collector, array)
        else:
            wiring.connect(m, wiring.flipped(self.descriptors), sequencer.descriptors)
            wiring.connect(m, weights.o, unpacker.granules)
            wiring.connect(m, unpacker.blocks, collector.blocks)
            wiring.connect(m, sequencer.jobs, array.jobs)
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
        self._count(m, sequencer, array, counters)
        return m

    def _attend(
        self, m: Module, sequencer: Sequencer, attention: AttentionPath, weights: StreamFifo, unpacker: FrameUnpacker,
        collector: WeightCollector, array: Array,
    ) -> None:  # fmt: skip
        """While an ATTEND runs, memory, collector and array are the engine's."""
        attending = sequencer.attend.valid
        wiring.connect(m, sequencer.attend, attention.attend)
        wiring.connect(m, array.local, attention.array)
        m.d.comb += [
            attention.pages_enable.eq(sequencer.page_enable),
            attention.pages_address.eq(sequencer.page.entry),
            attention.pages_data.eq(sequencer.page.granule),
            sequencer.settled.eq(unpacker.idle & ~weights.o.valid),
            sequencer.refused.eq(attention.error),
        ]
        _choose(m, attending, wiring.flipped(self.descriptors), attention.ranges, sequencer.descriptors)
        _choose(m, attending, array.jobs, attention.jobs, sequencer.jobs)
        of_cache, of_weights = (
            _widened(m, source, collector.at_once, name)
            for source, name in ((attention.blocks, "cache_blocks"), (unpacker.blocks, "weight_blocks"))
        )
        _choose(m, attending, collector.blocks, of_cache, of_weights)
        for target, mine in ((attention.granules, attending), (unpacker.granules, ~attending)):
            m.d.comb += [target.payload.eq(weights.o.payload), target.valid.eq(weights.o.valid & mine)]
        m.d.comb += weights.o.ready.eq(Mux(attending, attention.granules.ready, unpacker.granules.ready))

    def _append(self, m: Module, sequencer: Sequencer, vector: wiring.Component) -> Value:
        """APPEND and its writes. Returns whether the memory has answered all of them."""
        m.submodules.writer = writer = MemoryWriter()
        wiring.connect(m, sequencer.append, vector.append)
        wiring.connect(m, vector.writes, writer.i)
        wiring.connect(m, writer.axi, wiring.flipped(self.memory))
        m.d.comb += [
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
        choice, held, chosen = Signal(range(len(sources))), Signal(range(len(sources))), Signal()
        for index, source in reversed(list(enumerate(sources))):
            with m.If(source.valid):
                m.d.comb += choice.eq(index)
        with m.If(chosen):  # what was offered and not taken stays
            m.d.comb += choice.eq(held)
        m.d.sync += [held.eq(choice), chosen.eq(self.o.valid & ~self.o.ready)]
        with m.Switch(choice):
            for index, source in enumerate(sources):
                with m.Case(index):
                    m.d.comb += [
                        self.o.payload.eq(source.payload),
                        self.o.valid.eq(source.valid),
                        source.ready.eq(self.o.ready),
                    ]

    def _count(self, m: Module, sequencer: Sequencer, array: Array, counters: CounterFile) -> None:
        grow, running, attending = counters.increments, self.running & ~sequencer.attend.valid, sequencer.attend.valid
        no_job, taken = running & array.stalls.no_job, self.granules.valid & self.granules.ready
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
            grow.weight_granules.eq(taken & ~attending),
            grow.cache_granules.eq(taken & attending),
            grow.weight_wait.eq(running & self.granules.valid & ~self.granules.ready),
            grow.activation_blocks.eq(array.write_enable),
            grow.result_granules.eq(self.o.valid & self.o.ready),
        ]
