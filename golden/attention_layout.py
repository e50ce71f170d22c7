"""How a leaf of the KV cache lies in memory: the granules that `hw.vector.kv.KvFetcher` reads.

One leaf (128 positions) of one key head, in order:

1. 4 granules: the value scale of each position, a byte each;
2. for each 32 positions, for each key block: a granule with the 32 positions' scales of that block, then 32 granules,
   each one position's 32 elements;
3. unless the shape is latent, for each 32 channels of the value, for each 32 positions: 32 granules, each one
   position's 32 channels.

A new token changes single bytes of (1) and of the scale granules, and whole granules of the rest; nothing moves.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from golden.attention import LEAF, AttentionShape, Bytes, Leaf, per_token, quantise_keys
from golden.formats import BLOCK
from golden.fp32_ops import Bits

SQUARES = LEAF // BLOCK


def leaf_granules(shape: AttentionShape) -> int:
    """Granules of one leaf of one key head."""
    keys = shape.key_size // BLOCK * SQUARES * (1 + BLOCK)
    return SQUARES + keys + (0 if shape.latent else shape.value_size // BLOCK * LEAF)


def leaf_image(leaf: Leaf, shape: AttentionShape) -> Bytes:
    """The leaf as it lies in memory: uint8 [granules, 32]. Elements of 8 bits; `ValueError` for narrower ones."""
    if shape.format.bits != 8:
        raise ValueError(f"The KV cache holds elements of 8 bits, not {shape.format.name}")
    blocks = shape.key_size // BLOCK
    keys = leaf.key_codes.reshape(SQUARES, BLOCK, blocks, BLOCK).transpose(0, 2, 1, 3)
    scales = leaf.key_scales.reshape(SQUARES, BLOCK, blocks).transpose(0, 2, 1)
    frames = np.concatenate([scales[:, :, None, :], keys], axis=2).reshape(-1, BLOCK)
    parts = [leaf.value_scales.reshape(SQUARES, BLOCK), frames]
    if not shape.latent:
        values = leaf.value_codes.reshape(SQUARES, BLOCK, -1, BLOCK).transpose(2, 0, 1, 3)
        parts.append(values.reshape(-1, BLOCK))
    image = np.concatenate(parts)
    assert len(image) == leaf_granules(shape)
    return image


def leaf_from_image(image: Bytes, shape: AttentionShape) -> Leaf:
    """The inverse of `leaf_image`."""
    blocks, size = shape.key_size // BLOCK, shape.key_size
    keys = SQUARES + blocks * SQUARES * (1 + BLOCK)
    frames = image[SQUARES:keys].reshape(SQUARES, blocks, 1 + BLOCK, BLOCK)
    key_codes = np.ascontiguousarray(frames[:, :, 1:].transpose(0, 2, 1, 3).reshape(LEAF, size))
    values = key_codes[:, : shape.value_size]
    if not shape.latent:
        stored = image[keys:].reshape(-1, SQUARES, BLOCK, BLOCK)
        values = np.ascontiguousarray(stored.transpose(1, 2, 0, 3).reshape(LEAF, -1))
    key_scales = np.ascontiguousarray(frames[:, :, 0].transpose(0, 2, 1).reshape(LEAF, blocks))
    return Leaf(key_codes, key_scales, values, image[:SQUARES].reshape(-1).copy())


class GranuleWrite(NamedTuple):
    """A granule for the memory: its address, 32 bytes, and which of them are written."""

    address: int
    data: Bytes
    strobe: int


def token_writes(keys: Bits, values: Bits, position: int, base: int, shape: AttentionShape) -> list[GranuleWrite]:
    """What `hw.vector.append.KvAppender` writes for one token of one key head, in its order.

    keys uint32 [key_size] (after RoPE), values uint32 [value_size] (ignored where `latent`); `base` is the granule at
    which the leaf of `position` lies.
    """
    codes, scales = quantise_keys(np.asarray(keys), shape)
    square, place, inside = position % LEAF // BLOCK, position % BLOCK, position % LEAF
    blocks, whole = shape.key_size // BLOCK, (1 << BLOCK) - 1
    writes = []

    def byte(address: int, scale: int) -> None:
        writes.append(GranuleWrite(address, np.full(BLOCK, scale, np.uint8), 1 << place))

    for block in range(blocks):
        frame = base + SQUARES + (square * blocks + block) * (1 + BLOCK)
        writes.append(GranuleWrite(frame + 1 + place, codes[BLOCK * block : BLOCK * (block + 1)], whole))
        byte(frame, scales[block])
        if shape.latent and block + 1 == shape.value_size // BLOCK:
            byte(base + square, scales[0])
    if not shape.latent:
        value_codes, value_scale = per_token(np.asarray(values), shape.format)
        first = base + SQUARES + blocks * SQUARES * (1 + BLOCK)
        for group, part in enumerate(value_codes.reshape(-1, BLOCK)):
            writes.append(GranuleWrite(first + group * LEAF + inside, part, whole))
        byte(base + square, value_scale)
    return writes
