"""Sends the sums of finished groups as result granules."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.fifo import StreamFifo
from hw.tile.config import LANES, TileConfig
from hw.tile.isa import Counters, Memory, Rectangle, RemoteWrite
from hw.tile.issue import BANKS, accumulator_address, accumulator_address_width, group_layout

__all__ = ["DrainEngine", "Outgoing"]

RECORD_GRANULES = 2


def _to_node(rectangle: data.View, node: data.View) -> list[Value]:
    """Assignments that make a rectangle of one node."""
    return [
        rectangle.x_first.eq(node.x),
        rectangle.x_last.eq(node.x),
        rectangle.y_first.eq(node.y),
        rectangle.y_last.eq(node.y),
        rectangle.port.eq(node.port),
    ]


class Outgoing(data.Struct):
    """A remote write and where it goes."""

    destination: Rectangle
    write: RemoteWrite


class DrainEngine(wiring.Component):
    """Reads a finished group's accumulators, packs eight values a granule, and releases the bank.

    Order: positions ascending, in each the outputs ascending. One slot (`columns` values, at most eight) a cycle; a
    granule holds the outputs of as many slots as fit (`config.fragments`), unused lanes are zero. After a job's last
    granule come its counters, when it asked for a record.

    Parameters
    ----------
    config: the tile.

    Interface attributes
    --------------------
    groups: finished groups.
    read: accumulator address, to all rows; `row` picks the row whose values come back in the next cycle.
    values: the `columns` sums of that row, one cycle after the address.
    snapshots: counters at the end of the group in each bank.
    released: bit b: bank b has been sent (one cycle).
    o: the remote writes.
    busy: a group is being sent.
    """

    def __init__(self, config: TileConfig):
        self.config = config
        super().__init__(
            {
                "groups": In(stream.Signature(group_layout())),
                "read": Out(accumulator_address_width(config)),
                "row": Out(range(config.rows)),
                "values": In(data.ArrayLayout(32, config.columns)),
                "snapshots": In(data.ArrayLayout(Counters, BANKS)),
                "released": Out(BANKS),
                "o": Out(stream.Signature(Outgoing)),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, group = self.config, self.groups.payload
        job = group.job
        m.submodules.queue = queue = StreamFifo(Outgoing, 4)
        wiring.connect(m, wiring.flipped(self.o), queue.o)

        position, row, pass_, slot = Signal(13), Signal.like(self.row), Signal(7), Signal(7)
        piece = Signal(range(max(2, config.pieces)))
        before = Signal(16)  # granules that a position has from the job's earlier groups
        line, offset = Signal(22), Signal(16)  # granules from position 0 to this one; granules sent of this one
        recording, record_index = Signal(), Signal(range(RECORD_GRANULES))

        room = Signal()
        m.d.comb += room.eq(queue.level <= 2)  # one read is in flight besides what is queued
        fragment = slot & (config.fragments - 1)
        slot_last, piece_last = slot == group.slots - 1, piece == config.pieces - 1
        position_last = position == job.rows - 1
        granule_done = (fragment == config.fragments - 1) | slot_last if config.fragments > 1 else Value.cast(1)

        step = Signal()
        m.d.comb += [
            step.eq(self.groups.valid & ~recording & room),
            self.read.eq(accumulator_address(config, group.bank, slot, pass_)),
        ]
        end = Signal()
        with m.If(step):
            m.d.sync += piece.eq(piece + 1)
            with m.If(granule_done):
                m.d.sync += offset.eq(offset + 1)
            with m.If(piece_last):
                m.d.sync += [piece.eq(0), slot.eq(slot + 1)]
                with m.If(slot_last):
                    m.d.sync += [slot.eq(0), offset.eq(0), line.eq(line + job.result_stride)]
                    m.d.sync += [position.eq(position + 1), row.eq(row + 1)]
                    with m.If(row == config.rows - 1):
                        m.d.sync += [row.eq(0), pass_.eq(pass_ + 1)]
                    with m.If(position_last):
                        m.d.comb += end.eq(1)
        with m.If(end):
            m.d.sync += [position.eq(0), row.eq(0), pass_.eq(0), line.eq(0)]
            m.d.sync += before.eq(Mux(group.last, 0, before + offset + 1))

        # One cycle later the values are here; the group may be gone by then.
        arrived, emit, destination = Signal(), Signal(), Signal(Rectangle)
        counter = Signal.like(job.counter)
        address, arrived_fragment, arrived_piece = Signal(22), Signal.like(slot), Signal.like(piece)
        m.d.sync += [
            arrived.eq(step),
            emit.eq(step & granule_done),
            address.eq(job.result_address + before + line + offset),
            arrived_fragment.eq(fragment),
            arrived_piece.eq(piece),
            self.row.eq(row),
            destination.eq(job.destination),
            counter.eq(job.counter),
        ]
        lanes = self._pack(m, arrived, arrived_fragment, arrived_piece)
        write = queue.i.payload.write
        m.d.comb += [
            self.busy.eq(self.groups.valid | emit | queue.o.valid),
            queue.i.valid.eq(emit),
            queue.i.payload.destination.eq(destination),
            write.memory.eq(Memory.RESULTS),
            write.address.eq(address),
            write.counter.eq(counter),
            write.data.elements.as_value().eq(lanes),
        ]
        self._release(m, end, recording, record_index, queue)
        return m

    def _pack(self, m: Module, arrived: Signal, fragment: Signal, piece: Signal) -> Value:
        """The eight lanes of a granule: this cycle's values beside those of the slots before it."""
        config = self.config
        if config.columns >= LANES:
            padded = Signal(config.pieces * LANES * 32)
            m.d.comb += padded.eq(self.values.as_value())
            return padded.word_select(piece, LANES * 32)
        gathered, lanes = Signal(LANES * 32), Signal(LANES * 32)
        width = config.columns * 32
        m.d.comb += lanes.eq(Mux(fragment == 0, 0, gathered))
        for index in range(config.fragments):
            with m.If(fragment == index):
                m.d.comb += lanes[index * width : (index + 1) * width].eq(self.values.as_value())
        with m.If(arrived):
            m.d.sync += gathered.eq(lanes)
        return lanes

    def _release(self, m: Module, end: Signal, recording: Signal, index: Signal, queue: StreamFifo) -> None:
        """Behind a group's last read: the counters where the job wants them, then the bank and the group are free."""
        group = self.groups.payload
        wants_record = group.last & group.job.record
        done = Signal()
        with m.If(end):
            m.d.sync += recording.eq(wants_record)
            m.d.comb += done.eq(~wants_record)
        counters = Signal(RECORD_GRANULES * LANES * 32)
        m.d.comb += counters.eq(self.snapshots[group.bank].as_value())
        settled = Signal()  # the last result granule has left the packing stage
        m.d.sync += settled.eq(recording)
        write = queue.i.payload.write
        with m.If(recording & settled & queue.i.ready):
            m.d.comb += [
                queue.i.valid.eq(1),
                *_to_node(queue.i.payload.destination, group.job.record_destination),
                write.address.eq(group.job.record_address + index),
                write.counter.eq(0),
                write.data.elements.as_value().eq(counters.word_select(index, LANES * 32)),
            ]
            m.d.sync += index.eq(index + 1)
            with m.If(index == RECORD_GRANULES - 1):
                m.d.comb += done.eq(1)
                m.d.sync += [recording.eq(0), index.eq(0), settled.eq(0)]
        m.d.comb += self.groups.ready.eq(done)
        with m.If(done):
            m.d.comb += self.released.eq(1 << group.bank)
