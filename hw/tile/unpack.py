"""From granules of memory to blocks: undoes the frames of "Weights in memory" (docs/interfaces.md)."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from golden.formats import FORMATS
from golden.weights import scale_bytes
from hw.numerics.formats import ElementFormat
from hw.tile.isa import Block

__all__ = ["GRANULE", "FrameUnpacker", "WeightStream", "blocks_at_once", "blocks_layout"]

GRANULE = 256
FRAME = 32


class WeightStream(data.Struct):
    """One matrix in the granule stream: its format and how many blocks of it the array takes."""

    element: ElementFormat
    blocks: 28


def blocks_at_once(formats: tuple[str, ...]) -> int:
    """Blocks that a granule can complete: two where elements are narrower than a byte."""
    return 2 if min(FORMATS[name].bits for name in formats) < 8 else 1


def blocks_layout(at_once: int) -> data.StructLayout:
    """One or two blocks in order: `block`, and `two` where there can be two."""
    return data.StructLayout({"block": data.ArrayLayout(Block, at_once), **({"two": 1} if at_once == 2 else {})})


class FrameUnpacker(wiring.Component):
    """Turns frames (granules of 32 scale words, then the packed elements of 32 blocks) into a stream of blocks.

    One granule a cycle, whatever it holds: with 8-bit elements a block, with 4-bit elements two, with 6-bit elements
    one, one and two (what a block leaves of a granule is kept), with scale words none. A matrix comes without a gap
    behind the one before. The padding that ends a matrix is dropped.

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
        widths = sorted({FORMATS[name].bits for name in formats})
        if not set(widths) <= {4, 6, 8}:
            raise ValueError(f"The unpacker takes elements of 4, 6 and 8 bits, not of {widths}")
        self.formats = formats
        self.at_once = blocks_at_once(formats)
        self.scale_bytes = max(scale_bytes(FORMATS[name]) for name in formats)
        super().__init__(
            {
                "matrix": In(stream.Signature(WeightStream)),
                "granules": In(stream.Signature(GRANULE)),
                "blocks": Out(stream.Signature(blocks_layout(self.at_once))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        format = Signal(ElementFormat)  # of the matrix in hand
        remaining = Signal.like(self.matrix.payload.blocks)  # blocks still to pass on; 0 within the last padding
        active, in_scales = Signal(), Signal(init=1)
        index = Signal(range(FRAME))  # granule of the scale words, or of the elements
        scale_last, element_last, gives_two = Signal(), Signal(), Signal()
        two = gives_two & (remaining != 1)
        with m.Switch(format):
            for name in self.formats:
                with m.Case(ElementFormat[name]):
                    granules = FORMATS[name].bits * FRAME * FRAME // GRANULE
                    m.d.comb += [
                        scale_last.eq(index == scale_bytes(FORMATS[name]) - 1),
                        element_last.eq(index == granules - 1),
                    ]
        scale_step, step, padding = Signal(), Signal(), Signal()
        m.d.comb += [
            padding.eq(remaining == 0),
            self.blocks.valid.eq(active & ~in_scales & ~padding & self.granules.valid),
            self.granules.ready.eq(active & (in_scales | padding | self.blocks.ready)),
            scale_step.eq(active & in_scales & self.granules.valid),
            step.eq(active & ~in_scales & self.granules.valid & (padding | self.blocks.ready)),
        ]
        if self.at_once == 2:
            m.d.comb += self.blocks.payload.two.eq(two)
        self._elements(m, format, step, gives_two)
        self._scales(m, format, scale_step, step, index, gives_two)

        with m.If(scale_step | step):
            m.d.sync += index.eq(index + 1)
        with m.If(scale_step & scale_last):
            m.d.sync += [in_scales.eq(0), index.eq(0)]
        with m.If(step):
            m.d.sync += remaining.eq(Mux(padding, 0, remaining - Mux(two, 2, 1)))
            with m.If(element_last):
                m.d.sync += [in_scales.eq(1), index.eq(0)]

        # The next matrix may begin with the granule after this one's last: no cycle between them.
        finishing = step & element_last & (remaining <= Mux(gives_two, 2, 1))
        with m.If(finishing):
            m.d.sync += active.eq(0)
        with m.If(~active | finishing):
            m.d.comb += self.matrix.ready.eq(1)
            with m.If(self.matrix.valid):
                matrix = self.matrix.payload
                m.d.sync += [active.eq(1), remaining.eq(matrix.blocks), format.eq(matrix.element)]
        return m

    def _scales(self, m: Module, format: Signal, load: Signal, step: Signal, index: Signal, gives_two: Signal) -> None:
        """The frame's scale words, those of the next block at the bottom: they move down as blocks pass."""
        words = Signal(GRANULE * self.scale_bytes)
        out = self.blocks.payload.block
        with m.If(load):
            m.d.sync += words.word_select(index[: (self.scale_bytes - 1).bit_length()], GRANULE).eq(
                self.granules.payload
            )
        with m.Switch(format):
            for size in sorted({scale_bytes(FORMATS[name]) for name in self.formats}):
                bits = 8 * size
                with m.Case(*(ElementFormat[n] for n in self.formats if scale_bytes(FORMATS[n]) == size)):
                    m.d.comb += [out[i].scale.eq(words.word_select(i, bits)) for i in range(self.at_once)]
                    with m.If(step):
                        m.d.sync += words.eq(Mux(gives_two, words >> 2 * bits, words >> bits))

    def _elements(self, m: Module, format: Signal, step: Signal, gives_two: Signal) -> None:
        """The elements of the blocks that this granule completes."""
        granule = self.granules.payload
        with m.Switch(format):
            for width in sorted({FORMATS[name].bits for name in self.formats}):
                with m.Case(*(ElementFormat[name] for name in self.formats if FORMATS[name].bits == width)):
                    if width == 6:
                        self._six(m, granule, step, gives_two)
                    else:
                        m.d.comb += gives_two.eq(width == 4)
                        for number in range(8 // width):
                            self._block(m, number, granule.word_select(number, FRAME * width), width)

    def _six(self, m: Module, granule: Value, step: Signal, gives_two: Signal) -> None:
        """Three granules hold four blocks, a frame a whole number of such runs: what a block leaves is kept."""
        kept, phase, size = Signal(128), Signal(range(3)), FRAME * 6
        with m.If(step):
            m.d.sync += phase.eq(Mux(phase == 2, 0, phase + 1))
        with m.Switch(phase):
            with m.Case(0):
                self._block(m, 0, granule[:size], 6)
                with m.If(step):
                    m.d.sync += kept.eq(granule[size:])
            with m.Case(1):
                self._block(m, 0, Cat(kept[:64], granule[:128]), 6)
                with m.If(step):
                    m.d.sync += kept.eq(granule[128:])
            with m.Default():
                m.d.comb += gives_two.eq(1)
                self._block(m, 0, Cat(kept, granule[:64]), 6)
                self._block(m, 1, granule[64:], 6)

    def _block(self, m: Module, number: int, packed: Value, width: int) -> None:
        """Block `number` of those offered: each element in the low bits of its byte."""
        elements = self.blocks.payload.block[number].elements
        m.d.comb += [
            elements[lane].eq(Cat(packed[width * lane : width * (lane + 1)], Const(0, 8 - width)))
            for lane in range(FRAME)
        ]
