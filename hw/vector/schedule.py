"""Which work the slices do in which cycle."""

from amaranth.hdl import Cat, Module, Mux, Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.numerics.formats import ElementFormat
from hw.vector.lane import Lane
from hw.vector.leaves import LEAF, AttentionSize
from hw.vector.pipeline import delay
from hw.vector.slice_control import Kind, Place, issue_layout, sum_layout

__all__ = ["Operation", "SliceScheduler"]


class Operation(data.Struct):
    """Work on `passes` rows of every slice, `beats` beats each (COMBINE and EXPORT have one more, for the sums)."""

    kind: Kind
    passes: unsigned(8)
    beats: unsigned(9)
    left: Place
    right: Place
    left_empty: unsigned(1)
    sink: unsigned(1)
    sink_slot: unsigned(1)
    target: unsigned(4)
    element: ElementFormat


class SliceScheduler(wiring.Component):
    """Takes operations of two kinds of user, softmax before merges, and gives the slices a beat a cycle.

    An operation that has begun is finished before the next begins, without a gap between them. Nothing waits: what an
    operation reads must be there when it is offered.

    Parameters
    ----------
    size: the build.
    sum_latency: of a slice's reducer.

    Interface attributes
    --------------------
    softmax, merge: operations; one is taken with its last beat.
    merged: a pulse: the results of the merge's operation that was taken last are written.
    issue, operate, middle, late, summed: for the slices.
    busy: an operation of a kind is under way (a bit each: softmax, merge).
    """

    def __init__(self, size: AttentionSize, sum_latency: int):
        self.size, self.sum_latency = size, sum_latency
        issue = issue_layout(size)
        super().__init__(
            {
                "softmax": In(stream.Signature(Operation)),
                "merge": In(stream.Signature(Operation)),
                "merged": Out(1),
                **{name: Out(issue) for name in ("issue", "operate", "middle", "late")},
                "summed": Out(sum_layout(size)),
                "busy": Out(2),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        issue = self.issue
        running, owner, chosen = Signal(), Signal(), Signal()  # 1: the merge's
        pass_, beat = Signal(8), Signal(9)
        m.d.comb += [
            chosen.eq(Mux(running, owner, ~self.softmax.valid)),
            issue.valid.eq(self.softmax.valid | self.merge.valid),
            self.busy.eq(Cat(issue.valid & ~chosen, issue.valid & chosen)),
        ]
        work = Signal(Operation)
        m.d.comb += work.eq(Mux(chosen, self.merge.payload, self.softmax.payload))
        beats, pass_last, end = Signal(10), Signal(), Signal()
        with_sums = (work.kind == Kind.COMBINE) | (work.kind == Kind.EXPORT)
        m.d.comb += [
            beats.eq(work.beats + with_sums),
            issue.last.eq(beat + 1 == beats),
            pass_last.eq(pass_ + 1 == work.passes),
            end.eq(issue.valid & issue.last & pass_last),
            issue.total.eq(with_sums & issue.last),
            issue.pass_.eq(pass_),
            issue.beat.eq(beat),
            self.merge.ready.eq(end & chosen),
            self.softmax.ready.eq(end & ~chosen),
            *(issue[name].eq(work[name]) for name in
              ("kind", "left", "right", "left_empty", "sink", "sink_slot", "target", "element")),
        ]  # fmt: skip
        m.d.sync += [running.eq(issue.valid & ~end), owner.eq(chosen)]
        with m.If(issue.valid):
            m.d.sync += beat.eq(beat + 1)
            with m.If(issue.last):
                m.d.sync += [beat.eq(0), pass_.eq(Mux(pass_last, 0, pass_ + 1))]
        self._pipeline(m, end & chosen)
        return m

    def _pipeline(self, m: Module, merge_end) -> None:
        """The beat as it goes through the slices."""
        m.d.comb += [
            self.operate.eq(delay(m, 1, self.issue, 1, "operate_line")),
            self.middle.eq(delay(m, 1, self.operate, Lane.middle_latency, "middle_line")),
            self.late.eq(delay(m, 1, self.middle, Lane.latency - Lane.middle_latency, "late_line")),
            # One cycle after the last beat is at the end, what it wrote can be read.
            self.merged.eq(delay(m, 1, merge_end, 2 + Lane.latency, "merged_line")),
        ]
        last = Signal(sum_layout(self.size))
        m.d.comb += [
            last.valid.eq(self.middle.valid & self.middle.last & (self.middle.kind == Kind.WEIGHTS)),
            last.pass_.eq(self.middle.pass_),
            last.sequence.eq(self.middle.left.index),
            self.summed.eq(delay(m, 1, last, self.sum_latency, "sum_line")),
        ]


assert LEAF <= 1 << 8, "beats of a row fit the operation's field"
