"""The vector engine: lanes side by side under one command, operands and results as streams."""

from dataclasses import dataclass, field

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.emit import once
from hw.fifo import StreamFifo
from hw.vector.float32 import MINUS_ONE, NEGATIVE_ZERO, ONE
from hw.vector.isa import STREAMS, EngineCommand, Reduce, Source, StreamMode
from hw.vector.lane import Lane, LaneOperands
from hw.vector.pipeline import delay
from hw.vector.reduce import Reducer

__all__ = ["OperandSelect", "VectorEngine", "refuses", "result_layout"]

OPERANDS = ("x", "y", "z", "w", "v")


def result_layout(lanes: int) -> data.StructLayout:
    """A beat of results: the elements, and which of them exist (the last beat of a row may be short)."""
    return data.StructLayout({"elements": data.ArrayLayout(unsigned(32), lanes), "keep": unsigned(lanes)})


def refuses(command: data.View, max_length: int) -> Value:
    """Whether an engine for reductions of up to `max_length` elements cannot do a command (`EngineCommand`)."""
    off = []
    for operand in OPERANDS:
        source = getattr(command.operands, operand).as_value()
        off += [(source == Source[name.upper()].value) & (command.modes[i] == StreamMode.OFF)
                for i, name in enumerate(STREAMS)]  # fmt: skip
        off.append(source > max(s.value for s in Source))
    too_long = (command.reduce != Reduce.NONE) & (command.length > max_length)
    return (command.length == 0) | (command.rows == 0) | too_long | Cat(off).any()


class _Issue(data.Struct):
    """What goes down the pipeline beside a beat."""

    valid: unsigned(1)
    write: unsigned(1)
    reduce: Reduce
    last: unsigned(1)


@dataclass
class _Walk:
    """Where the command is: row, first element of the beat, and places that the mask has moved up so far."""

    row: Signal = field(default_factory=lambda: Signal(16, name="row"))
    column: Signal = field(default_factory=lambda: Signal(16, name="column"))
    moved: Signal = field(default_factory=lambda: Signal(16, name="moved"))


