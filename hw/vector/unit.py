"""The vector unit: the engine with a local memory from which it reads its operands and to which it writes."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, unsigned
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.emit import once
from hw.fifo import StreamFifo
from hw.vector.engine import VectorEngine, result_layout
from hw.vector.isa import STREAMS, EngineCommand, Reduce, StreamMode

__all__ = ["Fetch", "FetchCommand", "Place", "UnitCommand", "VectorUnit", "load_layout"]


class Place(data.Struct):
    """Where rows lie in the memory: the first row's first beat, and beats from one row to the next.

    With `external`, the elements come from or go to a stream of the unit instead.
    """

    address: unsigned(16)
    stride: unsigned(16)
    external: unsigned(1)


class UnitCommand(data.Struct):
    """A command of the engine, and where its streams lie.

    Operands of mode ROW lie one after the other from `address` on, `lanes` to a beat; so do reductions, at
    `reduced`. With `early`, the command counts as done when its last operands have been taken, and its results are
    written while the next one runs, which must not read them; one that is not `early` waits for all results, those of
    early ones before it included.
    """

    engine: EngineCommand
    operands: data.ArrayLayout(Place, len(STREAMS))
    result: Place
    reduced: unsigned(16)
    early: unsigned(1)


class _Results(data.Struct):
    """Results to come: where they go, how many rows, beats of a row."""

    place: Place
    rows: unsigned(16)
    beats: unsigned(16)


class _Reductions(data.Struct):
    """Reductions to come: the first one's beat, and how many."""

    address: unsigned(16)
    rows: unsigned(16)


def load_layout(lanes: int) -> data.StructLayout:
    """A beat that is written from outside."""
    return data.StructLayout({"address": unsigned(16), "elements": data.ArrayLayout(unsigned(32), lanes)})


class FetchCommand(data.Struct):
    """`rows` runs of `beats` beats, `stride` beats from one to the next."""

    address: unsigned(16)
    stride: unsigned(16)
    rows: unsigned(16)
    beats: unsigned(16)


