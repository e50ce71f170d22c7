"""Reduction of a row over the fixed tree of neighbours, whatever the number of lanes."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw.emit import once
from hw.vector.float32 import NEGATIVE_INFINITY, NEGATIVE_ZERO, maximum
from hw.vector.fp32_add import Fp32Add
from hw.vector.isa import Reduce
from hw.vector.pipeline import FixedLatency, delay

__all__ = ["Partial", "ReduceLevel", "ReduceNode", "Reducer", "identity"]


class NodeOperands(data.Struct):
    """Two values, and how they are joined."""

    a: unsigned(32)
    b: unsigned(32)
    reduce: Reduce


class Partial(data.Struct):
    """A value of a row under way. `last`: nothing of its row comes after it."""

    value: unsigned(32)
    reduce: Reduce
    last: unsigned(1)


def identity(reduce: Value) -> Value:
    """What changes no other value: -0 in a sum, minus infinity in a maximum."""
    return Mux(reduce == Reduce.MAXIMUM, Const(NEGATIVE_INFINITY, 32), Const(NEGATIVE_ZERO, 32))


class ReduceNode(FixedLatency):
    """a + b or their maximum. Latency 4."""

    latency = Fp32Add.latency

    def __init__(self) -> None:
        super().__init__(NodeOperands, 32)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.add = add = once(Fp32Add(), "fp32_add")
        a, b = self.operands.a, self.operands.b
        larger = delay(m, self.enable, maximum(m, a, b, "larger_now"), self.latency, "larger")
        reduce = delay(m, self.enable, self.operands.reduce, self.latency, "reduce")
        m.d.comb += [
            add.enable.eq(self.enable),
            add.operands.a.eq(a),
            add.operands.b.eq(b),
            self.result.eq(Mux(reduce == Reduce.MAXIMUM, larger, add.result)),
        ]
        return m


class ReduceLevel(wiring.Component):
    """One level of the tree over time: joins a row's values two by two; a last one without a partner passes unchanged.

    Interface attributes
    --------------------
    enable: moves everything.
    valid_in, i: a value of a row; rows do not mix.
    valid_out, o: the joined values, at most one for two taken, at least one a row; 4 cycles after the second.
    """

    def __init__(self) -> None:
        super().__init__({"enable": In(1), "valid_in": In(1), "i": In(Partial), "valid_out": Out(1), "o": Out(Partial)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.node = node = once(ReduceNode(), "vector_reduce_node")
        held, holding = Signal(32), Signal()
        issue = Signal()
        m.d.comb += [
            issue.eq(self.valid_in & (holding | self.i.last)),
            node.enable.eq(self.enable),
            node.operands.a.eq(self.i.value),
            node.operands.b.eq(Mux(holding, held, identity(self.i.reduce))),
            node.operands.reduce.eq(self.i.reduce),
            self.o.value.eq(node.result),
        ]
        with m.If(self.enable & self.valid_in):
            m.d.sync += [held.eq(self.i.value), holding.eq(~issue)]
        carried = delay(m, self.enable, Cat(issue, self.i.last, self.i.reduce), ReduceNode.latency, "carried")
        m.d.comb += [self.valid_out.eq(carried[0]), Cat(self.o.last, self.o.reduce).eq(carried[1:])]
        return m


class Reducer(wiring.Component):
    """Beats of `lanes` values in, one value a row out, over the tree of `golden.fp32_ops.tree_sum`.

    Inside a beat a tree of nodes, then one `ReduceLevel` for every doubling up to `beats` beats a row. A beat every
    enabled cycle, rows back to back.

    Parameters
    ----------
    lanes: values of a beat, a power of two.
    beats: most beats of a row, a power of two.

    Interface attributes
    --------------------
    enable: moves everything.
    valid_in, values, active, reduce, last: a beat; lanes that are not `active` do not count.
    valid_out, result: a row's value, `latency` cycles after its last beat.
    """

    def __init__(self, lanes: int, beats: int):
        for name, value in (("lanes", lanes), ("beats", beats)):
            if not isinstance(value, int) or value < 1 or value & (value - 1):
                raise ValueError(f"{name} must be a power of two, not {value!r}")
        self.lanes, self.beats = lanes, beats
        self.levels = beats.bit_length() - 1
        self.latency = (lanes.bit_length() - 1 + self.levels) * ReduceNode.latency
        super().__init__(
            {
                "enable": In(1),
                "valid_in": In(1),
                "values": In(data.ArrayLayout(32, lanes)),
                "active": In(lanes),
                "reduce": In(Reduce),
                "last": In(1),
                "valid_out": Out(1),
                "result": Out(32),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        layer: list[Value] = [Mux(self.active[i], self.values[i], identity(self.reduce)) for i in range(self.lanes)]
        control = Cat(self.valid_in, self.last, self.reduce)
        depth = 0
        while len(layer) > 1:
            nodes = []
            for pair in range(len(layer) // 2):
                m.submodules[f"node_{depth}_{pair}"] = node = once(ReduceNode(), "vector_reduce_node")
                m.d.comb += [
                    node.enable.eq(self.enable),
                    node.operands.a.eq(layer[2 * pair]),
                    node.operands.b.eq(layer[2 * pair + 1]),
                    node.operands.reduce.eq(control[2:]),
                ]
                nodes.append(node.result)
            control = delay(m, self.enable, control, ReduceNode.latency, f"control_{depth}")
            layer, depth = nodes, depth + 1

        valid, partial = control[0], Signal(Partial)
        m.d.comb += [partial.value.eq(layer[0]), partial.last.eq(control[1]), partial.reduce.as_value().eq(control[2:])]
        for index in range(self.levels):
            m.submodules[f"level_{index}"] = level = once(ReduceLevel(), "vector_reduce_level")
            m.d.comb += [level.enable.eq(self.enable), level.valid_in.eq(valid), level.i.eq(partial)]
            valid, partial = level.valid_out, level.o
        m.d.comb += [self.valid_out.eq(valid & partial.last), self.result.eq(partial.value)]
        return m
