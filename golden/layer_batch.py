"""A layer for rows of several sequences at once: users of a batch, chunks of prompts, or both.

Only attention knows sequences: each appends to its own KV cache and attends to it. Everything else is row by row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from golden.attention import LEAF
from golden.formats import BLOCK
from golden.fp32_ops import Bits
from golden.layer import Layer, LayerPlan, lower_layer
from golden.layer_places import Places
from golden.layer_program import ALL_BLOCKS, OWN_BLOCKS, TileProgram
from hw.config import ChipConfig, ConfigError
from hw.tile.attention_program import Append, Attend, Page
from hw.tile.config import LANES
from hw.tile.program import Await, Command, ProgramError
from hw.tile.vector_program import Quantise, Rows
from hw.vector.leaves import PAGES

__all__ = ["Segment", "join_layers", "lower_batch"]


@dataclass(frozen=True)
class Segment:
    """`rows` rows of a layer's work: positions of sequence number `sequence` from `position` on."""

    sequence: int
    position: int
    rows: int


@dataclass
class BatchProgram(TileProgram):
    """One tile's commands, with attention for each segment on a cache of its own."""

    segments: tuple[Segment, ...] = ()

    def cache(self, sequence: int) -> int:
        """First granule of a sequence's caches: behind one another towards the start of the memory."""
        p = self.places
        return p.cache - sequence * len(p.queries) * self.tile.attention_leaves * p.leaf

    def _attend(self, slot: int, head: int) -> list[Command]:
        p, model = self.places, self.layer.model
        format, blocks = self.layer.products["o"].activations.format.name, model.head_size // BLOCK * p.group
        commands, first = list[Command](), 0
        for segment in self.segments:
            commands += self._attend_segment(slot, segment, first, format)
            first += segment.rows
        target = p.blocks["o"] + head * blocks
        return [
            *commands,
            Quantise(p.positions, blocks, p.mixed[slot], self.all, target, model.hidden // BLOCK, ALL_BLOCKS, format),
        ]

    def _attend_segment(self, slot: int, segment: Segment, first: int, format: str) -> list[Command]:
        """Append and attend with one segment's rows, which begin at row `first`."""
        p, size = self.places, self.layer.model.head_size
        row, blocks, leaves = size // LANES, size // BLOCK, self.tile.attention_leaves
        number = segment.sequence * len(p.queries) + slot
        table, keys_values = number * leaves, p.keys_values[slot]
        if table + leaves > PAGES:
            raise ProgramError(f"{PAGES} page table entries do not map cache {number} of {leaves} leaves")
        base = self.cache(segment.sequence) + slot * leaves * p.leaf
        seen = range((segment.position + segment.rows - 1) // LEAF + 1)
        tokens = Rows(keys_values.address + first * keys_values.stride, keys_values.stride)
        commands: list[Command] = [Page(table + leaf, base + leaf * p.leaf) for leaf in seen]
        commands.append(Append(segment.rows, segment.position, tokens, size, size, table, format))
        step = max(1, self.tile.attention_rows // p.group)
        for start in range(0, segment.rows, step):
            rows, place = p.group * min(step, segment.rows - start), (first + start) * p.group * row
            queries, result = p.queries[slot].address + place, p.mixed[slot].address + place
            commands += [
                Quantise(rows, blocks, Rows(queries, row), self.here, p.query_base, blocks, OWN_BLOCKS, format),
                Await(rows * blocks, OWN_BLOCKS),
                Attend(rows, p.group, segment.position + start, size, size, p.query_base, result, table, format),
            ]
        return commands


def join_layers(
    parts: Sequence[tuple[int, Layer, dict[str, Bits]]],
) -> tuple[Layer, tuple[Segment, ...], dict[str, Bits]]:
    """The work of several sequences as one: (sequence, work, results) of each, as `golden.layer.run_layer` gives them.

    Returns the work, its segments, and the results, rows behind one another.
    """
    first = parts[0][1]
    x, cosine, sine = (
        np.concatenate([getattr(layer, name) for _, layer, _ in parts]) for name in ("x", "cosine", "sine")
    )
    joined = Layer(first.model, first.weights, x, cosine, sine, first.products)
    segments = tuple(Segment(sequence, layer.position, len(layer.x)) for sequence, layer, _ in parts)
    names = parts[0][2]
    return joined, segments, {name: np.concatenate([results[name] for _, _, results in parts]) for name in names}


def lower_batch(config: ChipConfig, layer: Layer, segments: tuple[Segment, ...]) -> LayerPlan:
    """As `golden.layer.lower_layer`, of rows of several sequences. The tiles have an attention engine."""
    tiles: list[BatchProgram] = []

    def program(config: ChipConfig, layer: Layer, places: Places, index: int) -> BatchProgram:
        tiles.append(BatchProgram(config, layer, places, index, segments=segments))
        return tiles[-1]

    plan = lower_layer(config, layer, program)
    lowest = min(tiles[0].cache(segment.sequence) for segment in segments)
    if max(tile.granules for tile in tiles) > lowest:
        raise ConfigError(
            f"chip '{config.name}': the KV caches of {len(segments)} sequences begin at granule {lowest}, among the "
            "weights"
        )
    return plan
