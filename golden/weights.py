"""Quantised matrices as the tiles' HBM holds them: the layout of "Weights in memory" in docs/interfaces.md.

A matrix [N, K] is split over tiles by outputs (N), never by K. Inside a tile its outputs go in groups of `group`
(array columns times accumulator slots); the last group has the outputs that are left, rounded up to whole array
columns. The block sequence is: for each group, for each K block ascending, one block for each output of the group
ascending. Every 32 blocks are a frame: their 32 scale words of 1, 2 or 4 bytes, then their elements packed
without gaps, element 0 in the lowest bits. Outputs that a tile does not have are zero blocks with scale word 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.formats import BLOCK, Format
from golden.formats_scale import scale_bits

Bytes = NDArray[np.uint8]
Scales = NDArray[Any]

GRANULE = 32  # bytes
FRAME = 32  # blocks
WIDTHS = (4, 6, 8)  # bits an element


def scale_bytes(format: Format) -> int:
    """Bytes that a scale word takes in memory: a power of two."""
    return 1 << (scale_bits(format) - 1).bit_length() - 3


def scale_type(format: Format) -> type[np.unsignedinteger]:
    """NumPy type of scale words in golden functions: bytes for E8M0, else 32 bits."""
    return np.uint8 if scale_bits(format) == 8 else np.uint32


def frame_granules(format: Format) -> int:
    """Granules of one frame: one for each byte of a scale word, then as many bytes as its elements have bits, by 4."""
    if format.bits not in WIDTHS:
        raise ValueError(f"elements must be {', '.join(map(str, WIDTHS))} bits wide, not {format.bits}")
    return scale_bytes(format) + FRAME * BLOCK * format.bits // 8 // GRANULE


def image_granules(outputs: int, inputs: int, columns: int, format: Format) -> int:
    """Granules of a shard of `outputs` x `inputs`: outputs in whole array columns, and a whole last frame."""
    blocks = -(-outputs // columns) * columns * (inputs // BLOCK)
    return -(-blocks // FRAME) * frame_granules(format)


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
    format: Format
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


def pack(codes: Bytes, scales: Scales, group: int, columns: int, format: Format) -> Bytes:
    """A tile's outputs, codes [n, K] and scale words [n, K/32], as its byte stream (a whole number of frames)."""
    _check(codes, scales, group, columns, format)
    outputs, inputs = codes.shape
    k_blocks = inputs // BLOCK
    padded = -(-outputs // columns) * columns
    blocks = padded * k_blocks
    frames = -(-blocks // FRAME)
    order = _order(padded, k_blocks, group)
    elements = np.zeros((padded * k_blocks, BLOCK), np.uint8)
    elements[: outputs * k_blocks] = codes.reshape(-1, BLOCK)
    words = np.zeros(padded * k_blocks, f"<u{scale_bytes(format)}")
    words[: outputs * k_blocks] = scales.reshape(-1)
    packed = np.zeros((frames * FRAME, BLOCK * format.bits // 8), np.uint8)
    packed[:blocks] = pack_elements(elements[order], format.bits)
    ordered = np.zeros(frames * FRAME, words.dtype)
    ordered[:blocks] = words[order]
    parts = [ordered.view(np.uint8).reshape(frames, -1), packed.reshape(frames, -1)]
    return np.concatenate(parts, axis=1).reshape(-1)


def unpack(image: Bytes, outputs: int, inputs: int, group: int, columns: int, format: Format) -> tuple[Bytes, Scales]:
    """The inverse of `pack`: codes [outputs, inputs] and scale words [outputs, inputs/32] of a shard's bytes."""
    granules = image_granules(outputs, inputs, columns, format)
    if len(image) != granules * GRANULE:
        raise ValueError(
            f"{outputs} x {inputs} in columns of {columns} takes {granules * GRANULE} bytes, not {len(image)}"
        )
    k_blocks = inputs // BLOCK
    padded = -(-outputs // columns) * columns
    blocks = padded * k_blocks
    order = _order(padded, k_blocks, group)
    frames = image.reshape(-1, frame_granules(format) * GRANULE)
    split = scale_bytes(format) * FRAME
    words = np.ascontiguousarray(frames[:, :split]).reshape(-1).view(f"<u{scale_bytes(format)}")
    scales = np.empty(blocks, scale_type(format))
    scales[order] = words[:blocks]
    codes = np.empty((blocks, BLOCK), np.uint8)
    codes[order] = unpack_elements(frames[:, split:].reshape(-1, BLOCK * format.bits // 8)[:blocks], format.bits)
    return codes.reshape(padded, inputs)[:outputs], scales.reshape(padded, k_blocks)[:outputs]


def pack_matrices(
    matrices: Mapping[str, tuple[Bytes, Scales]], tiles: int, group: int, columns: int, format: Format, base: int = 0
) -> tuple[list[Bytes], list[list[Shard]]]:
    """Matrices, name to (codes [N, K], scales [N, K/32]), one after the other from granule `base` of each tile.

    Returns, for each tile, the image's bytes (from granule `base`) and the shards in the order of the mapping. Shards
    begin on the same granule in every tile, so that one program serves all tiles.
    """
    images: list[list[Bytes]] = [[] for _ in range(tiles)]
    shards: list[list[Shard]] = [[] for _ in range(tiles)]
    offset = base
    for name, (codes, scales) in matrices.items():
        _check(codes, scales, group, columns, format)
        ranges = split_outputs(len(codes), tiles)
        granules = image_granules(len(ranges[0]), codes.shape[1], columns, format)
        for tile, outputs in enumerate(ranges):
            part = slice(outputs.start, outputs.stop)
            stream = pack(codes[part], scales[part], group, columns, format) if len(outputs) else np.zeros(0, np.uint8)
            padding = np.zeros(granules * GRANULE - len(stream), np.uint8)
            images[tile].append(np.concatenate([stream, padding]))
            used = len(stream) // GRANULE
            shards[tile].append(Shard(name, outputs, codes.shape[1], group, columns, format, offset, used))
        offset += granules
    return [np.concatenate(parts) if parts else np.zeros(0, np.uint8) for parts in images], shards


def unpack_shard(image: Bytes, shard: Shard, base: int = 0) -> tuple[Bytes, Scales]:
    """Codes and scales of one shard of a tile's image, whose first byte is granule `base`."""
    if not len(shard.outputs):
        return np.zeros((0, shard.inputs), np.uint8), np.zeros((0, shard.inputs // BLOCK), scale_type(shard.format))
    start = (shard.offset - base) * GRANULE
    part = image[start : start + shard.granules * GRANULE]
    return unpack(part, len(shard.outputs), shard.inputs, shard.group, shard.columns, shard.format)


def _check(codes: Bytes, scales: Scales, group: int, columns: int, format: Format) -> None:
    frame_granules(format)
    if columns < 1 or group < 1 or group % columns:
        raise ValueError(f"a group must be one or more whole sets of columns, not {group} outputs of {columns} columns")
    if codes.dtype != np.uint8 or scales.dtype != scale_type(format):
        wanted_type = np.dtype(scale_type(format))
        raise ValueError(
            f"codes and scales must be uint8 and {wanted_type} for {format.name}, not {codes.dtype} and {scales.dtype}"
        )
    if codes.ndim != 2 or not codes.size or codes.shape[1] % BLOCK:
        raise ValueError(f"codes must be [N, K] with K a multiple of {BLOCK}, not {codes.shape}")
    wanted = (len(codes), codes.shape[1] // BLOCK)
    if scales.shape != wanted:
        raise ValueError(f"scales must be {wanted}, not {scales.shape}")
