"""One row of the array: its activation memory, its block-dot units and its accumulators."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from hw.emit import once
from hw.numerics.accumulate import FusedAccumulate
from hw.numerics.decode import Decode
from hw.numerics.dot import DotUnit
from hw.numerics.formats import ElementFormat, FormatSet
from hw.tile.config import TileConfig
from hw.tile.isa import Block
from hw.tile.issue import accumulator_address_width

__all__ = ["ArrayRow", "accumulate_layout"]


def accumulate_layout(config: TileConfig) -> data.StructLayout:
    """Control of the accumulators: `read` a cycle before the block sums come, `first` with them, `write` at the end."""
    width = accumulator_address_width(config)
    return data.StructLayout({"read": width, "first": 1, "write_enable": 1, "write": width})


class ArrayRow(wiring.Component):
    """`columns` block-dot units that share an activation block; unit c meets weight block c.

    From `address` to operands: 1 cycle (memory) and `Decode.latency`; then `dot_latency` to the block sums; then
    `FusedAccumulate.latency` to the new sums.

    Parameters
    ----------
    config: the tile.
    formats: the formats of the units.

    Interface attributes
    --------------------
    write_enable, write_address, write_data: one activation block into the memory.
    address, format: the activation block to use.
    weights: decoded weight blocks, in the cycle in which the decoded activations are there.
    accumulate: control of the accumulators.
    drain: accumulator address; `values` are the sums there, one cycle later.
    unsupported: the activations' format is not in the build (side A of a product).
    """

    def __init__(self, config: TileConfig, formats: FormatSet):
        self.config, self.formats = config, formats
        self._decode = Decode(formats)
        self.decode_latency = self._decode.latency
        self._dots = [DotUnit(formats) for _ in range(config.columns)]
        self.dot_latency = self._dots[0].latency
        super().__init__(
            {
                "write_enable": In(1),
                "write_address": In(range(config.activation_depth)),
                "write_data": In(Block),
                "address": In(range(config.activation_depth)),
                "format": In(ElementFormat),
                "weights": In(data.ArrayLayout(formats.operand, config.columns)),
                "accumulate": In(accumulate_layout(config)),
                "drain": In(accumulator_address_width(config)),
                "values": Out(data.ArrayLayout(32, config.columns)),
                "unsupported": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        activations = memory.Memory(shape=Block, depth=config.activation_depth, init=[])
        m.submodules.activations = activations
        write, read = activations.write_port(), activations.read_port()
        m.submodules.decode = decode = self._decode
        format = Signal(ElementFormat)
        m.d.sync += format.eq(self.format)
        m.d.comb += [
            write.en.eq(self.write_enable),
            write.addr.eq(self.write_address),
            write.data.eq(self.write_data),
            read.addr.eq(self.address),
            decode.codes.eq(read.data.elements),
            decode.scale.eq(read.data.scale[: self.formats.scale_bits]),
            decode.format.eq(format),
            self.unsupported.eq(decode.unsupported),
        ]

        sums = memory.Memory(
            shape=data.ArrayLayout(32, config.columns), depth=1 << accumulator_address_width(config), init=[]
        )
        m.submodules.sums = sums
        store, load, drain = sums.write_port(), sums.read_port(), sums.read_port()
        control = self.accumulate
        m.d.comb += [
            load.addr.eq(control.read),
            store.en.eq(control.write_enable),
            store.addr.eq(control.write),
            drain.addr.eq(self.drain),
            self.values.eq(drain.data),
        ]
        for column in range(config.columns):
            dot = m.submodules[f"dot_{column}"] = once(self._dots[column], _name("dot_unit", self.formats))
            accumulate = once(FusedAccumulate(self.formats), _name("fused_accumulate", self.formats))
            m.submodules[f"accumulate_{column}"] = accumulate
            m.d.comb += [
                dot.a.eq(decode.operand),
                dot.b.eq(self.weights[column]),
                dot.enable.eq(1),
                accumulate.sum.eq(dot.sum),
                accumulate.accumulator.eq(Mux(control.first, 0, load.data[column])),
                accumulate.enable.eq(1),
                store.data[column].eq(accumulate.result),
            ]
        return m


def _name(block: str, formats: FormatSet) -> str:
    return "_".join([block, *formats.names]).lower()
