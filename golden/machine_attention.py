"""The attention of the golden machine: its KV cache as bytes of the tile's memory, by `golden.attention`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden import vector
from golden.attention import LEAF, AttentionShape, Leaf, leaf_partial, merge_tree, visibility
from golden.attention_layout import leaf_from_image, leaf_granules, token_writes
from golden.formats import BLOCK, FORMATS
from golden.fp32_ops import ONE, Bits
from golden.vector import Partial
from hw.numerics.formats import ElementFormat
from hw.vector.leaves import PAGES

Bytes = NDArray[np.uint8]


class AttentionMachine:
    """`memory` uint8 [granules, 32] is what the tile's memory holds, `pages` the page table, `sinks` [slot, row]."""

    def __init__(self, image: Bytes, granules: int) -> None:
        self.memory = np.zeros((granules, BLOCK), np.uint8)
        self.memory.reshape(-1)[: len(image)] = image
        self.pages = [0] * PAGES
        self.sinks = np.zeros((2, 256), np.uint32)

    def append(self, token: Any, row: int, numbers: Bits) -> None:
        """Token `row` of an APPEND: its key and behind it its value (none of a latent one), uint32."""
        shape, position = _shape(token, 1), int(token.position) + row
        base = self.pages[int(token.table) + position // LEAF]
        keys, values = numbers[: shape.key_size], numbers[shape.key_size :]
        for write in token_writes(keys, values, position, base, shape):
            chosen = [bool(write.strobe >> byte & 1) for byte in range(BLOCK)]
            self.memory[write.address, chosen] = write.data[chosen]

    def attend(self, command: Any, query: tuple[Bytes, Bytes]) -> Bits:
        """Rows uint32 [rows, value_size] of quantised query rows: codes [rows, key_size] and their scales.

        Of a partial command [rows, value_size + 8], as `golden.vector.export` gives them.
        """
        shape = _shape(command, int(command.group))
        positions = int(command.position) + np.arange(command.rows) // int(command.group)
        parts = {}
        for index in range(command.first_leaf, command.last_leaf + 1):
            visible = visibility(positions, index, int(command.window))
            parts[index] = leaf_partial(query, self._leaf(command, index, shape), visible, shape.format)
        part = merge_tree(parts, vector.merge)
        if command.partial:
            return vector.export(part)
        if command.sink:
            logits = self.sinks[int(command.sink_slot), : int(command.rows)]
            part = vector.merge(part, Partial(logits, np.full_like(logits, ONE), np.zeros_like(part.output)))
        return vector.finish(part)

    def _leaf(self, command: Any, index: int, shape: AttentionShape) -> Leaf:
        """What lies in memory, with 0 for a value's codes that are no numbers: none was ever stored."""
        base = self.pages[int(command.table) + index]
        leaf = leaf_from_image(self.memory[base : base + leaf_granules(shape)], shape)
        if shape.format.element.is_integer:
            return leaf
        numbers = (leaf.value_codes & 0x7F) <= shape.format.element.max_code
        return replace(leaf, value_codes=np.where(numbers, leaf.value_codes, 0).astype(np.uint8))


def _shape(command: Any, group: int) -> AttentionShape:
    format = FORMATS[ElementFormat(command.element).name]
    sizes = BLOCK * int(command.key_blocks), BLOCK * int(command.value_groups)
    return AttentionShape(group, 1, *sizes, format, latent=bool(command.latent))
