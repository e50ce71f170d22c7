"""The vector unit's part of attention: which commands it runs, in which order, on which places of its memory."""

from dataclasses import dataclass

from amaranth.hdl import Module, Mux, Signal, Value, ValueLike
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.fifo import StreamFifo
from hw.tile.config import LANES
from hw.vector.float32 import NEGATIVE_INFINITY
from hw.vector.isa import Combine, Function, Reduce, Source, StreamMode
from hw.vector.kv import LEAF, AttentionCommand
from hw.vector.unit import UnitCommand

__all__ = ["AttentionProgram", "MemoryMap"]

LANDING = 4
TEMPORARY = LANDING  # two places
LEVEL = TEMPORARY + 1  # level k is at LEVEL + k, k at least 1; level 0 stays where it landed


@dataclass(frozen=True)
class MemoryMap:
    """Where attention keeps what in the vector memory, in beats.

    Scores of two leaves; two factors of a merge; two slots of sink logits; then partial results (maximum, sum, output):
    four in which leaves land, two temporary ones, and one for each level of the tree.
    """

    max_rows: int
    max_value_groups: int
    levels: int

    @property
    def row_beats(self) -> int:
        """Beats of one number for each row."""
        return -(-self.max_rows // LANES)

    @property
    def partials(self) -> int:
        return 2 * self.max_rows * (LEAF // LANES) + 4 * self.row_beats

    @property
    def partial_beats(self) -> int:
        return 2 * self.row_beats + self.max_rows * self.max_value_groups * (32 // LANES)

    @property
    def depth(self) -> int:
        return self.partials + (LEVEL + 1 + self.levels) * self.partial_beats

    def scores(self, parity: ValueLike) -> Value:
        return Mux(parity, self.max_rows * (LEAF // LANES), 0)

    def factor(self, which: int) -> int:
        """Beat of the factor of the left (0) or right (1) side of a merge."""
        return 2 * self.max_rows * (LEAF // LANES) + which * self.row_beats

    def sinks(self, slot: ValueLike) -> Value | int:
        """Beat of the sink logits of slot 0 or 1, one for each row, base 2."""
        return self.factor(2) + slot * self.row_beats

    def maximum(self, index: Value) -> Value:
        return self.partials + index * self.partial_beats

    def total(self, index: Value) -> Value:
        return self.partials + self.row_beats + index * self.partial_beats

    def output(self, index: Value) -> Value:
        return self.partials + 2 * self.row_beats + index * self.partial_beats


class AttentionProgram(wiring.Component):
    """Commands for the vector unit: softmax of each leaf as its scores come, merges as outputs come, then the end.

    Softmax of leaf j + 1 comes before the merge of leaf j, so that the array does not wait. A leaf whose number has a
    one in bit k is merged at level k; where the left side was not seen (a window begins after it), the constants of an
    empty side stand in for it. The functions are those of `golden.vector`: `softmax_leaf`, `merge`, `finish`.

    Interface attributes
    --------------------
    commands: of attention, in order; command: the one that is under way.
    to_unit: for the vector unit; unit_done: it has done one; unit_idle: all results are written.
    scores_ready, output_ready: pulses: a leaf's scores, a leaf's output, are in the memory.
    scales_start, leaf: a pulse: the value scales of this leaf are needed.
    finishing: results are the final rows.
    busy: a command is under way or waits.
    """

    def __init__(self, map: MemoryMap):
        self.map = map
        super().__init__(
            {
                "commands": In(stream.Signature(AttentionCommand)),
                "command": Out(AttentionCommand),
                "to_unit": Out(stream.Signature(UnitCommand)),
                "unit_done": In(1),
                "unit_idle": In(1),
                "scores_ready": In(1),
                "output_ready": In(1),
                "scales_start": Out(1),
                "leaf": Out(10),
                "finishing": Out(1),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.queue = queue = StreamFifo(AttentionCommand, 2)
        wiring.connect(m, wiring.flipped(self.commands), queue.i)
        m.d.comb += [self.command.eq(queue.o.payload), self.busy.eq(queue.o.valid)]
        scores, outputs = Signal(3), Signal(3)
        use_scores, use_output = Signal(), Signal()
        m.d.sync += [
            scores.eq(scores + self.scores_ready - use_scores),
            outputs.eq(outputs + self.output_ready - use_output),
        ]
        merged = Signal(10)  # the next leaf to merge
        state = _Merge(self.map.levels)
        with m.FSM():
            with m.State("IDLE"):
                with m.If(queue.o.valid):
                    m.d.sync += [self.leaf.eq(self.command.first_leaf), merged.eq(self.command.first_leaf)]
                    m.d.sync += [state.valid.eq(0), state.temporary.eq(0)]
                    m.next = "SCORES"
            with m.State("SCORES"):
                with m.If(scores != 0):
                    m.d.comb += use_scores.eq(1)
                    m.next = "MAXIMUM"
            self._softmax_states(m)
            with m.State("OUTPUT"):
                with m.If(outputs != 0):
                    m.d.comb += use_output.eq(1)
                    m.d.sync += [state.current.eq(merged[:2]), state.level.eq(0), state.flushing.eq(0)]
                    m.next = "DECIDE"
            self._tree_states(m, state, merged)
            self._flush_state(m, state)
            self._merge_states(m, state)
            with m.State("SETTLE"):
                with m.If(self.unit_idle):
                    m.next = "INVERSE"
            self._step(m, "INVERSE", self._inverse, "FINISH", state)
            self._step(m, "FINISH", self._finish, "END", state)
            with m.State("END"):
                m.d.comb += queue.o.ready.eq(1)
                m.d.sync += state.sink_done.eq(0)
                m.next = "IDLE"
        return m

    def _softmax_states(self, m: Module) -> None:
        """Maximum and weights of a leaf; after the first leaf's come the second's, then merges take turns."""
        self._step(m, "MAXIMUM", self._maximum, "WEIGHTS_START")
        with m.State("WEIGHTS_START"):
            m.d.comb += self.scales_start.eq(1)
            m.next = "WEIGHTS"
        self._step(m, "WEIGHTS", self._weights, "AFTER_WEIGHTS")
        with m.State("AFTER_WEIGHTS"):
            with m.If((self.leaf == self.command.first_leaf) & (self.leaf != self.command.last_leaf)):
                m.d.sync += self.leaf.eq(self.leaf + 1)
                m.next = "SCORES"
            with m.Else():
                m.next = "OUTPUT"

    def _tree_states(self, m: Module, state: "_Merge", merged: Signal) -> None:
        """A leaf's way up the tree: merged where its number has a one, kept at the first level where it has a zero."""
        last = self.command.last_leaf
        with m.State("DECIDE"):
            with m.If(merged.bit_select(state.level, 1)):
                m.d.sync += state.left_empty.eq(~state.valid.bit_select(state.level, 1))
                m.d.sync += [state.left.eq(state.place), state.sink.eq(0)]
                with m.If(merged.bit_select(state.level + 1, 1)):
                    m.d.sync += [state.target.eq(TEMPORARY + state.temporary), state.temporary.eq(~state.temporary)]
                with m.Else():
                    m.d.sync += state.target.eq(LEVEL + 1 + state.level)
                m.next = "TOP"
            with m.Else():
                m.d.sync += [state.valid.bit_select(state.level, 1).eq(1), merged.eq(merged + 1)]
                with m.If(state.level == 0):
                    m.d.sync += state.landed.eq(state.current)
                m.next = "NEXT"
        with m.State("NEXT"):
            with m.If(merged > last):
                m.d.sync += [state.level.eq(0), state.flushing.eq(1), state.have.eq(0)]
                m.next = "FLUSH"
            with m.Elif(self.leaf != last):
                m.d.sync += self.leaf.eq(self.leaf + 1)
                m.next = "SCORES"
            with m.Else():
                m.next = "OUTPUT"

    def _flush_state(self, m: Module, state: "_Merge") -> None:
        """After the last leaf: what is left at the levels, from the lowest up, then the sink."""
        with m.State("FLUSH"):
            with m.If(state.level > self.map.levels):
                m.d.sync += [state.sink.eq(1), state.left.eq(state.current), state.left_empty.eq(0)]
                m.d.sync += state.target.eq(TEMPORARY + state.temporary)
                m.next = "SETTLE"
                with m.If(self.command.sink & ~state.sink_done):
                    m.next = "TOP"
            with m.Elif(state.valid.bit_select(state.level, 1)):
                m.d.sync += [state.have.eq(1), state.current.eq(state.place), state.level.eq(state.level + 1)]
                with m.If(state.have):
                    m.d.sync += [state.current.eq(state.current), state.level.eq(state.level)]
                    m.d.sync += [state.left.eq(state.place), state.left_empty.eq(0), state.sink.eq(0)]
                    m.d.sync += [state.target.eq(TEMPORARY + state.temporary), state.temporary.eq(~state.temporary)]
                    m.next = "TOP"
            with m.Else():
                m.d.sync += state.level.eq(state.level + 1)

    def _merge_states(self, m: Module, state: "_Merge") -> None:
        """One merge: five commands, then on to where it came from."""
        for name, step, following in (
            ("TOP", self._top, "LEFT"),
            ("LEFT", self._left, "RIGHT"),
            ("RIGHT", self._right, "TOTAL"),
            ("TOTAL", self._total, "MERGED_OUTPUT"),
            ("MERGED_OUTPUT", self._output, "MERGED"),
        ):
            self._step(m, name, step, following, state)
        with m.State("MERGED"):
            m.d.sync += [state.current.eq(state.target), state.level.eq(state.level + 1)]
            m.next = "DECIDE"
            with m.If(~state.flushing):
                m.d.sync += state.valid.bit_select(state.level, 1).eq(0)
            with m.Else():
                m.next = "FLUSH"
                with m.If(state.sink):
                    m.d.sync += [state.sink_done.eq(1), state.level.eq(state.level)]

    def _step(self, m: Module, name: str, build: object, following: str, *arguments: object) -> None:
        """A state in which one command is offered until the unit has done it."""
        with m.State(name):
            m.d.comb += self.to_unit.valid.eq(1)
            build(m, *arguments)
            with m.If(self.unit_done):
                m.next = following

    def _shape(self, m: Module, rows: ValueLike, length: ValueLike) -> None:
        m.d.comb += [self.to_unit.payload.engine.rows.eq(rows), self.to_unit.payload.engine.length.eq(length)]

    def _operands(self, m: Module, **sources: Source) -> None:
        """Sources of x, y, z, w, v; the identities where none is given."""
        operands = self.to_unit.payload.engine.operands
        chosen = {"x": Source.A, "y": Source.ONE, "z": Source.NEGATIVE_ZERO, "w": Source.ONE, "v": Source.ONE} | sources
        m.d.comb += [getattr(operands, name).eq(source) for name, source in chosen.items()]

    def _stream(
        self, m: Module, index: int, address: ValueLike, stride: ValueLike = 0, mode: StreamMode = StreamMode.BEAT
    ) -> None:
        place = self.to_unit.payload.operands[index]
        m.d.comb += [
            self.to_unit.payload.engine.modes[index].eq(mode),
            place.address.eq(address),
            place.stride.eq(stride),
        ]

    def _to(self, m: Module, address: ValueLike, stride: ValueLike = 0) -> None:
        result = self.to_unit.payload.result
        m.d.comb += [
            self.to_unit.payload.engine.write.eq(1), result.address.eq(address), result.stride.eq(stride),
        ]  # fmt: skip

    def _early(self, m: Module) -> None:
        """What follows this command does not read its results before a command that is not early has ended."""
        m.d.comb += self.to_unit.payload.early.eq(1)

    def _mask(self, m: Module) -> None:
        engine, command = self.to_unit.payload.engine, self.command
        high = Signal.like(engine.mask_high)
        m.d.comb += [
            high.eq(command.position + 1 - (self.leaf << 7)),
            engine.mask.eq(1),
            engine.mask_high.eq(high),
            engine.mask_low.eq(Mux(command.window == 0, -(1 << 17), high - command.window)),
            engine.mask_group.eq(command.group),
        ]

    def _scores(self, m: Module) -> None:
        self._stream(m, 0, self.map.scores(self.leaf[0]), LEAF // LANES)
        self._shape(m, self.command.rows, LEAF)
        self._mask(m)

    def _maximum(self, m: Module) -> None:
        engine = self.to_unit.payload.engine
        self._scores(m)
        self._operands(m)
        m.d.comb += [
            engine.function.eq(Function.NONE),
            engine.reduce.eq(Reduce.MAXIMUM),
            self.to_unit.payload.reduced.eq(self.map.maximum(self.leaf[:2])),
        ]

    def _weights(self, m: Module) -> None:
        engine = self.to_unit.payload.engine
        self._early(m)
        self._scores(m)
        self._operands(m, z=Source.C, w=Source.MINUS_ONE, v=Source.B)
        self._stream(m, 1, 0)
        self._stream(m, 2, self.map.maximum(self.leaf[:2]), mode=StreamMode.ROW)
        self._to(m, 0)
        m.d.comb += [
            self.to_unit.payload.operands[1].external.eq(1),
            self.to_unit.payload.result.external.eq(1),
            engine.combine.eq(Combine.DIFFERENCE),
            engine.function.eq(Function.EXP2),
            engine.reduce.eq(Reduce.SUM),
            self.to_unit.payload.reduced.eq(self.map.total(self.leaf[:2])),
        ]

    def _right_maximum(self, state: "_Merge") -> Value:
        return Mux(state.sink, self.map.sinks(self.command.sink_slot), self.map.maximum(state.current))

    def _elementwise(self, m: Module, combine: Combine = Combine.ADD, function: Function = Function.NONE) -> None:
        self._shape(m, 1, self.command.rows)
        m.d.comb += [
            self.to_unit.payload.engine.combine.eq(combine),
            self.to_unit.payload.engine.function.eq(function),
            self.to_unit.payload.engine.immediates[0].eq(NEGATIVE_INFINITY),
        ]

    def _top(self, m: Module, state: "_Merge") -> None:
        self._elementwise(m, Combine.MAXIMUM)
        self._operands(m, z=Source.B)
        self._stream(m, 0, self.map.maximum(state.left))
        self._stream(m, 1, self._right_maximum(state))
        self._empty_left(m, state, Source.IMMEDIATE_0)
        self._to(m, self.map.maximum(state.target))

    def _empty_left(self, m: Module, state: "_Merge", source: Source) -> None:
        with m.If(state.left_empty):
            m.d.comb += self.to_unit.payload.engine.operands.x.eq(source)

    def _left(self, m: Module, state: "_Merge") -> None:
        self._early(m)
        self._elementwise(m, Combine.DIFFERENCE, Function.EXP2)
        self._operands(m, z=Source.B, w=Source.MINUS_ONE)
        self._stream(m, 0, self.map.maximum(state.left))
        self._stream(m, 1, self.map.maximum(state.target))
        self._empty_left(m, state, Source.IMMEDIATE_0)
        self._to(m, self.map.factor(0))

    def _right(self, m: Module, state: "_Merge") -> None:
        self._elementwise(m, Combine.DIFFERENCE, Function.EXP2)
        self._operands(m, z=Source.B, w=Source.MINUS_ONE)
        self._stream(m, 0, self._right_maximum(state))
        self._stream(m, 1, self.map.maximum(state.target))
        self._to(m, self.map.factor(1))

    def _joined(self, m: Module, state: "_Merge", sink: Source, mode: StreamMode) -> None:
        """left * factor + right * factor; an empty left side is zeros, a sink's right side is a constant."""
        self._operands(m, y=Source.B, z=Source.C, w=Source.D)
        self._empty_left(m, state, Source.ZERO)
        with m.If(state.sink):
            m.d.comb += self.to_unit.payload.engine.operands.z.eq(sink)
        self._stream(m, 1, self.map.factor(0), mode=mode)
        self._stream(m, 3, self.map.factor(1), mode=mode)

    def _total(self, m: Module, state: "_Merge") -> None:
        self._early(m)
        self._elementwise(m)
        self._joined(m, state, Source.ONE, StreamMode.BEAT)
        self._stream(m, 0, self.map.total(state.left))
        self._stream(m, 2, self.map.total(state.current))
        self._to(m, self.map.total(state.target))

    @property
    def _value_beats(self) -> Value:
        return self.command.value_groups * (32 // LANES)

    def _output(self, m: Module, state: "_Merge") -> None:
        self._early(m)
        self._elementwise(m)
        self._shape(m, self.command.rows, self.command.value_groups * 32)
        self._joined(m, state, Source.ZERO, StreamMode.ROW)
        self._stream(m, 0, self.map.output(state.left), self._value_beats)
        self._stream(m, 2, self.map.output(state.current), self._value_beats)
        self._to(m, self.map.output(state.target), self._value_beats)

    def _inverse(self, m: Module, state: "_Merge") -> None:
        self._elementwise(m, Combine.MAXIMUM, Function.RECIPROCAL)
        self._operands(m, z=Source.ONE)
        self._stream(m, 0, self.map.total(state.current))
        self._to(m, self.map.factor(0))

    def _finish(self, m: Module, state: "_Merge") -> None:
        self._elementwise(m)
        self._shape(m, self.command.rows, self.command.value_groups * 32)
        self._operands(m, y=Source.B, z=Source.ZERO)
        self._stream(m, 0, self.map.output(state.current), self._value_beats)
        self._stream(m, 1, self.map.factor(0), mode=StreamMode.ROW)
        self._to(m, 0)
        m.d.comb += [self.finishing.eq(1), self.to_unit.payload.result.external.eq(1)]


class _Merge:
    """Registers of the merge tree: what is held at which level, and the merge under way."""

    def __init__(self, levels: int):
        index = range(LEVEL + levels + 2)
        self.valid = Signal(levels + 2)
        self.landed = Signal(2)  # where level 0 landed
        self.level = Signal(range(levels + 3))
        self.current, self.left, self.target = (Signal(index, name=n) for n in ("current", "left", "target"))
        self.temporary, self.left_empty = Signal(), Signal()
        self.flushing, self.have, self.sink, self.sink_done = (
            Signal(name=n) for n in ("flushing", "have", "sink", "sink_done")
        )

    @property
    def place(self) -> Value:
        """Where the partial result of the current level is."""
        return Mux(self.level == 0, self.landed, LEVEL + self.level)
