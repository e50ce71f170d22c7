"""The array's sums on their way into the slices."""

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.fifo import StreamFifo
from hw.tile.issue import BANKS, accumulator_address, accumulator_address_width, group_layout
from hw.vector.leaves import LEAF, AttentionSize, LeafItem, Part
from hw.vector.slice_control import arrival_layout

__all__ = ["Receiver"]


class Receiver(wiring.Component):
    """Reads finished groups out of the array, one accumulator of all its units a cycle.

    Parameters
    ----------
    size: the build.

    Interface attributes
    --------------------
    items: parts of leaves, in order of their jobs.
    groups, read, released: see `hw.tile.array.LocalSignature`.
    arrival: what the array's values of this cycle are, for the slices.
    scores, outputs: leaves whose scores, whose output, have come as a whole.
    """

    def __init__(self, size: AttentionSize):
        self.size = size
        super().__init__(
            {
                "items": In(stream.Signature(LeafItem)),
                "groups": In(stream.Signature(group_layout())),
                "read": Out(accumulator_address_width(size.tile)),
                "released": Out(BANKS),
                "arrival": Out(arrival_layout(size)),
                "scores": Out(stream.Signature(LeafItem)),
                "outputs": Out(stream.Signature(LeafItem)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        tile, group = self.size.tile, self.groups.payload
        m.submodules.items = items = StreamFifo(LeafItem, 4)
        m.submodules.score_queue = scores = StreamFifo(LeafItem, 4)
        m.submodules.output_queue = outputs = StreamFifo(LeafItem, 8)
        wiring.connect(m, wiring.flipped(self.items), items.i)
        wiring.connect(m, wiring.flipped(self.scores), scores.o)
        wiring.connect(m, wiring.flipped(self.outputs), outputs.o)
        item = items.o.payload

        pass_, slot, word_base = Signal(7), Signal(7), Signal(8)
        step, slot_last, end = Signal(), Signal(), Signal()
        m.d.comb += [
            step.eq(self.groups.valid & items.o.valid),
            slot_last.eq(slot + 1 == group.slots),
            end.eq(step & slot_last & (pass_ + 1 == group.job.passes)),
            self.read.eq(accumulator_address(tile, group.bank, slot, pass_)),
            self.groups.ready.eq(end),
            self.released.eq(Mux(end, 1 << group.bank, 0)),
            items.o.ready.eq(end & group.last),
        ]
        with m.If(step):
            m.d.sync += slot.eq(slot + 1)
            with m.If(slot_last):
                m.d.sync += [slot.eq(0), pass_.eq(pass_ + 1)]
            with m.If(end):
                m.d.sync += [pass_.eq(0), word_base.eq(Mux(group.last, 0, word_base + group.slots))]
        self._describe(m, step, item, pass_, word_base + slot)

        # With the cycle of its last values a leaf is complete for whoever reads in a later one.
        complete, completed = Signal(), Signal(LeafItem)
        m.d.sync += [complete.eq(end & group.last), completed.eq(item)]
        of_completed = completed.part == Part.VALUES
        m.d.comb += [
            scores.i.valid.eq(complete & ~of_completed),
            outputs.i.valid.eq(complete & of_completed),
            scores.i.payload.eq(completed),
            outputs.i.payload.eq(completed),
        ]
        return m

    def _describe(self, m: Module, step: Signal, item: LeafItem, pass_: Signal, word) -> None:
        """Registers `arrival`, which goes with the values of the next cycle."""
        arrival, command, tile = self.arrival, item.command, self.size.tile
        of_values = item.part == Part.VALUES
        # row // group = row * reciprocal >> 16 for both up to 255: the error stays below row / 2**16 < 1 / group.
        table = [0, *(-(-(1 << 16) // group) for group in range(1, 256))]
        m.submodules.reciprocals = reciprocals = memory.Memory(shape=17, depth=256, init=table)
        reciprocal = reciprocals.read_port(domain="comb")
        first_row, origin = Signal(8), Signal(signed(20))
        m.d.comb += [
            reciprocal.addr.eq(command.group),
            first_row.eq(pass_ * tile.rows),
            origin.eq(command.position + 1 - item.leaf * LEAF - word * tile.columns),
        ]
        m.d.sync += [
            arrival.scores.eq(step & ~of_values),
            arrival.outputs.eq(step & of_values),
            arrival.pass_.eq(pass_),
            arrival.word.eq(word),
            arrival.sequence.eq(item.sequence),
            arrival.origin.eq(origin),
            arrival.window.eq(command.window),
            arrival.reciprocal.eq(reciprocal.data),
            arrival.product.eq(first_row * reciprocal.data),
        ]
