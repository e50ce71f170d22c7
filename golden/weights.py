"""Quantised matrices as the tiles' HBM holds them: the layout of "Weights in memory" in docs/interfaces.md.

A matrix [N, K] is split over tiles by outputs (N), never by K. Inside a tile its outputs go in groups of `group`
(array columns times accumulator slots); the last group has the outputs that are left, rounded up to whole array
columns. The block sequence is: for each group, for each K block ascending, one block for each output of the group
ascending. Every 32 blocks are a frame: 32 scale bytes, then the elements of the 32 blocks
packed without gaps, element 0 in the lowest bits. Outputs that a tile does not have are zero blocks with scale byte 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]

BLOCK = 32  # elements that share a scale
GRANULE = 32  # bytes
FRAME = 32  # blocks
WIDTHS = (4, 6, 8)  # bits an element


def frame_granules(width: int) -> int:
    """Granules of one frame of elements of `width` bits: one of scales, then 4 bytes a block for each bit."""
    if width not in WIDTHS:
        raise ValueError(f"elements must be {', '.join(map(str, WIDTHS))} bits wide, not {width}")
    return 1 + FRAME * BLOCK * width // 8 // GRANULE


def image_granules(outputs: int, inputs: int, columns: int, width: int) -> int:
    """Granules of a shard of `outputs` x `inputs`: outputs in whole array columns, and a whole last frame."""
    blocks = -(-outputs // columns) * columns * (inputs // BLOCK)
    return -(-blocks // FRAME) * frame_granules(width)


def split_outputs(outputs: int, tiles: int) -> list[range]:
    """The outputs of each tile: contiguous, ceil(N / tiles) each, so the last tiles may have fewer or none."""
    if outputs < 1 or tiles < 1:
        raise ValueError(f"outputs and tiles must be at least 1, not {outputs} and {tiles}")
    share = -(-outputs // tiles)
    return [range(min(t * share, outputs), min((t + 1) * share, outputs)) for t in range(tiles)]


def pack_elements(codes: Bytes, width: int) -> Bytes:
    """Codes [blocks, 32] of `width` bits to bytes [blocks, 4 * width], little-endian, no gaps between elements."""
    if codes.size and int(codes.max()) >> width:
        raise ValueError(f"code {int(codes.max())} does not fit in {width} bits")
    if width == 8:
        return codes
    bits = np.unpackbits(codes[..., None], axis=-1, bitorder="little")[..., :width]
    return np.packbits(bits.reshape(len(codes), BLOCK * width), axis=-1, bitorder="little")


def unpack_elements(packed: Bytes, width: int) -> Bytes:
    """The inverse of `pack_elements`: bytes [blocks, 4 * width] to codes [blocks, 32]."""
    if width == 8:
        return packed
    bits = np.unpackbits(packed, axis=-1, bitorder="little").reshape(len(packed), BLOCK, width)
    return np.packbits(bits, axis=-1, bitorder="little")[..., 0]


@dataclass(frozen=True)
class Shard:
    """One tile's part of a matrix in its memory image; `offset` and `granules` are in granules of 32 bytes."""

    name: str
    outputs: range
    inputs: int
    group: int
    columns: int
    width: int
    offset: int
    granules: int

    @property
    def padded_outputs(self) -> int:
        """Outputs that the stream holds: whole array columns."""
        return -(-len(self.outputs) // self.columns) * self.columns


def _order(outputs: int, k_blocks: int, group: int) -> NDArray[np.int64]:
    """Index (output * k_blocks + k) of each block of the stream, in the stream's order."""
    index = np.arange(outputs * k_blocks).reshape(outputs, k_blocks)
    whole = outputs // group * group
    groups = [index[:whole].reshape(-1, group, k_blocks).swapaxes(1, 2).reshape(-1), index[whole:].T.reshape(-1)]
    return np.concatenate(groups)


def pack(codes: Bytes, scales: Bytes, group: int, columns: int, width: int) -> Bytes:
    """A tile's outputs, codes [n, K] and scales [n, K/32], as its byte stream (a whole number of frames)."""
    _check(codes, scales, group, columns, width)
    outputs, inputs = codes.shape
    k_blocks = inputs // BLOCK
    padded = -(-outputs // columns) * columns
    blocks = padded * k_blocks
    frames = -(-blocks // FRAME)
    elements = np.zeros((padded * k_blocks, BLOCK), np.uint8)
    elements[: outputs * k_blocks] = codes.reshape(-1, BLOCK)
    scale = np.zeros(padded * k_blocks, np.uint8)
    scale[: outputs * k_blocks] = scales.reshape(-1)
    order = _order(padded, k_blocks, group)
    image = np.zeros((frames, frame_granules(width) * GRANULE), np.uint8)
    flat = np.zeros((frames * FRAME, BLOCK * width // 8), np.uint8)
    flat[:blocks] = pack_elements(elements[order], width)
    image[:, FRAME:] = flat.reshape(frames, -1)
    flat_scale = np.zeros(frames * FRAME, np.uint8)
    flat_scale[:blocks] = scale[order]
    image[:, :FRAME] = flat_scale.reshape(frames, FRAME)
    return image.reshape(-1)


def unpack(image: Bytes, outputs: int, inputs: int, group: int, columns: int, width: int) -> tuple[Bytes, Bytes]:
    """The inverse of `pack`: codes [outputs, inputs] and scales [outputs, inputs/32] of a shard's bytes."""
    granules = image_granules(outputs, inputs, columns, width)
    if len(image) != granules * GRANULE:
        raise ValueError(
            f"{outputs} x {inputs} in columns of {columns} takes {granules * GRANULE} bytes, not {len(image)}"
        )
    k_blocks = inputs // BLOCK
    padded = -(-outputs // columns) * columns
    blocks = padded * k_blocks
    order = _order(padded, k_blocks, group)
    frames = image.reshape(-1, frame_granules(width) * GRANULE)
    scales = np.empty(blocks, np.uint8)
    scales[order] = frames[:, :FRAME].reshape(-1)[:blocks]
    codes = np.empty((blocks, BLOCK), np.uint8)
    codes[order] = unpack_elements(frames[:, FRAME:].reshape(-1, BLOCK * width // 8)[:blocks], width)
    return codes.reshape(padded, inputs)[:outputs], scales.reshape(padded, k_blocks)[:outputs]


def pack_matrices(
    matrices: Mapping[str, tuple[Bytes, Bytes]], tiles: int, group: int, columns: int, width: int, base: int = 0
) -> tuple[list[Bytes], list[list[Shard]]]:
    """Matrices, name to (codes [N, K], scales [N, K/32]), one after the other from granule `base` of each tile.

    Returns, for each tile, the image's bytes (from granule `base`) and the shards in the order of the mapping. Shards
    begin on the same granule in every tile, so that one program serves all tiles.
    """
    images: list[list[Bytes]] = [[] for _ in range(tiles)]
    shards: list[list[Shard]] = [[] for _ in range(tiles)]
    offset = base
    for name, (codes, scales) in matrices.items():
        _check(codes, scales, group, columns, width)
        ranges = split_outputs(len(codes), tiles)
        granules = image_granules(len(ranges[0]), codes.shape[1], columns, width)
        for tile, outputs in enumerate(ranges):
            part = slice(outputs.start, outputs.stop)
            stream = pack(codes[part], scales[part], group, columns, width) if len(outputs) else np.zeros(0, np.uint8)
            padding = np.zeros(granules * GRANULE - len(stream), np.uint8)
            images[tile].append(np.concatenate([stream, padding]))
            used = len(stream) // GRANULE
            shards[tile].append(Shard(name, outputs, codes.shape[1], group, columns, width, offset, used))
        offset += granules
    return [np.concatenate(parts) if parts else np.zeros(0, np.uint8) for parts in images], shards


def unpack_shard(image: Bytes, shard: Shard, base: int = 0) -> tuple[Bytes, Bytes]:
    """Codes and scales of one shard of a tile's image, whose first byte is granule `base`."""
    if not len(shard.outputs):
        return np.zeros((0, shard.inputs), np.uint8), np.zeros((0, shard.inputs // BLOCK), np.uint8)
    start = (shard.offset - base) * GRANULE
    part = image[start : start + shard.granules * GRANULE]
    return unpack(part, len(shard.outputs), shard.inputs, shard.group, shard.columns, shard.width)


def _check(codes: Bytes, scales: Bytes, group: int, columns: int, width: int) -> None:
    frame_granules(width)
    if columns < 1 or group < 1 or group % columns:
        raise ValueError(f"a group must be one or more whole sets of columns, not {group} outputs of {columns} columns")
    if codes.dtype != np.uint8 or scales.dtype != np.uint8:
        raise ValueError(f"codes and scales must be uint8, not {codes.dtype} and {scales.dtype}")
    if codes.ndim != 2 or not codes.size or codes.shape[1] % BLOCK:
        raise ValueError(f"codes must be [N, K] with K a multiple of {BLOCK}, not {codes.shape}")
    wanted = (len(codes), codes.shape[1] // BLOCK)
    if scales.shape != wanted:
        raise ValueError(f"scales must be {wanted}, not {scales.shape}")