class Fetch(wiring.Component):
    """Reads beats from a memory port into a stream, one a cycle.

    Interface attributes
    --------------------
    command: what to read; taken with the last address.
    address, data: a synchronous read port: data one cycle after the address.
    o: the beats.
    """

    def __init__(self, lanes: int):
        beat = data.ArrayLayout(unsigned(32), lanes)
        self.lanes = lanes
        super().__init__(
            {
                "command": In(stream.Signature(FetchCommand)),
                "address": Out(16),
                "data": In(beat),
                "o": Out(stream.Signature(beat)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        command = self.command.payload
        m.submodules.queue = queue = StreamFifo(self.data.shape(), 4)
        wiring.connect(m, queue.o, wiring.flipped(self.o))
        row, beat, line, arriving = Signal(16), Signal(16), Signal(16), Signal()
        step, row_end, end = Signal(), Signal(), Signal()
        m.d.comb += [
            step.eq(self.command.valid & (queue.level + arriving < 4)),
            row_end.eq(beat + 1 == command.beats),
            end.eq(row_end & (row + 1 == command.rows)),
            self.command.ready.eq(step & end),
            self.address.eq(command.address + line + beat),
            queue.i.valid.eq(arriving),
            queue.i.payload.eq(self.data),
        ]
        m.d.sync += arriving.eq(step)
        with m.If(step):
            m.d.sync += beat.eq(beat + 1)
            with m.If(row_end):
                m.d.sync += [beat.eq(0), row.eq(row + 1), line.eq(line + command.stride)]
            with m.If(end):
                m.d.sync += [row.eq(0), line.eq(0)]
        return m


class VectorUnit(wiring.Component):
    """Runs one command after the other on its memory; the next begins when this one is done (see `UnitCommand.early`).

    Parameters
    ----------
    lanes: elements of a beat.
    depth: beats of the memory, at most 65536.
    max_length: longest row that can be reduced.

    Interface attributes
    --------------------
    command: see `UnitCommand`.
    load: beats to write from outside, at any time; the reader's command must come after.
    a, b, c, d: operand streams for operands that are `external`.
    result: beats of results that are `external`.
    read: a beat address; `data` is what is there, one cycle later.
    done: a command is done in this cycle.
    idle: no command runs and all results are written.
    error: the engine refused a command since reset.
    """

    def __init__(self, lanes: int, depth: int, max_length: int = 8192):
        if not isinstance(depth, int) or not 2 <= depth <= 65536:
            raise ValueError(f"The vector memory holds 2 to 65536 beats, not {depth!r}")
        self.depth, self.lanes = depth, lanes
        self._engine = VectorEngine(lanes, max_length)
        beat = data.ArrayLayout(unsigned(32), lanes)
        super().__init__(
            {
                "command": In(stream.Signature(UnitCommand)),
                "load": In(stream.Signature(load_layout(lanes))),
                **{name: In(stream.Signature(beat)) for name in STREAMS},
                "result": Out(stream.Signature(result_layout(lanes))),
                "read": In(16),
                "data": Out(beat),
                "done": Out(1),
                "idle": Out(1),
                "error": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.engine = engine = self._engine
        m.submodules.memory = storage = memory.Memory(
            shape=data.ArrayLayout(unsigned(32), self.lanes), depth=self.depth, init=[]
        )
        command = self.command.payload
        # A command's results can outlast it, and its reductions its results: each has a queue of what is to come.
        m.submodules.results = results = StreamFifo(_Results, 4)
        m.submodules.reductions = reductions = StreamFifo(_Reductions, 4)
        running, taken, start = Signal(), Signal(), Signal()
        m.d.comb += [
            engine.command.payload.eq(command.engine),
            engine.command.valid.eq(Mux(running, ~taken, self.command.valid & engine.refused)),
            self.error.eq(engine.error),
            start.eq(~running & self.command.valid & ~engine.refused & results.i.ready & reductions.i.ready),
            results.i.valid.eq(start & command.engine.write),
            results.i.payload.place.eq(command.result),
            results.i.payload.rows.eq(command.engine.rows),
            results.i.payload.beats.eq((command.engine.length + self.lanes - 1) >> (self.lanes.bit_length() - 1)),
            reductions.i.valid.eq(start & (command.engine.reduce != Reduce.NONE)),
            reductions.i.payload.address.eq(command.reduced),
            reductions.i.payload.rows.eq(command.engine.rows),
        ]
        read = [taken, *(self._operand(m, engine, storage, index, running) for index in range(len(STREAMS)))]
        self._write(m, engine, storage, results.o, reductions.o)
        finished, written = Signal(), Signal()
        m.d.comb += [
            written.eq(~results.o.valid & ~reductions.o.valid),
            finished.eq(running & Cat(read).all() & (command.early | written)),
            self.command.ready.eq(finished | (~running & engine.refused)),
            self.done.eq(self.command.valid & self.command.ready),
            self.idle.eq(~running & written),
        ]
        with m.If(finished):
            m.d.sync += running.eq(0)
        with m.Elif(start):
            m.d.sync += [running.eq(1), taken.eq(0)]
        with m.If(running & engine.command.valid & engine.command.ready):
            m.d.sync += taken.eq(1)
        probe = storage.read_port()
        m.d.comb += [probe.addr.eq(self.read), self.data.eq(probe.data)]
        return m

    def _operand(self, m: Module, engine: VectorEngine, storage: memory.Memory, index: int, running: Signal) -> Signal:
        """Feeds stream `index` of the engine. Returns whether all of the command's reads have been made."""
        name = STREAMS[index]
        command, place = self.command.payload.engine, self.command.payload.operands[index]
        fetch = m.submodules[f"fetch_{name}"] = once(Fetch(self.lanes), f"vector_fetch_{self.lanes}")
        port = storage.read_port()
        into, outside = getattr(engine, name), getattr(self, name)
        by_row = command.modes[index] == StreamMode.ROW
        wanted = (command.modes[index] != StreamMode.OFF) & ~place.external
        fetched = Signal(name=f"fetched_{name}")
        shift = self.lanes.bit_length() - 1
        m.d.comb += [
            port.addr.eq(fetch.address),
            fetch.data.eq(port.data),
            fetch.command.valid.eq(running & wanted & ~fetched),
            fetch.command.payload.address.eq(place.address),
            fetch.command.payload.stride.eq(place.stride),
            fetch.command.payload.rows.eq(Mux(by_row, 1, command.rows)),
            fetch.command.payload.beats.eq((Mux(by_row, command.rows, command.length) + self.lanes - 1) >> shift),
        ]
        with m.If(running & place.external):
            m.d.comb += [into.valid.eq(outside.valid), into.payload.eq(outside.payload), outside.ready.eq(into.ready)]
        with m.Else():
            m.d.comb += [into.valid.eq(fetch.o.valid), into.payload.eq(fetch.o.payload), fetch.o.ready.eq(into.ready)]
        with m.If(~running):
            m.d.sync += fetched.eq(0)
        with m.Elif(fetch.command.valid & fetch.command.ready):
            m.d.sync += fetched.eq(1)
        complete = Signal(name=f"complete_{name}")
        m.d.comb += complete.eq(fetched | ~wanted)
        return complete

    def _write(
        self,
        m: Module,
        engine: VectorEngine,
        storage: memory.Memory,
        results: stream.Interface,
        reductions: stream.Interface,
    ) -> None:
        """One write port: reductions first, then results, then loads."""
        to, reduced = results.payload, reductions.payload
        port = storage.write_port(granularity=1)
        row, beat, line, elements = Signal(16), Signal(16), Signal(16), Signal(16)
        shift = self.lanes.bit_length() - 1
        take_result = Signal()
        m.d.comb += [
            engine.reduced.ready.eq(1),
            self.result.payload.eq(engine.result.payload),
            self.result.valid.eq(engine.result.valid & to.place.external),
            engine.result.ready.eq(Mux(to.place.external, self.result.ready, ~engine.reduced.valid)),
            take_result.eq(engine.result.valid & engine.result.ready),
        ]
        with m.If(engine.reduced.valid):
            m.d.comb += [
                port.addr.eq(reduced.address + (elements >> shift)),
                port.data.eq(Cat(engine.reduced.payload for _ in range(self.lanes))),
                port.en.eq(Const(1, self.lanes) << elements[:shift]),
            ]
            m.d.sync += elements.eq(elements + 1)
            with m.If(elements + 1 == reduced.rows):
                m.d.sync += elements.eq(0)
                m.d.comb += reductions.ready.eq(1)
        with m.Elif(take_result & ~to.place.external):
            m.d.comb += [
                port.addr.eq(to.place.address + line + beat),
                port.data.eq(engine.result.payload.elements),
                port.en.eq(engine.result.payload.keep),
            ]
        with m.Else():
            m.d.comb += [
                self.load.ready.eq(1),
                port.addr.eq(self.load.payload.address),
                port.data.eq(self.load.payload.elements),
                port.en.eq(self.load.valid.replicate(self.lanes)),
            ]
        with m.If(take_result):
            m.d.sync += beat.eq(beat + 1)
            with m.If(beat + 1 == to.beats):
                m.d.sync += [beat.eq(0), row.eq(row + 1), line.eq(line + to.place.stride)]
                with m.If(row + 1 == to.rows):
                    m.d.sync += [row.eq(0), line.eq(0)]
                    m.d.comb += results.ready.eq(1)
