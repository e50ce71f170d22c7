"""The loop nest of a matrix product: which operands meet in which cycle."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.fifo import StreamFifo
from hw.numerics.formats import ElementFormat
from hw.tile.config import TileConfig
from hw.tile.isa import ARRIVALS, Node, Rectangle

__all__ = [
    "BANKS", "IssueEngine", "IssueStalls", "Job", "accumulator_address", "accumulator_address_width", "group_layout",
    "issue_layout",
]  # fmt: skip

BANKS = 2
"""Accumulator banks: one is filled while the other is sent."""


class Job(data.Struct):
    """One matrix product, as the issue engine and the drain engine need it; fields as in `hw.tile.isa.Instruction`.

    The results of a `local` job stay in the tile: they go to the array's `local` port instead of the drain engine.
    """

    activation_format: ElementFormat
    weight_format: ElementFormat
    k_blocks: 12
    slot_columns: 16
    slots: 7
    rows: 13
    passes: 7
    activation_base: 16
    destination: Rectangle
    result_address: 22
    result_stride: 16
    counter: range(ARRIVALS)
    record: 1
    record_address: 22
    record_destination: Node
    local: 1


def accumulator_address_width(config: TileConfig) -> int:
    """Bits of an address in a row's accumulator memory: bank, slot, pass."""
    return 1 + (config.slots - 1).bit_length() + (config.passes - 1).bit_length()


def accumulator_address(config: TileConfig, bank: Signal, slot: Signal, pass_: Signal) -> Cat:
    """Address of one accumulator of every unit of a row."""
    return Cat(pass_[: (config.passes - 1).bit_length()], slot[: (config.slots - 1).bit_length()], bank)


def issue_layout(config: TileConfig) -> data.StructLayout:
    """What the rows are told in the cycle before the operands meet.

    `valid`; `activation` (block in each row's memory); `accumulator` (where the sum is kept); `first` (K begins: the
    sum starts from +0); the formats of both operands.
    """
    return data.StructLayout(
        {
            "valid": 1,
            "activation": 16,
            "accumulator": accumulator_address_width(config),
            "first": 1,
            "activation_format": ElementFormat,
            "weight_format": ElementFormat,
        }
    )


def group_layout() -> data.StructLayout:
    """A finished group, as the drain engine needs it: the `job`, the group's `bank` and `slots`, `last` of the job."""
    return data.StructLayout({"job": Job, "bank": 1, "slots": 7, "last": 1})


class IssueStalls(data.Struct):
    """Why the array did not take operands in this cycle; at most one bit."""

    weights: 1
    results: 1
    order: 1
    no_job: 1


