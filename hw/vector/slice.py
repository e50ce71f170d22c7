"""The vector part of one array row: its scores, its partial results, and lanes that work on them."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from hw.emit import once
from hw.numerics.formats import FormatSet
from hw.numerics.quantise import Quantise
from hw.tile.config import LANES
from hw.tile.isa import Block
from hw.vector.float32 import MINUS_ONE, NEGATIVE_INFINITY, NEGATIVE_ZERO, ONE, maximum
from hw.vector.isa import Combine, Function, Reduce
from hw.vector.lane import Lane
from hw.vector.leaves import LANDINGS, LEAF, SEQUENCES, AttentionSize
from hw.vector.reduce import Reducer
from hw.vector.slice_control import Kind, SinkLogit, arrival_layout, issue_layout, needed_bits, sum_layout

__all__ = ["AttentionSlice"]


class AttentionSlice(wiring.Component):
    """Keeps a row's scores and partial results, and does with its lanes what `issue` says.

    All slices of a tile run in step: addresses and control come from outside, nothing ever waits.

    Parameters
    ----------
    size: the build.

    Interface attributes
    --------------------
    index: number of the array row.
    values, arrival: sums from the array, and what they are.
    issue: a beat of work; operate: the same one cycle later, middle: `Lane.middle_latency` cycles after that, late:
        `Lane.latency` cycles after that.
    scales: value scales of the beat in `operate`.
    summed: where the sum that the reducer has goes.
    sink_enable, sink: a sink logit.
    block_valid, block: 32 quantised softmax weights.
    row_address, row: a beat of the finished rows (pass, beat), one cycle later.
    """

    def __init__(self, size: AttentionSize):
        self.size = size
        self.formats = FormatSet(size.formats)
        self.reducer = Reducer(size.lanes, LEAF // size.lanes)
        issue = issue_layout(size)
        super().__init__(
            {
                "index": In(6),
                "values": In(data.ArrayLayout(32, size.tile.columns)),
                "arrival": In(arrival_layout(size)),
                "issue": In(issue),
                "operate": In(issue),
                "middle": In(issue),
                "late": In(issue),
                "scales": In(data.ArrayLayout(32, size.lanes)),
                "summed": In(sum_layout(size)),
                "sink_enable": In(1),
                "sink": In(SinkLogit),
                "block_valid": Out(1),
                "block": Out(Block),
                "row_address": In(range(size.passes * size.row_granules)),
                "row": Out(data.ArrayLayout(32, LANES)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        score, hidden = self._scores(m)
        left, right = self._partials(m)
        maximum_of, total_of = self._statistics(m)
        self._lanes(m, score, hidden, left, right, maximum_of, total_of)
        return m

    def _scores(self, m: Module) -> tuple[list[Value], list[Value]]:
        """Two leaves' scores, each with a bit that hides it, and the maximum of what is seen.

        Returns scores and hidden bits of the beat in `operate`.
        """
        size, arrival = self.size, self.arrival
        columns = size.tile.columns
        m.submodules.scores = scores = memory.Memory(
            shape=data.ArrayLayout(33, columns),
            depth=1 << (1 + len(arrival.pass_) + needed_bits(LEAF // columns)),
            init=[],
        )
        write, read = scores.write_port(), scores.read_port()
        words = needed_bits(LEAF // columns)
        high, low = Signal(signed(20)), Signal(signed(20))
        row = Signal(9)  # the row's position, counted from row 0's
        m.d.comb += [
            row.eq((arrival.product + self.index * arrival.reciprocal) >> 16),
            high.eq(arrival.origin + row),
            low.eq(Mux(arrival.window == 0, -(1 << 18), high - arrival.window)),
            write.en.eq(arrival.scores),
            write.addr.eq(Cat(arrival.word[:words], arrival.pass_, arrival.sequence[0])),
        ]
        seen = []
        for column in range(columns):
            hidden = Signal(name=f"hidden_{column}")
            m.d.comb += [
                hidden.eq((column < low) | (column >= high)),
                write.data[column].eq(Cat(self.values[column], hidden)),
            ]
            seen.append(Mux(hidden, Const(NEGATIVE_INFINITY, 32), self.values[column]))
        top = Signal(32)
        m.d.sync += top.eq(_largest(m, seen))
        self._running_maximum(m, top)

        issue, lanes = self.issue, size.lanes
        inner = (columns // lanes).bit_length() - 1
        m.d.comb += read.addr.eq(Cat(issue.beat[inner : inner + words], issue.pass_, issue.left.index[0]))
        beat = read.data.as_value()
        if inner:
            beat = beat.word_select(self.operate.beat[:inner], 33 * lanes)
        elements = [beat[33 * lane : 33 * lane + 33] for lane in range(lanes)]
        return [element[:32] for element in elements], [element[32] for element in elements]

    def _running_maximum(self, m: Module, top: Value) -> None:
        """A leaf's maximum of each row, taken as the scores come."""
        self._leaf_maximum = m.submodules.leaf_maximum = self._per_row(SEQUENCES)
        write, before = self._leaf_maximum.write_port(), self._leaf_maximum.read_port(domain="comb")
        arrived = Signal.like(self.arrival)
        m.d.sync += arrived.eq(self.arrival)
        address = Cat(arrived.pass_, arrived.sequence)
        first = arrived.word == 0
        m.d.comb += [
            before.addr.eq(address),
            write.addr.eq(address),
            write.en.eq(arrived.scores),
            write.data.eq(maximum(m, Mux(first, Const(NEGATIVE_INFINITY, 32), before.data), top, "running")),
        ]

    def _per_row(self, places: int) -> memory.Memory:
        """A number for each pass at each of some places."""
        return memory.Memory(shape=32, depth=1 << (len(self.arrival.pass_) + needed_bits(places)), init=[])

    def _partials(self, m: Module) -> tuple[list[Value], list[Value]]:
        """Outputs of leaves as they land, and merged ones. Returns left and right of the beat in `operate`."""
        size, arrival, issue = self.size, self.arrival, self.issue
        columns, lanes = size.tile.columns, size.lanes
        words, beats = needed_bits(size.value_size // columns), needed_bits(size.value_size // lanes)
        passes, inner = len(arrival.pass_), (columns // lanes).bit_length() - 1
        m.submodules.landing = landing = memory.Memory(
            shape=data.ArrayLayout(32, columns), depth=LANDINGS << (passes + words), init=[]
        )
        m.submodules.merged = merged = memory.Memory(
            shape=data.ArrayLayout(32, lanes), depth=1 << (needed_bits(size.held) + passes + beats), init=[]
        )
        land, keep = landing.write_port(), merged.write_port()
        self._keep = keep
        m.d.comb += [
            land.en.eq(arrival.outputs),
            land.addr.eq(Cat(arrival.word[:words], arrival.pass_, arrival.sequence[:2])),
            land.data.eq(self.values),
            keep.addr.eq(Cat(self.late.beat[:beats], self.late.pass_, self.late.target[: needed_bits(size.held)])),
            keep.en.eq(self.late.valid & (self.late.kind == Kind.COMBINE) & ~self.late.total),
        ]
        sides = []
        for name in ("left", "right"):
            place, held = issue[name], self.operate[name].held
            landed, kept = landing.read_port(), merged.read_port()
            m.d.comb += [
                landed.addr.eq(Cat(issue.beat[inner : inner + words], issue.pass_, place.index[:2])),
                kept.addr.eq(Cat(issue.beat[:beats], issue.pass_, place.index[: needed_bits(size.held)])),
            ]
            beat = landed.data.as_value()
            if inner:
                beat = beat.word_select(self.operate.beat[:inner], 32 * lanes)
            side = Signal(data.ArrayLayout(32, lanes), name=name)
            m.d.comb += side.as_value().eq(Mux(held, kept.data.as_value(), beat))
            sides.append([side[lane] for lane in range(lanes)])
        return sides[0], sides[1]

    def _statistics(self, m: Module) -> tuple[list[Value], list[Value]]:
        """Maximum and sum of every partial result. Returns both sides' maxima and sums in `operate`."""
        operate, late, summed = self.operate, self.late, self.summed
        held_bits = needed_bits(self.size.held)
        m.submodules.leaf_total = leaf_total = self._per_row(SEQUENCES)
        m.submodules.held_maximum = held_maximum = self._per_row(self.size.held)
        m.submodules.held_total = held_total = self._per_row(self.size.held)
        m.submodules.sinks = sinks = memory.Memory(shape=32, depth=2 << len(operate.pass_), init=[])
        from_reducer, from_merge, sink = leaf_total.write_port(), held_total.write_port(), sinks.write_port()
        logit = sinks.read_port(domain="comb")
        self._sum, self._total = from_reducer.data, from_merge.data
        m.d.comb += [
            from_reducer.addr.eq(Cat(summed.pass_, summed.sequence)),
            from_reducer.en.eq(summed.valid),
            from_merge.addr.eq(Cat(late.pass_, late.target[:held_bits])),
            from_merge.en.eq(late.valid & (late.kind == Kind.COMBINE) & late.total),
            sink.addr.eq(Cat(self.sink.pass_[: len(operate.pass_)], self.sink.slot)),
            sink.data.eq(self.sink.logit),
            sink.en.eq(self.sink_enable & (self.sink.slice == self.index)),
            logit.addr.eq(Cat(operate.pass_, operate.sink_slot)),
        ]

        def side(name: str, leaf: memory.Memory, held: memory.Memory) -> Value:
            place = operate[name]
            of_leaf, of_held = leaf.read_port(domain="comb"), held.read_port(domain="comb")
            m.d.comb += [
                of_leaf.addr.eq(Cat(operate.pass_, place.index[: needed_bits(SEQUENCES)])),
                of_held.addr.eq(Cat(operate.pass_, place.index[:held_bits])),
            ]
            return Mux(place.held, of_held.data, of_leaf.data)

        maxima = [side(name, self._leaf_maximum, held_maximum) for name in ("left", "right")]
        totals = [side(name, leaf_total, held_total) for name in ("left", "right")]
        maxima[0] = Mux(operate.left_empty, Const(NEGATIVE_INFINITY, 32), maxima[0])
        maxima[1] = Mux(operate.sink, logit.data, maxima[1])
        top, write = maximum(m, *maxima, "top"), held_maximum.write_port()
        m.d.comb += [
            write.addr.eq(Cat(operate.pass_, operate.target[:held_bits])),
            write.data.eq(top),
            write.en.eq(operate.valid & (operate.kind == Kind.FACTORS)),
        ]
        return [*maxima, top], totals

    def _lanes(self, m: Module, score, hidden, left, right, maximum_of, total_of) -> None:
        """Operands for the lanes, and where their results go."""
        size, operate, middle = self.size, self.operate, self.middle
        lanes = [once(Lane(), "vector_lane") for _ in range(size.lanes)]
        m.submodules.factors = factors = memory.Memory(
            shape=data.ArrayLayout(32, 2), depth=1 << len(operate.pass_), init=[]
        )
        keep_factors, factor = factors.write_port(), factors.read_port(domain="comb")
        m.d.comb += [
            keep_factors.addr.eq(middle.pass_),
            keep_factors.data[0].eq(lanes[0].result.middle),
            keep_factors.data[1].eq(lanes[1].result.middle),
            keep_factors.en.eq(middle.valid & ((middle.kind == Kind.FACTORS) | (middle.kind == Kind.INVERSE))),
            factor.addr.eq(operate.pass_),
        ]
        zero, one = Const(0, 32), Const(ONE, 32)
        for index, lane in enumerate(lanes):
            m.submodules[f"lane_{index}"] = lane
            given = lane.operands
            joined = [left[index], right[index]]
            if index == 0:
                joined = [Mux(operate.total, total, value) for total, value in zip(total_of, joined, strict=True)]
            sink_value = Mux(operate.total, one, zero)
            m.d.comb += [
                lane.enable.eq(1),
                given.y.eq(one), given.z.eq(Const(NEGATIVE_ZERO, 32)), given.w.eq(one), given.v.eq(one),
            ]  # fmt: skip
            with m.Switch(operate.kind):
                with m.Case(Kind.WEIGHTS):
                    m.d.comb += [
                        given.x.eq(score[index]), given.z.eq(maximum_of[0]), given.w.eq(MINUS_ONE),
                        given.v.eq(self.scales[index]), given.hidden.eq(hidden[index]),
                        given.combine.eq(Combine.DIFFERENCE), given.function.eq(Function.EXP2),
                    ]  # fmt: skip
                with m.Case(Kind.FACTORS):
                    m.d.comb += [
                        given.x.eq(maximum_of[min(index, 1)]), given.z.eq(maximum_of[2]), given.w.eq(MINUS_ONE),
                        given.combine.eq(Combine.DIFFERENCE), given.function.eq(Function.EXP2),
                    ]  # fmt: skip
                with m.Case(Kind.COMBINE):
                    m.d.comb += [
                        given.x.eq(Mux(operate.left_empty, zero, joined[0])), given.y.eq(factor.data[0]),
                        given.z.eq(Mux(operate.sink, sink_value, joined[1])), given.w.eq(factor.data[1]),
                        given.combine.eq(Combine.ADD), given.function.eq(Function.NONE),
                    ]  # fmt: skip
                with m.Case(Kind.INVERSE):
                    m.d.comb += [
                        given.x.eq(total_of[0]), given.z.eq(one),
                        given.combine.eq(Combine.MAXIMUM), given.function.eq(Function.RECIPROCAL),
                    ]  # fmt: skip
                with m.Case(Kind.FINISH):
                    m.d.comb += [
                        given.x.eq(left[index]), given.y.eq(factor.data[0]), given.z.eq(zero),
                        given.combine.eq(Combine.ADD), given.function.eq(Function.NONE),
                    ]  # fmt: skip
                with m.Case(Kind.EXPORT):
                    m.d.comb += [
                        given.x.eq(Mux(operate.total, (total_of, maximum_of)[index % 2][0], left[index])),
                        given.z.eq(zero), given.combine.eq(Combine.ADD), given.function.eq(Function.NONE),
                    ]  # fmt: skip
            m.d.comb += self._keep.data[index].eq(lane.result.result)
        m.d.comb += self._total.eq(lanes[0].result.result)
        self._softmax(m, [lane.result.middle for lane in lanes], [lane.result.result for lane in lanes])
        self._finished(m, Cat(lane.result.result for lane in lanes))

    def _softmax(self, m: Module, powers: list[Value], weights: list[Value]) -> None:
        """Sums of the powers; the weights through the quantiser, gathered to blocks."""
        size, middle, late = self.size, self.middle, self.late
        m.submodules.reducer = reducer = self.reducer
        m.submodules.quantise = quantise = Quantise(self.formats, size.lanes)
        m.d.comb += [
            reducer.enable.eq(1),
            reducer.valid_in.eq(middle.valid & (middle.kind == Kind.WEIGHTS)),
            reducer.values.as_value().eq(Cat(powers)),
            reducer.active.eq((1 << size.lanes) - 1),
            reducer.reduce.eq(Reduce.SUM),
            reducer.last.eq(middle.last),
            self._sum.eq(reducer.result),
            quantise.i.valid.eq(late.valid & (late.kind == Kind.WEIGHTS)),
            quantise.i.payload.values.as_value().eq(Cat(weights)),
            quantise.i.payload.format.eq(late.element),
            quantise.o.ready.eq(1),
        ]
        codes = quantise.o.payload.codes.as_value()
        gathered, beat = Signal(256), Signal(range(32 // size.lanes))
        with m.If(quantise.o.valid):
            m.d.sync += [gathered.eq(Cat(gathered[len(codes) :], codes)), beat.eq(beat + 1)]
        m.d.comb += [
            self.block_valid.eq(quantise.o.valid & (beat == 32 // size.lanes - 1)),
            self.block.elements.as_value().eq(Cat(gathered[len(codes) :], codes)),
            self.block.scale.eq(quantise.o.payload.scale),
        ]

    def _finished(self, m: Module, results: Value) -> None:
        """Finished rows, in beats of eight channels; sum and maximum of a partial one fill a beat."""
        size, late = self.size, self.late
        parts = LANES // size.lanes
        m.submodules.finished = finished = memory.Memory(
            shape=data.ArrayLayout(32 * size.lanes, parts), depth=size.passes * size.row_granules, init=[]
        )
        write, read = finished.write_port(granularity=1), finished.read_port()
        inner = parts.bit_length() - 1
        kept = late.valid & ((late.kind == Kind.FINISH) | (late.kind == Kind.EXPORT))
        m.d.comb += [
            write.addr.eq(late.pass_ * size.row_granules + late.beat[inner:]),
            write.data.as_value().eq(results.replicate(parts)),
            write.en.eq(Mux(kept, Mux(late.total, (1 << parts) - 1, Const(1, parts) << late.beat[:inner]), 0)),
            read.addr.eq(self.row_address),
            self.row.as_value().eq(read.data.as_value()),
        ]


def _largest(m: Module, values: list[Value], depth: int = 0) -> Value:
    """FP32 maximum of values, over a tree."""
    if len(values) == 1:
        return values[0]
    joined = [
        maximum(m, a, b, f"top_{depth}_{i}") for i, (a, b) in enumerate(zip(values[::2], values[1::2], strict=True))
    ]
    return _largest(m, joined, depth + 1)
