"""The merge tree: which partial results are joined in which order, and where they are kept."""

from amaranth.hdl import Const, Module, Mux, Signal, Value, unsigned
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.vector.leaves import LANDINGS, AttentionSize, LeafItem
from hw.vector.schedule import Operation
from hw.vector.slice_control import Kind, Place

__all__ = ["MergeSequencer"]


class MergeSequencer(wiring.Component):
    """Walks leaves up the tree of neighbours, and sends off a command's rows behind its last leaf.

    A partial result is known by its place, and a level of the tree is a reference: nothing is moved. A leaf whose
    number has a one in bit k is joined at level k with what the level refers to; where it refers to nothing (a window
    begins behind it) the partial goes up as it is. Only at level 0 it is joined with nothing, so that a leaf's landing
    is free again at the latest with the leaf behind it. The functions are `golden.vector.merge` and `finish`
    (of a partial command `export`).

    Parameters
    ----------
    size: the build.

    Interface attributes
    --------------------
    items: leaves whose output has come, in order.
    operations: for the slices; merged: the one that was taken last has been written.
    released: leaves whose landing is free again, in this cycle.
    output_free: the finished rows' memory can be written; finished: it was, a pulse; item: of this command.
    """

    def __init__(self, size: AttentionSize):
        self.size = size
        super().__init__(
            {
                "items": In(stream.Signature(LeafItem)),
                "operations": Out(stream.Signature(Operation)),
                "merged": In(1),
                "released": Out(2),
                "output_free": In(1),
                "finished": Out(1),
                "item": Out(LeafItem),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        item, levels = self.item, self.size.levels
        used, sunk = Signal(self.size.held), Signal()  # held places; the sink has been joined
        tree = _Tree(levels)
        m.d.comb += self.item.eq(self.items.payload)
        with m.FSM():
            with m.State("LEAF"):
                with m.If(self.items.valid):
                    m.d.sync += [tree.current.held.eq(0), tree.current.index.eq(item.sequence), tree.level.eq(0)]
                    m.next = "WALK"
            with m.State("WALK"):
                self._walk(m, tree)
            with m.State("FLUSH"):
                self._flush(m, tree)
            with m.State("SINK"):
                m.next = "INVERSE"
                with m.If(item.command.partial):
                    m.next = "EXPORT"
                with m.If(item.command.sink & ~sunk):
                    m.d.sync += [sunk.eq(1), tree.sink.eq(1), tree.left.eq(tree.current), tree.left_empty.eq(0)]
                    m.next = "FACTORS"
            self._operation(m, "FACTORS", Kind.FACTORS, "COMBINE", tree, used)
            self._operation(m, "COMBINE", Kind.COMBINE, "JOINED", tree, used)
            with m.State("JOINED"):
                self._joined(m, tree, used)
            self._operation(m, "INVERSE", Kind.INVERSE, "FINISH", tree, used)
            self._operation(m, "FINISH", Kind.FINISH, "END", tree, used, self.output_free)
            self._operation(m, "EXPORT", Kind.EXPORT, "END", tree, used, self.output_free)
            with m.State("END"):
                m.d.comb += [self.finished.eq(1), self.items.ready.eq(1), self.released.eq(~tree.current.held)]
                m.d.sync += [used.eq(0), sunk.eq(0), tree.sink.eq(0)]
                m.next = "LEAF"
        return m

    def _walk(self, m: Module, tree: "_Tree") -> None:
        """One level up: join, pass, or stay there."""
        item = self.item
        with m.If(item.leaf.bit_select(tree.level, 1) & (tree.occupied | (tree.level == 0))):
            m.d.sync += [
                tree.left.eq(tree.place),
                tree.right.eq(tree.current),
                tree.left_empty.eq(~tree.occupied),
                tree.flushing.eq(0),
                tree.valid.bit_select(tree.level, 1).eq(0),
            ]
            m.next = "FACTORS"
        with m.Elif(item.leaf.bit_select(tree.level, 1)):
            m.d.sync += tree.level.eq(tree.level + 1)
        with m.Else():
            m.d.sync += [tree.valid.bit_select(tree.level, 1).eq(1), tree.flushing.eq(0)]
            for level, place in enumerate(tree.places):
                with m.If(tree.level == level):
                    m.d.sync += place.eq(tree.current)
            with m.If(item.last):
                m.d.sync += [tree.level.eq(0), tree.flushing.eq(1), tree.have.eq(0)]
                m.next = "FLUSH"
            with m.Else():
                m.d.comb += self.items.ready.eq(1)
                m.next = "LEAF"

    def _flush(self, m: Module, tree: "_Tree") -> None:
        """After the last leaf: what the levels refer to, from the lowest up."""
        with m.If(tree.level > self.size.levels):
            m.next = "SINK"
        with m.Elif(tree.occupied):
            m.d.sync += [tree.valid.bit_select(tree.level, 1).eq(0), tree.have.eq(1), tree.level.eq(tree.level + 1)]
            with m.If(tree.have):
                m.d.sync += [tree.left.eq(tree.place), tree.right.eq(tree.current), tree.left_empty.eq(0)]
                m.next = "FACTORS"
            with m.Else():
                m.d.sync += tree.current.eq(tree.place)
        with m.Else():
            m.d.sync += tree.level.eq(tree.level + 1)

    def _joined(self, m: Module, tree: "_Tree", used: Signal) -> None:
        """Both sides' places are free, the result's is not."""
        target = _lowest_clear(used)
        kept = used | (1 << target)
        for side, there in ((tree.left, ~tree.left_empty), (tree.right, ~tree.sink)):
            kept = kept & ~Mux(side.held & there, Const(1) << side.index, 0)
        of_leaf = [~tree.left.held & ~tree.left_empty, ~tree.right.held & ~tree.sink]
        m.d.comb += self.released.eq(of_leaf[0] + of_leaf[1])
        m.d.sync += [used.eq(kept), tree.current.held.eq(1), tree.current.index.eq(target)]
        with m.If(tree.sink):
            m.next = "SINK"
        with m.Elif(tree.flushing):
            m.next = "FLUSH"
        with m.Else():
            m.d.sync += tree.level.eq(tree.level + 1)
            m.next = "WALK"

    def _operation(
        self, m: Module, name: str, kind: Kind, following: str, tree: "_Tree", used: Signal, allowed: Value = Const(1)
    ) -> None:
        """A state in which an operation is offered, and one in which its results are waited for."""
        size, command = self.size, self.item.command
        work = self.operations.payload
        with m.State(name):
            m.d.comb += [
                self.operations.valid.eq(allowed),
                work.kind.eq(kind),
                work.passes.eq((command.rows + size.tile.rows - 1) // size.tile.rows),
                work.beats.eq(1),
                work.left.eq(tree.left),
                work.right.eq(tree.right),
                work.left_empty.eq(tree.left_empty),
                work.sink.eq(tree.sink),
                work.sink_slot.eq(command.sink_slot),
                work.target.eq(_lowest_clear(used)),
            ]
            if kind in (Kind.INVERSE, Kind.FINISH, Kind.EXPORT):
                m.d.comb += [work.left.eq(tree.current), work.left_empty.eq(0), work.sink.eq(0)]
            if kind in (Kind.COMBINE, Kind.FINISH, Kind.EXPORT):
                m.d.comb += work.beats.eq(command.value_groups * (32 // size.lanes))
            with m.If(self.operations.ready & allowed):
                m.next = f"{name}_WRITTEN"
        with m.State(f"{name}_WRITTEN"):
            with m.If(self.merged):
                m.next = following


class _Tree:
    """Registers of the walk: what each level refers to, and the join under way."""

    def __init__(self, levels: int):
        self.places = [Signal(Place, name=f"place_{level}") for level in range(levels + 1)]
        self.valid = Signal(levels + 1)
        self.level = Signal(range(levels + 2))
        self.current, self.left, self.right = (Signal(Place, name=name) for name in ("current", "left", "right"))
        self.left_empty, self.sink, self.flushing, self.have = (
            Signal(name=name) for name in ("left_empty", "sink", "flushing", "have")
        )

    @property
    def occupied(self) -> Value:
        """The level refers to something."""
        return self.valid.bit_select(self.level, 1)

    @property
    def place(self) -> Value:
        """What the level refers to."""
        chosen = self.places[0].as_value()
        for level, place in enumerate(self.places):
            chosen = Mux(self.level == level, place.as_value(), chosen)
        return chosen


def _lowest_clear(bits: Signal) -> Value:
    """Index of the lowest bit that is zero."""
    found = Const(len(bits) - 1, unsigned(4))
    for index in reversed(range(len(bits))):
        found = Mux(bits[index], found, index)
    return found


assert LANDINGS >= 3, "a leaf that waits for its neighbour, the neighbour, and one that comes"