class OperandSelect(wiring.Component):
    """Picks one lane's operands and registers them, one cycle.

    Interface attributes
    --------------------
    enable: moves the register.
    elements: this lane's element of each stream.
    command: the command; hidden: the mask hides this element.
    operands: for the lane.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "enable": In(1),
                "elements": In(data.ArrayLayout(32, len(STREAMS))),
                "command": In(EngineCommand),
                "hidden": In(1),
                "operands": Out(LaneOperands),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        command, operands = self.command, self.operands
        values = {Source[name.upper()]: self.elements[index] for index, name in enumerate(STREAMS)} | {
            Source.IMMEDIATE_0: command.immediates[0], Source.IMMEDIATE_1: command.immediates[1],
            Source.ONE: Const(ONE, 32), Source.MINUS_ONE: Const(MINUS_ONE, 32),
            Source.ZERO: Const(0, 32), Source.NEGATIVE_ZERO: Const(NEGATIVE_ZERO, 32),
        }  # fmt: skip
        with m.If(self.enable):
            m.d.sync += [
                operands.combine.eq(command.combine),
                operands.function.eq(command.function),
                operands.hidden.eq(self.hidden),
            ]
            for operand in OPERANDS:
                with m.Switch(getattr(command.operands, operand)):
                    for source, value in values.items():
                        with m.Case(source):
                            m.d.sync += getattr(operands, operand).eq(value)
        return m


class VectorEngine(wiring.Component):
    """Runs commands in order, one beat of `lanes` elements a cycle. Golden function: `golden.vector.vector_pass`.

    A beat is issued in a cycle in which every stream that the command uses has data; a stall of an output stops the
    whole pipeline. The next command starts in the cycle after the last beat of the one before. Both outputs have to
    be accepted independently of each other: waiting with one for the other can stop the engine for good.

    Parameters
    ----------
    lanes: elements of a beat, a power of two, 1 to 64.
    max_length: longest row that can be reduced, a power of two of at least `lanes`.

    Interface attributes
    --------------------
    command: what to do next. A command that cannot be done (no rows, an empty row, a reduction longer than
        `max_length`, an operand from a stream that is off) is taken, does nothing, and sets `error`.
    a, b, c, d: operand beats; lane 0 in the lowest bits. In a short last beat the upper lanes are ignored.
    result: r, beats of `result_layout`, in order; only of commands with `write`. `Lane.latency` + 3 cycles later.
    reduced: one value a row of commands with a reduction, in order.
    busy: a command is under way, or results of one are still inside.
    refused: what `command` shows cannot be done (whether it is valid or not).
    error: a refused command was seen since reset.
    """

    def __init__(self, lanes: int, max_length: int = 8192):
        if not isinstance(lanes, int) or not 1 <= lanes <= 64 or lanes & (lanes - 1):
            raise ValueError(f"lanes must be a power of two from 1 to 64, not {lanes!r}")
        if not isinstance(max_length, int) or max_length < lanes or max_length & (max_length - 1) or max_length > 32768:
            raise ValueError(f"max_length must be a power of two from {lanes} (lanes) to 32768, not {max_length!r}")
        self.lanes, self.max_length = lanes, max_length
        beat = stream.Signature(data.ArrayLayout(unsigned(32), lanes))
        super().__init__(
            {
                "command": In(stream.Signature(EngineCommand)),
                **{name: In(beat) for name in STREAMS},
                "result": Out(stream.Signature(result_layout(lanes))),
                "reduced": Out(stream.Signature(unsigned(32))),
                "busy": Out(1),
                "refused": Out(1),
                "error": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.results = results = StreamFifo(result_layout(self.lanes), 2)
        m.submodules.reductions = reductions = StreamFifo(unsigned(32), 2)
        wiring.connect(m, results.o, wiring.flipped(self.result))
        wiring.connect(m, reductions.o, wiring.flipped(self.reduced))
        enable = Signal()
        m.d.comb += enable.eq(results.i.ready & reductions.i.ready)

        walk = _Walk()
        beat = self._issue(m, enable, walk)
        lane_operands, active = self._operands(m, enable, walk)

        # One register between the streams and the lanes.
        issue = delay(m, enable, beat, 1, "issue")
        active = delay(m, enable, active, 1, "active")
        at_middle = data.View(_Issue, delay(m, enable, issue, Lane.middle_latency, "at_middle"))
        active_at_middle = delay(m, enable, active, Lane.middle_latency, "active_at_middle")
        rest = Lane.latency - Lane.middle_latency
        at_end = data.View(_Issue, delay(m, enable, at_middle, rest, "at_end"))
        keep = delay(m, enable, active_at_middle, rest, "keep")

        m.submodules.reducer = reducer = Reducer(self.lanes, self.max_length // self.lanes)
        for index in range(self.lanes):
            m.submodules[f"lane_{index}"] = lane = once(Lane(), "vector_lane")
            m.d.comb += [
                lane.enable.eq(enable),
                lane.operands.eq(lane_operands[index]),
                reducer.values[index].eq(lane.result.middle),
                results.i.payload.elements[index].eq(lane.result.result),
            ]
        m.d.comb += [
            reducer.enable.eq(enable),
            reducer.valid_in.eq(at_middle.valid & (at_middle.reduce != Reduce.NONE)),
            reducer.active.eq(active_at_middle),
            reducer.reduce.eq(at_middle.reduce),
            reducer.last.eq(at_middle.last),
            results.i.valid.eq(enable & at_end.valid & at_end.write),
            results.i.payload.keep.eq(keep),
            reductions.i.valid.eq(enable & reducer.valid_out),
            reductions.i.payload.eq(reducer.result),
        ]
        self._watch(m, enable, beat, reducer.latency)
        return m

    def _issue(self, m: Module, enable: Value, walk: _Walk) -> Signal:
        """Walks over the command's beats. Returns the beat of this cycle."""
        command = self.command.payload
        row, column = walk.row, walk.column
        beat = Signal(_Issue)
        within = Signal(8)  # rows since the mask moved
        row_end, command_end = Signal(), Signal()
        refused = self.refused
        ready = Signal(len(STREAMS))
        modes = [command.modes[i] for i in range(len(STREAMS))]
        m.d.comb += [
            refused.eq(refuses(command, self.max_length)),
            row_end.eq(column + self.lanes >= command.length),
            command_end.eq(row_end & (row + 1 == command.rows)),
            ready.eq(Cat((modes[i] == StreamMode.OFF) | getattr(self, s).valid for i, s in enumerate(STREAMS))),
            beat.valid.eq(self.command.valid & ~refused & ready.all()),
            beat.write.eq(command.write),
            beat.reduce.eq(command.reduce),
            beat.last.eq(row_end),
            self.command.ready.eq(refused | (enable & beat.valid & command_end)),
        ]
        beat_of_rows_end = (row & (self.lanes - 1)) == self.lanes - 1
        for index, name in enumerate(STREAMS):
            taken = (modes[index] == StreamMode.BEAT) | (
                (modes[index] == StreamMode.ROW) & row_end & (beat_of_rows_end | command_end)
            )
            m.d.comb += getattr(self, name).ready.eq(enable & beat.valid & taken)
        with m.If(enable & beat.valid):
            m.d.sync += column.eq(column + self.lanes)
            with m.If(row_end):
                m.d.sync += [column.eq(0), row.eq(row + 1), within.eq(within + 1)]
                with m.If((command.mask_group != 0) & (within + 1 == command.mask_group)):
                    m.d.sync += [within.eq(0), walk.moved.eq(walk.moved + 1)]
            with m.If(command_end):
                m.d.sync += [row.eq(0), within.eq(0), walk.moved.eq(0)]
        with m.If(self.command.valid & refused):
            m.d.sync += self.error.eq(1)
        return beat

    def _operands(self, m: Module, enable: Value, walk: _Walk) -> tuple[list[Value], Value]:
        """Operands of every lane, registered, and which lanes have an element (not registered)."""
        command = self.command.payload
        low, high = Signal(signed(19)), Signal(signed(19))
        m.d.comb += [low.eq(command.mask_low + walk.moved), high.eq(command.mask_high + walk.moved)]
        of_row = [Signal(32, name=f"row_{name}") for name in STREAMS]
        for index, name in enumerate(STREAMS):
            beat = getattr(self, name).payload.as_value()
            m.d.comb += of_row[index].eq(beat.word_select(walk.row[: self.lanes.bit_length() - 1], 32))
        operands, active = [], Signal(self.lanes)
        for lane in range(self.lanes):
            m.submodules[f"select_{lane}"] = select = once(OperandSelect(), "vector_operand_select")
            place = Signal(signed(18), name=f"place_{lane}")
            m.d.comb += [
                place.eq(walk.column + lane),
                active[lane].eq(place < command.length),
                select.enable.eq(enable),
                select.command.eq(command),
                select.hidden.eq(command.mask & ((place < low) | (place >= high))),
            ]
            for index, name in enumerate(STREAMS):
                by_row = command.modes[index] == StreamMode.ROW
                m.d.comb += select.elements[index].eq(Mux(by_row, of_row[index], getattr(self, name).payload[lane]))
            operands.append(select.operands)
        return operands, active

    def _watch(self, m: Module, enable: Value, beat: Signal, reduce_latency: int) -> None:
        """busy: a counter that runs from the last issued beat until everything has left."""
        whole = 1 + Lane.latency + reduce_latency
        left = Signal(range(whole + 1))
        with m.If(enable):
            with m.If(beat.valid):
                m.d.sync += left.eq(whole)
            with m.Elif(left != 0):
                m.d.sync += left.eq(left - 1)
        m.d.comb += self.busy.eq(self.command.valid | (left != 0) | self.result.valid | self.reduced.valid)
