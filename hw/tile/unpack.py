"""From granules of memory to blocks: undoes the frames of "Weights in memory" (docs/interfaces.md)."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from golden.formats import FORMATS
from hw.numerics.formats import ElementFormat
from hw.tile.isa import Block

__all__ = ["GRANULE", "FrameUnpacker", "WeightStream"]

GRANULE = 256
FRAME = 32


class WeightStream(data.Struct):
    """One matrix in the granule stream: its element format and how many blocks of it the array takes."""

    element: ElementFormat
    blocks: 28


class FrameUnpacker(wiring.Component):
    """Turns frames (a granule of 32 scales, then the packed elements of 32 blocks) into a stream of blocks.

    With 8-bit elements a granule is a block, and the unpacker passes one on in the cycle in which it comes. With 4-bit
    elements a granule gives two blocks, one a cycle; while it passes on the last block of a frame it already takes the
    scales of the next, so that a matrix comes without a gap. The padding that ends a matrix is dropped.

    Parameters
    ----------
    formats: names of the block formats to support, with 4-bit or 8-bit elements.

    Interface attributes
    --------------------
    matrix: what the granules to come hold; taken when the last granule of the matrix before was taken.
    granules: 256-bit granules from the memory.
    blocks: the blocks, elements in 8-bit fields.
    """

    def __init__(self, formats: tuple[str, ...]):
        self.widths = sorted({FORMATS[name].bits for name in formats})
        if not set(self.widths) <= {4, 8}:
            raise ValueError(f"The unpacker takes elements of 4 and 8 bits, not of {self.widths}")
        self.formats = formats
        super().__init__(
            {
                "matrix": In(stream.Signature(WeightStream)),
                "granules": In(stream.Signature(GRANULE)),
                "blocks": Out(stream.Signature(Block)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        scales = Signal(data.ArrayLayout(8, FRAME))
        have_scales = Signal()
        index = Signal(range(FRAME))
        remaining = Signal.like(self.matrix.payload.blocks)  # blocks still to pass on; 0 within the last padding
        active = Signal()
        format_in_hand = Signal(ElementFormat)

        narrow_codes = [ElementFormat[name] for name in self.formats if FORMATS[name].bits == 4]
        narrow, upper = Signal(), Signal()  # elements of 4 bits; the second block of a granule
        m.d.comb += [
            narrow.eq(format_in_hand.as_value().matches(*(code.value for code in narrow_codes))),
            upper.eq(narrow & index[0]),
        ]
        self._elements(m, narrow, upper, bool(narrow_codes))
        present = upper | self.granules.valid  # the upper block was kept when its granule was taken
        padding = have_scales & (remaining == 0)
        step, take_scales = Signal(), Signal()
        m.d.comb += [
            self.blocks.payload.scale.eq(scales[index]),
            self.blocks.valid.eq(present & have_scales & (remaining != 0)),
            step.eq((self.blocks.valid & self.blocks.ready) | (padding & present)),
            self.granules.ready.eq(take_scales | (step & ~upper)),
        ]
        with m.If(take_scales & self.granules.valid):
            m.d.sync += [scales.eq(self.granules.payload), have_scales.eq(1), index.eq(0)]
        with m.If(active & ~have_scales):
            m.d.comb += take_scales.eq(1)
        last_of_frame = index == FRAME - 1
        with m.If(step):
            m.d.sync += index.eq(index + 1)
            with m.If(remaining != 0):
                m.d.sync += remaining.eq(remaining - 1)
            with m.If(last_of_frame):
                with m.If(upper & (remaining > 1)):
                    m.d.comb += take_scales.eq(1)
                m.d.sync += have_scales.eq(take_scales & self.granules.valid)

        # The next matrix may begin with the granule after this one's last: no cycle between them.
        finishing = step & last_of_frame & (remaining <= 1)
        with m.If(finishing):
            m.d.sync += active.eq(0)
        with m.If(~active | finishing):
            m.d.comb += self.matrix.ready.eq(1)
            with m.If(self.matrix.valid):
                m.d.sync += [
                    active.eq(1),
                    have_scales.eq(0),
                    remaining.eq(self.matrix.payload.blocks),
                    format_in_hand.eq(self.matrix.payload.element),
                ]
        return m

    def _elements(self, m: Module, narrow: Signal, upper: Signal, any_narrow: bool) -> None:
        """The block's elements, and the granule's upper half kept for the block after it."""
        elements, granule = self.blocks.payload.elements.as_value(), self.granules.payload
        m.d.comb += elements.eq(granule)
        if any_narrow:
            kept = Signal(GRANULE // 2)
            with m.If(self.granules.ready):
                m.d.sync += kept.eq(granule[GRANULE // 2 :])
            nibbles = Mux(upper, kept, granule[: GRANULE // 2])
            with m.If(narrow):
                m.d.comb += elements.eq(Cat(Cat(nibbles[4 * i : 4 * i + 4], Const(0, 4)) for i in range(FRAME)))
