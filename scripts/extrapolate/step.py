"""Time and events of one step of a model on a chip: a batch of decode positions, a prefill chunk, or both.

Stages of a layer follow one another; inside a stage the products run back to back. A stage costs its products'
cycles (`cycles.Constants`, from RTL runs) and, because the next stage needs all outputs, a gather over the network
and the links and the functions in between. Those last parts are not on the RTL's chip level yet: their formulas are
written down here and marked as assumed in every report.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from math import ceil, log2

import numpy as np

from scripts.extrapolate.chips import Chip
from scripts.extrapolate.cycles import Constants, Work, work
from scripts.extrapolate.shapes import BITS, Matrix, Model, distinct

LEAF = 128
"""Positions of an attention leaf."""
VECTOR_LATENCY = 40
"""Cycles until a vector function's first result, assumed: the depth of FP32 units, a table and a reduction tree."""
OPERAND_PASSES = {"BF16": 2}
"""How often the array takes a block: BF16 in two passes of 8-bit significands (design), all others once."""


@dataclass(frozen=True)
class Batch:
    """Positions of a step: `decode` users at a mean `context`, and `prefill` positions that follow `history`.

    Logits are wanted for every decode position, and for the last prefill position where `last` is set.
    """

    decode: int = 0
    context: float = 0.0
    prefill: int = 0
    history: float = 0.0
    last: bool = False

    @property
    def positions(self) -> int:
        return self.decode + self.prefill


@dataclass(frozen=True)
class Step:
    """Cycles of a step by what they are spent on (the slowest tile), and the domain's events in it."""

    stream: float = 0.0  # the memory's limit
    unpack: float = 0.0  # what the unpacker takes beyond that
    array: float = 0.0  # the array's work beyond both
    order: float = 0.0  # waits for accumulators, beyond all three
    start: float = 0.0  # getting products going
    attention: float = 0.0
    network: float = 0.0
    link: float = 0.0
    vector: float = 0.0
    hbm_bytes: float = 0.0
    macs: float = 0.0
    flits: float = 0.0  # granules delivered to tiles
    link_bytes: float = 0.0

    def __add__(self, other: Step) -> Step:
        return Step(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(Step)))

    def times(self, count: float) -> Step:
        return Step(*(getattr(self, f.name) * count for f in fields(Step)))

    @property
    def cycles(self) -> float:
        return sum(getattr(self, name) for name in PARTS)


PARTS = ("stream", "unpack", "array", "order", "start", "attention", "network", "link", "vector")


@lru_cache(maxsize=16)
def _merged(model: Model) -> tuple[Matrix, ...]:
    """Matrices of a layer as the compiler lays them out: those with the same activations are one taller matrix."""
    found: list[Matrix] = []
    for matrix in model.matrices:
        last = found[-1] if found else None
        alike = ("k", "format", "layers", "stage", "used", "held", "bias")
        single = matrix.held == 1 and matrix.stage < 5
        if last and single and all(getattr(last, f) == getattr(matrix, f) for f in alike):
            found[-1] = replace(last, name=f"{last.name}, {matrix.name}", n=last.n + matrix.n)
        else:
            found.append(matrix)
    return tuple(found)


@lru_cache(maxsize=4096)
def crowding(held: int, used: int, groups: int) -> float:
    """Expected number of used experts on the fullest of `groups`, over used/groups; `used` of `held` at random."""
    if groups == 1 or used == held:
        return 1.0
    draws = np.random.default_rng(1).random((2000, held)).argpartition(used - 1, axis=1)[:, :used]
    counts = (draws[:, :, None] % groups == np.arange(groups)).sum(axis=1)
    return float(counts.max(axis=1).mean() * groups / used)


