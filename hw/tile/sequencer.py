"""Runs a tile's program: fetches weights ahead, hands products to the array, waits, signals."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from golden.formats import FORMATS, pair_problem
from golden.weights import FRAME, frame_granules
from hw.fifo import StreamFifo
from hw.numerics.formats import ElementFormat
from hw.tile.attention import attention_size
from hw.tile.config import TileConfig
from hw.tile.drain import Outgoing
from hw.tile.isa import (
    ARRIVALS,
    AppendInstruction,
    AttendInstruction,
    Instruction,
    Memory,
    MoveInstruction,
    Opcode,
    PageInstruction,
    PlacesInstruction,
    SinkInstruction,
    TileError,
    VectorInstruction,
    WeightRange,
)
from hw.tile.issue import Job
from hw.tile.unpack import WeightStream
from hw.tile.vector import MAX_LENGTH
from hw.vector.engine import refuses
from hw.vector.unit import UnitCommand

__all__ = ["Sequencer"]


def _seen_as(layout: type[data.Struct], word: Value) -> data.View:
    return data.View(layout, word[: data.Layout.cast(layout).size])


class Sequencer(wiring.Component):
    """Two readers of one program: the fetcher asks for the weights of every MATMUL, the executor runs everything.

    The fetcher asks for weights a frame at a time, in the order of the program, and never for more than the weight
    buffer has room for: what was asked for can always leave the memory, whatever the executor waits for. So weights are
    there before the activations that an AWAIT waits for, and the granules of an ATTEND are never behind weights that
    wait for it. The executor hands a MATMUL on and goes to the next instruction while the array works; VECTOR,
    QUANTISE, SEND, APPEND, SINK and ATTEND are done when it goes on. An instruction that the tile cannot do (format not
    built, size zero or too large, no vector unit, no attention engine) stops the tile with an error; so does an unknown
    opcode. The fetcher stops at the same instruction, or, behind an ATTEND that the engine refuses, with the product
    that it is at, and the buffer is emptied. A write of the cache that the memory refuses (a page beyond it) stops the
    tile before the next SIGNAL or ATTEND, or at the end.

    Parameters
    ----------
    config: the tile.

    Interface attributes
    --------------------
    start: a pulse: run the program from instruction 0.
    write_enable, write_address, write_data: an instruction into the program memory.
    arrived, arrival_counter: an activation block or a granule came in this cycle, and the counter that it names.
    descriptors: what to read from the memory; matrices: what is in it.
    set_taken: a set left the weight buffer; no_room: the fetcher waits for that.
    discard: no product will take what is, or will be, in the weight buffer.
    jobs: products for the array.
    signals: signals to the host, given when everything before is sent.
    quiet: the array has nothing under way and nothing to send.
    vector, moves, append, sinks: for the vector side (`hw.tile.vector.VectorPath`); vector_idle: from there.
    attend: for the attention engine; refused: the engine refused the command that it takes in this cycle.
    page_enable, page: an entry of the page table; write_failed: the memory has refused a write (a pulse).
    awaiting: the executor waits for arrivals; vector_busy: for the vector side.
    running, done, error: state of the program; `done` and `error` hold until the next start.
    """

    def __init__(self, config: TileConfig):
        self.config = config
        super().__init__(
            {
                "start": In(1),
                "write_enable": In(1),
                "write_address": In(range(config.instruction_depth)),
                "write_data": In(256),
                "arrived": In(1),
                "arrival_counter": In(range(ARRIVALS)),
                "descriptors": Out(stream.Signature(WeightRange)),
                "matrices": Out(stream.Signature(WeightStream)),
                "set_taken": In(1),
                "no_room": Out(1),
                "discard": Out(1),
                "jobs": Out(stream.Signature(Job)),
                "signals": Out(stream.Signature(Outgoing)),
                "quiet": In(1),
                "vector": Out(stream.Signature(UnitCommand)),
                "moves": Out(stream.Signature(MoveInstruction)),
                "append": Out(stream.Signature(AppendInstruction)),
                "sinks": Out(stream.Signature(SinkInstruction)),
                "vector_idle": In(1, init=1),
                "attend": Out(stream.Signature(AttendInstruction)),
                "refused": In(1),
                "write_failed": In(1),
                "page_enable": Out(1),
                "page": Out(PageInstruction),
                "awaiting": Out(1),
                "vector_busy": Out(1),
                "running": Out(1),
                "done": Out(1),
                "error": Out(TileError),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        program = memory.Memory(shape=Instruction, depth=self.config.instruction_depth, init=[])
        m.submodules.program = program
        write = program.write_port()
        m.d.comb += [
            write.en.eq(self.write_enable),
            write.addr.eq(self.write_address),
            write.data.as_value().eq(self.write_data),
        ]
        failed = Signal()
        m.d.sync += failed.eq(~self.start & (failed | self.write_failed))
        fetched = self._fetcher(m, program.read_port(), failed)
        self._executor(m, program.read_port(), fetched, failed)
        return m

    def _refusal(self, m: Module, instruction: data.View, name: str) -> Signal:
        """Why the tile cannot do `instruction`; NONE where it can."""
        config, error = self.config, Signal(TileError, name=f"{name}_refusal")
        held = instruction.passes * config.rows
        fits = (
            (instruction.k_blocks != 0)
            & (instruction.slot_columns != 0)
            & (instruction.slots != 0)
            & (instruction.slots <= config.slots)
            & (instruction.rows != 0)
            & (instruction.rows <= held)
            & (instruction.rows + config.rows > held)
            & (instruction.passes <= config.passes)
            & (instruction.activation_base + instruction.passes * instruction.k_blocks <= config.activation_depth)
        )
        highest = Opcode.SINK if config.attention_rows else Opcode.SEND if config.vector_depth else Opcode.SIGNAL
        with m.If(instruction.opcode.as_value() > highest.value):
            m.d.comb += error.eq(TileError.OPCODE)
        with m.Elif(instruction.opcode == Opcode.MATMUL):
            with m.If(~fits):
                m.d.comb += error.eq(TileError.SIZE)
            pair = Cat(instruction.activation_format, instruction.weight_format)
            with m.If(~pair.matches(*self._pairs())):
                m.d.comb += error.eq(TileError.FORMAT)
        if config.vector_depth:
            word = instruction.as_value()
            move, vector = (_seen_as(layout, word) for layout in (MoveInstruction, VectorInstruction))
            with m.If((vector.opcode == Opcode.VECTOR) & refuses(vector.engine, MAX_LENGTH)):
                m.d.comb += error.eq(TileError.SIZE)
            quantise = move.opcode == Opcode.QUANTISE
            with m.If(quantise | (move.opcode == Opcode.SEND)):
                with m.If((move.rows == 0) | (move.length == 0)):
                    m.d.comb += error.eq(TileError.SIZE)
                known = move.element.as_value().matches(*(ElementFormat[n].value for n in config.quantised_formats))
                with m.If(quantise & ~known):
                    m.d.comb += error.eq(TileError.FORMAT)
        if config.attention_rows:
            append, size = _seen_as(AppendInstruction, instruction.as_value()), attention_size(config)
            token = append.token
            wrong = (
                (append.rows == 0)
                | (token.key_blocks == 0)
                | (token.value_groups == 0)
                | (token.value_groups > size.max_value_groups)
                | (token.latent & (token.value_groups > token.key_blocks))
            )
            with m.If(append.opcode == Opcode.APPEND):
                with m.If(wrong):
                    m.d.comb += error.eq(TileError.SIZE)
                with m.If(~token.element.as_value().matches(*(ElementFormat[n].value for n in size.formats))):
                    m.d.comb += error.eq(TileError.FORMAT)
            sink = _seen_as(SinkInstruction, instruction.as_value())
            with m.If((sink.opcode == Opcode.SINK) & ((sink.rows == 0) | (sink.rows > size.max_rows))):
                m.d.comb += error.eq(TileError.SIZE)
            with m.If((sink.opcode == Opcode.SINK) & (sink.group == 0)):
                m.d.comb += error.eq(TileError.SIZE)
        return error

    def _pairs(self) -> list[Const]:
        """The formats of activations and weights that the build can multiply."""
        formats = self.config.formats
        pairs = [(a, b) for a in formats for b in formats if pair_problem(FORMATS[a], FORMATS[b]) is None]
        return [Const.cast(Cat(Const(ElementFormat[a], 4), Const(ElementFormat[b], 4))) for a, b in pairs]

    def _fetcher(self, m: Module, read: memory.ReadPort, failed: Signal) -> Value:
        """Descriptors and matrix of each MATMUL, in order. Returns whether all that was asked for has been taken."""
        config = self.config
        m.submodules.matrix_queue = matrices = StreamFifo(WeightStream, 4)
        wiring.connect(m, wiring.flipped(self.matrices), matrices.o)
        instruction, refusal = read.data, self._refusal(m, read.data, "fetcher")
        left, address, sent_matrix = Signal(27), Signal(32), Signal()  # blocks to ask for, from granule `address` on
        matrix, descriptor = matrices.i, self.descriptors
        m.d.comb += [
            matrix.payload.element.eq(instruction.weight_format),
            matrix.payload.blocks.eq(left),
            descriptor.payload.address.eq(address),
        ]
        with m.Switch(instruction.weight_format):
            for name in config.formats:
                with m.Case(ElementFormat[name]):
                    m.d.comb += descriptor.payload.length.eq(frame_granules(FORMATS[name]))
        asked, promised = Signal(range(FRAME + 1)), Signal(range(config.weight_blocks + 1))
        m.d.sync += promised.eq(promised + asked - Mux(self.set_taken, config.columns, 0))
        room, idle, stopped = promised <= config.weight_blocks - FRAME, Signal(), Signal()
        refused = self.attend.valid & self.attend.ready & self.refused
        m.d.sync += stopped.eq(~self.start & (stopped | refused | failed))
        with m.FSM(name="fetcher"):
            with m.State("STOPPED"):
                m.d.comb += idle.eq(1)
                with m.If(self.start):
                    m.d.sync += read.addr.eq(0)
                    m.next = "READ"
            with m.State("READ"):
                m.next = "EXAMINE"
            with m.State("EXAMINE"):
                m.d.sync += [
                    left.eq(instruction.k_blocks * (instruction.slot_columns * config.columns)),
                    address.eq(instruction.weight_address),
                    sent_matrix.eq(0),
                ]
                with m.If((instruction.opcode == Opcode.HALT) | (refusal != TileError.NONE) | stopped):
                    m.next = "STOPPED"
                with m.Elif(instruction.opcode == Opcode.MATMUL):
                    m.next = "ASK"
                with m.Else():
                    m.d.sync += read.addr.eq(read.addr + 1)
                    m.next = "READ"
            with m.State("ASK"):
                last = left <= FRAME
                m.d.comb += [
                    matrix.valid.eq(~sent_matrix),
                    descriptor.valid.eq(sent_matrix & room),
                    self.no_room.eq(sent_matrix & ~room),
                ]
                with m.If(matrix.ready):
                    m.d.sync += sent_matrix.eq(1)
                with m.If(descriptor.valid & descriptor.ready):
                    m.d.comb += asked.eq(Mux(last, left, FRAME))
                    m.d.sync += [left.eq(left - FRAME), address.eq(address + descriptor.payload.length)]
                    with m.If(last):
                        m.d.sync += read.addr.eq(read.addr + 1)
                        m.next = "READ"
        return idle & (promised == 0)

    def _executor(self, m: Module, read: memory.ReadPort, fetched: Value, failed: Signal) -> None:
        m.submodules.job_queue = jobs = StreamFifo(Job, 2)
        wiring.connect(m, wiring.flipped(self.jobs), jobs.o)
        instruction, refusal = read.data, self._refusal(m, read.data, "executor")
        job, signal = jobs.i.payload, self.signals.payload
        fields = [field for field, _ in data.Layout.cast(Job) if field != "local"]  # a program's results leave the tile
        m.d.comb += [job[field].eq(instruction[field]) for field in fields]
        m.d.comb += [
            signal.destination.eq(instruction.destination),
            signal.write.memory.eq(Memory.SIGNAL),
            signal.write.data.elements.as_value().eq(instruction.count),
        ]
        received = Signal(data.ArrayLayout(24, ARRIVALS))
        taken = Signal(24)
        for index in range(ARRIVALS):
            more, less = self.arrived & (self.arrival_counter == index), Mux(instruction.counter == index, taken, 0)
            m.d.sync += received[index].eq(received[index] + more - less)
        finished = self.quiet & ~jobs.o.valid & self.vector_idle
        vector_advance = self._vector(m, read.data.as_value())
        with m.FSM(name="executor"):
            with m.State("STOPPED"):
                with m.If(self.start):
                    m.d.sync += [read.addr.eq(0), self.running.eq(1), self.done.eq(0), self.error.eq(TileError.NONE)]
                    m.next = "READ"
            with m.State("READ"):
                m.next = "EXECUTE"
            with m.State("EXECUTE"):
                advance = Signal()
                with m.If(refusal != TileError.NONE):
                    m.d.sync += self.error.eq(refusal)
                    m.next = "STOP"
                with m.Else():
                    with m.Switch(instruction.opcode):
                        with m.Case(Opcode.MATMUL):
                            m.d.comb += [jobs.i.valid.eq(1), advance.eq(jobs.i.ready)]
                        with m.Case(Opcode.AWAIT):
                            m.d.comb += [
                                advance.eq(received[instruction.counter] >= instruction.count),
                                self.awaiting.eq(~advance),
                            ]
                            with m.If(advance):
                                m.d.comb += taken.eq(instruction.count)
                        with m.Case(Opcode.SIGNAL):
                            m.d.comb += self.signals.valid.eq(finished & ~failed)
                            m.d.comb += advance.eq(self.signals.valid & self.signals.ready)
                            with m.If(finished & failed):
                                m.next = "STOP"
                        if self.config.vector_depth:
                            with m.Case(Opcode.PLACES):
                                m.d.comb += advance.eq(1)
                            with m.Case(Opcode.VECTOR, Opcode.QUANTISE, Opcode.SEND):
                                m.d.comb += [self.vector_busy.eq(1), advance.eq(vector_advance)]
                        if self.config.attention_rows:
                            self._attention(m, read.data.as_value(), finished, failed, advance)
                        with m.Default():
                            m.next = "STOP"
                with m.If(advance):
                    m.d.sync += read.addr.eq(read.addr + 1)
                    m.next = "READ"
            with m.State("STOP"):
                m.d.comb += self.discard.eq(finished)
                with m.If(failed):
                    m.d.sync += self.error.eq(TileError.SIZE)
                with m.If(finished & fetched):
                    m.d.sync += [self.running.eq(0), self.done.eq(1)]
                    m.next = "STOPPED"

    def _vector(self, m: Module, word: Value) -> Value:
        """Commands of the vector side while the executor is at one; whether the one on offer is done."""
        if not self.config.vector_depth:
            return Const(0)
        layouts = (PlacesInstruction, VectorInstruction, MoveInstruction)
        places, vector, move = (_seen_as(layout, word) for layout in layouts)
        held = Signal(PlacesInstruction)
        with m.If(places.opcode == Opcode.PLACES):
            m.d.sync += held.eq(places)
        command = self.vector.payload
        m.d.comb += [
            command.engine.eq(vector.engine),
            command.operands.eq(held.operands),
            command.result.eq(held.result),
            command.reduced.eq(held.reduced),
            command.early.eq(held.early),
            self.vector.valid.eq(self.vector_busy & (vector.opcode == Opcode.VECTOR)),
            self.moves.payload.eq(move),
            self.moves.valid.eq(self.vector_busy & ((move.opcode == Opcode.QUANTISE) | (move.opcode == Opcode.SEND))),
        ]
        return (self.vector.valid & self.vector.ready) | (self.moves.valid & self.moves.ready)

    def _attention(self, m: Module, word: Value, finished: Value, failed: Signal, advance: Signal) -> None:
        """The cases of PAGE, APPEND, SINK and ATTEND. An ATTEND begins when everything before it is done."""
        append, attend = _seen_as(AppendInstruction, word), _seen_as(AttendInstruction, word)
        begun, taken = Signal(), Signal()
        m.d.comb += [self.append.payload.eq(append), self.attend.payload.eq(attend)]
        m.d.comb += [
            self.page.eq(_seen_as(PageInstruction, word)),
            self.sinks.payload.eq(_seen_as(SinkInstruction, word)),
        ]
        with m.Case(Opcode.PAGE):
            m.d.comb += [self.page_enable.eq(1), advance.eq(1)]
        with m.Case(Opcode.APPEND):
            m.d.comb += [self.vector_busy.eq(1), self.append.valid.eq(1), advance.eq(self.append.ready)]
        with m.Case(Opcode.SINK):
            m.d.comb += [self.vector_busy.eq(1), self.sinks.valid.eq(1), advance.eq(self.sinks.ready)]
        with m.Case(Opcode.ATTEND):
            m.d.comb += [
                self.vector_busy.eq(1),
                self.attend.valid.eq(begun),
                taken.eq(begun & self.attend.ready),
                advance.eq(taken & ~self.refused),
            ]
            m.d.sync += begun.eq(Mux(begun, ~self.attend.ready, finished & ~failed))
            with m.If(finished & failed & ~begun):
                m.next = "STOP"
            with m.If(taken & self.refused):
                m.d.sync += self.error.eq(TileError.SIZE)
                m.next = "STOP"
