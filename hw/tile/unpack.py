"""From granules of memory to blocks: undoes the frames of "Weights in memory" (docs/interfaces.md)."""

from amaranth.hdl import Cat, Const, Module, Signal, Value
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

    One block a cycle. With 8-bit elements a granule is a block; with 4-bit elements it holds two, with 6-bit elements
    three granules hold four: what a block leaves of a granule is kept, and the last block of such a run needs no new
    one. While the unpacker passes on the last block of a frame it then already takes the scales of the next, so that
    a matrix comes without a gap. The padding that ends a matrix is dropped.

    Parameters
    ----------
    formats: names of the block formats to support, with elements of 4, 6 or 8 bits.

    Interface attributes
    --------------------
    matrix: what the granules to come hold; taken when the last granule of the matrix before was taken.
    granules: 256-bit granules from the memory.
    blocks: the blocks, elements in 8-bit fields.
    """

    def __init__(self, formats: tuple[str, ...]):
        self.widths = sorted({FORMATS[name].bits for name in formats})
        if not set(self.widths) <= {4, 6, 8}:
            raise ValueError(f"The unpacker takes elements of 4, 6 and 8 bits, not of {self.widths}")
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

        last_of_run = Signal()  # the block is in what earlier granules left: it needs no new one
        self._elements(m, format_in_hand, index, last_of_run)
        present = last_of_run | self.granules.valid
        padding = have_scales & (remaining == 0)
        step, take_scales = Signal(), Signal()
        m.d.comb += [
            self.blocks.payload.scale.eq(scales[index]),
            self.blocks.valid.eq(present & have_scales & (remaining != 0)),
            step.eq((self.blocks.valid & self.blocks.ready) | (padding & present)),
            self.granules.ready.eq(take_scales | (step & ~last_of_run)),
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
                with m.If(last_of_run & (remaining > 1)):
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

    def _elements(self, m: Module, format: Signal, index: Signal, last_of_run: Signal) -> None:
        """The block's elements, from this granule and from what the one before left."""
        granule = self.granules.payload
        kept, left = Signal(GRANULE), Signal(GRANULE)
        with m.If(self.granules.ready):
            m.d.sync += kept.eq(left)
        with m.Switch(format):
            for name in self.formats:
                with m.Case(ElementFormat[name]):
                    self._block(m, FORMATS[name].bits, index, granule, kept, left, last_of_run)

    def _block(
        self, m: Module, width: int, index: Signal, granule: Value, kept: Signal, left: Signal, last: Signal
    ) -> None:
        """Block `index` of `width`-bit elements: a run of blocks fills whole granules and begins with a whole one."""
        size = FRAME * width
        run = {8: 1, 4: 2, 6: 4}[width]
        with m.Switch(index[: run.bit_length() - 1]):
            for place in range(run):
                # `have` bits of the block came with the granule before; the rest opens this one.
                have = -place * size % GRANULE
                block = Cat(kept[:have], granule)[:size]
                with m.Case(place):
                    m.d.comb += self.blocks.payload.elements.as_value().eq(
                        Cat(Cat(block[width * i : width * (i + 1)], Const(0, 8 - width)) for i in range(FRAME))
                    )
                    if run > 1 and place == run - 1:
                        m.d.comb += last.eq(1)
                    else:
                        m.d.comb += left.eq(granule >> (size - have))