def _product(matrix: Matrix, positions: int, chip: Chip, constants: Constants) -> Step:
    """One matrix in one layer; of experts, those of the fullest group, one after the other."""
    used = distinct(matrix, positions)
    groups = chip.domain.expert_groups if matrix.held > 1 else 1
    each = max(1, ceil(positions * matrix.used / used - 1e-9))
    bits, passes = BITS[matrix.format], OPERAND_PASSES.get(matrix.format, 1)
    part = work(each, matrix.k, matrix.n, chip.tile, chip.all_tiles // groups, chip.rate, bits, passes)
    one = _split(part, constants)
    in_turn = used / groups * crowding(matrix.held, round(used), groups)
    events = {"hbm_bytes": one.hbm_bytes * used, "macs": one.macs * used}
    return replace(one.times(in_turn), start=constants.start, **events)


def _split(part: Work, constants: Constants) -> Step:
    """A product's cycles by cause. Results are gathered by the stage, not at one port, so they set no limit here."""
    stream = constants.memory_factor * part.stream
    weights, busy = max(stream, part.unpack), part.array - part.ordered
    return Step(
        stream=stream,
        unpack=weights - stream,
        array=max(0.0, busy - weights),
        order=max(0.0, part.array - max(weights, busy)),
        hbm_bytes=part.bytes,
        macs=part.macs,
    )


def gather(values: float, positions: int, chip: Chip, groups: int = 1) -> Step:
    """Every tile of a group gets `values` numbers of each position, which the group's tiles hold in equal parts.

    The better of two ways: everything as FP32 to every tile; or FP32 to the one tile that owns the position, and from
    there in blocks of 32, quantised, to all. `values` is a group's share where there are groups.
    """
    tiles = chip.all_tiles // groups
    everything = values * positions
    owners = min(tiles, positions)
    direct, by_owner = everything / 8, everything / 8 / owners + everything / 32
    flits, bytes_a_value = (direct, 4.0) if direct <= by_owner else (by_owner, 4.0 / owners + 33 / 32)
    total = Step(network=(chip.columns + chip.rows) * chip.hop_cycles + flits / chip.ingress,
                 flits=flits * tiles * groups)  # fmt: skip
    chips = chip.domain.chips // groups
    return total + _links(everything * bytes_a_value * (chips - 1) / max(chips, 1), chip) if chips > 1 else total


def _links(incoming: float, chip: Chip) -> Step:
    """`incoming` bytes into every chip, whose transfer overlaps with the network's but for the latency."""
    domain = chip.domain
    seconds = domain.link_nanoseconds * 1e-9 + incoming / domain.link_bytes_per_second
    return Step(link=seconds * chip.clock_hz, link_bytes=incoming * domain.chips)


def _combine(model: Model, positions: int, chip: Chip) -> Step:
    """Experts in groups: their outputs meet at the tile that sums them, in the fixed order of the experts."""
    ff, domain = model.feed_forward, chip.domain
    values = (ff.top_k + ff.shared) * model.hidden * positions
    flits = values / 8 / chip.all_tiles
    sent = Step(network=flits / chip.ingress, flits=values / 8)
    return sent + _links(values * 4 / domain.chips, chip) if domain.chips > 1 else sent


def vector(values: float, passes: int, chip: Chip) -> Step:
    """A function over `values` numbers in `passes` passes of a tile's vector unit."""
    return Step(vector=VECTOR_LATENCY + passes * ceil(values / chip.tile.lanes))


def _attention(model: Model, batch: Batch, chip: Chip, constants: Constants) -> Step:
    """All layers' attention: KV read by the tiles that hold it, or the array's work where that takes longer."""
    a, tiles = model.attention, chip.all_tiles
    array_rate = tiles * chip.tile.rows * chip.tile.columns * 32
    granules = tiles * chip.granules_per_cycle / constants.memory_factor
    total = Step()
    for positions, context, shared in ((batch.decode, batch.context, False),
                                       (batch.prefill, batch.history + batch.prefill / 2, True)):  # fmt: skip
        if not positions:
            continue
        # The KV cache stays where it is, in whole leaves of one KV head: the slowest tile's share, not the mean.
        leaves = (1 if shared else positions) * max(1.0, context / LEAF) * max(1, a.kv_heads)
        balance = ceil(leaves / tiles) * tiles / leaves
        read = model.kv_read(context) * (1 if shared else positions)
        # Decode uses as many of the array's rows as there are heads to a KV head.
        heads = a.heads // a.kv_heads if a.kind == "gqa" else a.heads
        rows = heads * (positions if shared else 1)
        filled = rows / (ceil(rows / chip.tile.rows) * chip.tile.rows)
        macs = model.attention_macs(context, positions) if shared else model.attention_macs(context) * positions
        cycles = max(read / 32 / granules, macs / (array_rate * filled)) * balance
        merge = (chip.columns + chip.rows) * chip.hop_cycles + VECTOR_LATENCY * log2(max(2.0, context / LEAF))
        total += Step(attention=cycles + merge * model.layers, hbm_bytes=read, macs=macs)
    return total


def step(model: Model, chip: Chip, constants: Constants, batch: Batch) -> Step:
    """One step over `batch`. ValueError for an empty one."""
    count = batch.positions
    if count < 1:
        raise ValueError("a step needs at least one position")
    total = _attention(model, batch, chip, constants)
    for matrix in _merged(model):
        if matrix.name != "head":
            total += _product(matrix, count, chip, constants).times(matrix.layers)
        elif logits := batch.decode + batch.last:
            # Each tile offers its best few; the choice is made from those.
            total += _product(matrix, logits, chip, constants) + gather(chip.all_tiles, logits, chip)
    share = ceil(count / chip.all_tiles)  # positions are normalised where they are owned
    groups = chip.domain.expert_groups
    for layers, values, passes, inside in _between(model):
        parts = groups if inside else 1
        one = gather(values / parts, count, chip, parts) + vector(values * share / parts, passes, chip)
        total += one.times(layers)
    if groups > 1 and model.feed_forward.experts:
        total += _combine(model, count, chip).times(model.layers - model.feed_forward.dense_layers)
    return total


def _between(model: Model) -> Sequence[tuple[int, float, int, bool]]:
    """Between a layer's stages: (layers, values that all tiles need, vector passes over them, inside expert groups)."""
    ff, a = model.feed_forward, model.attention
    experts = model.layers - ff.dense_layers if ff.experts else 0
    mixed = a.heads * (a.head_size if a.kind == "gqa" else a.value)
    found = [
        (model.layers, model.hidden, 3, False),  # norm, quantise: to q, k, v
        (model.layers, mixed, 2, False),  # attention's outputs, quantise: to o
        (model.layers, model.hidden, 3, False),  # residual, norm, quantise: to the feed-forward
    ]
    if a.kind == "mla":
        found.append((model.layers, a.q_rank + a.kv_rank + a.rope, 3, False))
    if ff.dense_layers:
        found.append((ff.dense_layers, ff.dense_size, 3, False))
    if experts:
        found.append((experts, (ff.top_k + ff.shared) * ff.expert_size, 3, True))
        found.append((experts, ff.experts, 2, False))  # router: top-k and its softmax or sigmoid
    return found