class IssueEngine(wiring.Component):
    """Runs group, K block, slot, pass (the innermost) over jobs, one operand set a cycle.

    A weight set is held for all passes of its slot. K ascends; a sum is read again only `gap` cycles after it was
    last read, when its new value is in the memory. A group may begin when its accumulator bank has been sent. The
    next job's first cycle may follow the last of this one.

    Parameters
    ----------
    config: the tile.
    gap: least cycles between two issues to the same accumulator.
    latency: cycles from an issue to the cycle in which its sum can be read by the drain engine.

    Interface attributes
    --------------------
    jobs: matrix products, in order.
    weights: operand sets, taken in the last pass.
    issue: to the rows, registered.
    groups: finished groups, offered when their sums can be read.
    finished: the last issue of a group happens in this cycle (a pulse: `valid` and payload).
    released: the drain engine has sent bank b (bit b, one cycle).
    stalls: for the counters.
    block_dots: useful block dots issued in this cycle: rows that exist times columns.
    busy: a job or a group is under way.
    """

    def __init__(self, config: TileConfig, gap: int, latency: int):
        self.config, self.gap, self.latency = config, gap, latency
        super().__init__(
            {
                "jobs": In(stream.Signature(Job)),
                "weights": In(stream.Signature(0)),
                "issue": Out(issue_layout(config)),
                "groups": Out(stream.Signature(group_layout())),
                "finished": Out(stream.Signature(group_layout(), always_ready=True)),
                "released": In(BANKS),
                "stalls": Out(IssueStalls),
                "block_dots": Out(range(config.rows * config.columns + 1)),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, job = self.config, self.jobs.payload
        pass_, slot, k = Signal(7), Signal(7), Signal(12)
        done_columns = Signal(16)  # slot columns of the job's finished groups
        activation, k_start = Signal(16), Signal(16)  # offsets from the job's base
        rows_done, rows_left = Signal(13), Signal(13)  # positions in earlier passes, and from this pass on
        bank, occupied = Signal(), Signal(BANKS)
        address = Signal(accumulator_address_width(config))
        m.d.comb += address.eq(accumulator_address(config, bank, slot, pass_))

        left = job.slot_columns - done_columns
        slots = Mux(left < job.slots, left, job.slots)
        pass_last, slot_last = pass_ == job.passes - 1, slot == slots - 1
        k_last, group_last = k == job.k_blocks - 1, left <= job.slots
        step_first = (pass_ == 0) & (slot == 0)

        wait_bank = step_first & (k == 0) & occupied.bit_select(bank, 1)
        fire = Signal()
        wait_order = (k != 0) & self._in_flight(m, fire, address)
        m.d.comb += [
            fire.eq(self.jobs.valid & self.weights.valid & ~wait_bank & ~wait_order),
            self.weights.ready.eq(fire & pass_last),
            self.jobs.ready.eq(fire & pass_last & slot_last & k_last & group_last),
            self.stalls.no_job.eq(~self.jobs.valid),
            self.stalls.weights.eq(self.jobs.valid & ~self.weights.valid),
            self.stalls.results.eq(self.jobs.valid & self.weights.valid & wait_bank),
            self.stalls.order.eq(self.jobs.valid & self.weights.valid & wait_order),
        ]

        with m.If(fire):
            m.d.sync += [pass_.eq(pass_ + 1), activation.eq(activation + job.k_blocks)]
            with m.If(pass_last):
                m.d.sync += [pass_.eq(0), slot.eq(slot + 1), activation.eq(k_start)]
                with m.If(slot_last):
                    m.d.sync += [slot.eq(0), k.eq(k + 1), k_start.eq(k_start + 1), activation.eq(k_start + 1)]
                    with m.If(k_last):
                        m.d.sync += [k.eq(0), k_start.eq(0), activation.eq(0), bank.eq(~bank)]
                        m.d.sync += done_columns.eq(Mux(group_last, 0, done_columns + job.slots))

        m.d.comb += rows_left.eq(job.rows - rows_done)
        with m.If(fire):
            m.d.sync += rows_done.eq(Mux(pass_last, 0, rows_done + config.rows))
            m.d.comb += self.block_dots.eq(Mux(rows_left < config.rows, rows_left, config.rows) * config.columns)

        m.d.sync += [
            self.issue.valid.eq(fire),
            self.issue.activation.eq(job.activation_base + activation),
            self.issue.accumulator.eq(address),
            self.issue.first.eq(k == 0),
            self.issue.activation_format.eq(job.activation_format),
            self.issue.weight_format.eq(job.weight_format),
        ]
        finishing = Signal()
        m.d.comb += finishing.eq(fire & pass_last & slot_last & k_last)
        self._finish(m, finishing, bank, occupied)
        m.d.comb += [
            self.finished.payload.job.eq(job),
            self.finished.payload.bank.eq(bank),
            self.finished.payload.slots.eq(slots),
            self.finished.payload.last.eq(group_last),
        ]
        return m

    def _in_flight(self, m: Module, fire: Signal, address: Signal) -> Value:
        """The accumulator at `address` was issued to less than `gap` cycles ago: its sum is not in the memory yet."""
        recent, hits = fire, []
        before = address
        for age in range(1, self.gap):
            valid, held = Signal(name=f"issued_{age}"), Signal.like(address, name=f"address_{age}")
            m.d.sync += [valid.eq(recent), held.eq(before)]
            hits.append(valid & (held == address))
            recent, before = valid, held
        return Cat(hits).any()

    def _finish(self, m: Module, finishing: Signal, bank: Signal, occupied: Signal) -> None:
        """Hand a finished group to the drain engine once its last sum has gone through the pipeline."""
        queue = m.submodules.groups = StreamFifo(group_layout(), BANKS)
        flight = Signal(self.latency)
        ripe = Signal(range(BANKS + 1))
        taken = Signal()
        m.d.comb += [
            queue.i.payload.eq(self.finished.payload),
            queue.i.valid.eq(finishing),
            self.finished.valid.eq(finishing),
            self.groups.payload.eq(queue.o.payload),
            self.groups.valid.eq(queue.o.valid & (ripe != 0)),
            queue.o.ready.eq(taken),
            taken.eq(self.groups.valid & self.groups.ready),
            self.busy.eq(self.jobs.valid | occupied.any()),
        ]
        m.d.sync += [
            flight.eq(Cat(finishing, flight)),
            ripe.eq(ripe + flight[-1] - taken),
            occupied.eq((occupied | (finishing << bank)) & ~self.released),
        ]
