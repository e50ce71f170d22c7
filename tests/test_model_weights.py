"""The HBM image of quantised matrices: against the layout written down in docs/interfaces.md, and back again."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from golden import weights
from golden.formats import FORMATS, MXINT8
from golden.formats_scale import scale_bits

PACKED = [format for format in FORMATS.values() if format.bits in weights.WIDTHS]


@st.composite
def matrices(draw):
    n, k_blocks = draw(st.integers(1, 70)), draw(st.integers(1, 6))
    format = draw(st.sampled_from(PACKED))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    codes = random.integers(0, 1 << format.bits, (n, 32 * k_blocks), np.uint8)
    scales = random.integers(0, 1 << scale_bits(format), (n, k_blocks), np.uint64).astype(weights.scale_type(format))
    return codes, scales, format


def stream_by_the_page(codes, scales, group, columns, format):
    """The byte stream, element by element, straight from the words of docs/interfaces.md."""
    outputs, k = codes.shape
    blocks = []
    for first in range(0, outputs, group):
        for block in range(k // 32):
            left = -(-(outputs - first) // columns) * columns
            for output in range(first, first + min(group, left)):
                if output < outputs:
                    blocks.append((scales[output, block], codes[output, block * 32 : block * 32 + 32]))
                else:
                    blocks.append((0, np.zeros(32, np.uint8)))
    while len(blocks) % 32:
        blocks.append((0, np.zeros(32, np.uint8)))
    stream = bytearray()
    for first in range(0, len(blocks), 32):
        frame = blocks[first : first + 32]
        size = {8: 1, 16: 2, 21: 4, 32: 4}[scale_bits(format)]
        stream += b"".join(int(scale).to_bytes(size, "little") for scale, _ in frame)
        for _, elements in frame:
            number = sum(int(code) << (format.bits * i) for i, code in enumerate(elements))
            stream += number.to_bytes(4 * format.bits, "little")
    return bytes(stream)


@settings(max_examples=60, deadline=None)
@given(matrices(), st.integers(1, 9), st.integers(1, 5))
def test_layout_is_the_pages(matrix, slots, columns):
    codes, scales, format = matrix
    image = weights.pack(codes, scales, slots * columns, columns, format)
    assert image.tobytes() == stream_by_the_page(codes, scales, slots * columns, columns, format)
    assert len(image) == 32 * weights.image_granules(*codes.shape, columns, format)


@settings(max_examples=60, deadline=None)
@given(matrices(), st.integers(1, 9), st.integers(1, 5), st.integers(1, 9), st.integers(0, 1000))
def test_shards_give_the_matrix_back(matrix, slots, columns, tiles, base):
    codes, scales, format = matrix
    named = {"first": (codes, scales), "second": (codes[::-1].copy(), scales[::-1].copy())}
    images, shards = weights.pack_matrices(named, tiles, slots * columns, columns, format, base)
    assert len(images) == len(shards) == tiles
    assert len({len(image) for image in images}) == 1
    for index, (wanted_codes, wanted_scales) in enumerate(named.values()):
        parts = [weights.unpack_shard(images[t], shards[t][index], base) for t in range(tiles)]
        assert np.array_equal(np.concatenate([p[0] for p in parts]), wanted_codes)
        assert np.array_equal(np.concatenate([p[1] for p in parts]), wanted_scales)
        outputs = [n for t in range(tiles) for n in shards[t][index].outputs]
        assert outputs == list(range(len(codes)))
    for t in range(tiles):
        first, second = shards[t]
        assert first.offset == base
        assert second.offset >= first.offset + first.granules
        assert (second.offset + second.granules - base) * 32 <= len(images[t])


def test_a_changed_byte_is_seen():
    codes = np.arange(64 * 32, dtype=np.uint32).astype(np.uint8).reshape(64, 32)
    scales = np.full((64, 1), 127, np.uint8)
    image = weights.pack(codes, scales, 16, 4, MXINT8)
    image[40] ^= 1
    found, _ = weights.unpack(image, 64, 32, 16, 4, MXINT8)
    assert np.count_nonzero(found != codes) == 1


@pytest.mark.parametrize(
    ("name", "granules"),
    [("MXINT8", 33), ("E2M3", 25), ("E2M1", 17), ("NVFP4", 18), ("INT4_BF16", 18), ("E4M3_FP32", 36), ("Q4_1", 20),
     ("UINT4_ZERO", 20)],
)  # fmt: skip
def test_frame_sizes(name, granules):
    assert weights.frame_granules(FORMATS[name]) == granules


@pytest.mark.parametrize(
    ("codes", "scales", "group", "columns", "message"),
    [
        ((4, 33), (4, 1), 4, 2, "multiple of 32"),
        ((4, 32), (4, 2), 4, 2, "scales must be"),
        ((4, 32), (4, 1), 0, 1, "whole sets of columns"),
        ((4, 32), (4, 1), 6, 4, "whole sets of columns"),
        ((0, 32), (0, 1), 4, 2, "multiple of 32"),
    ],
)
def test_bad_shapes_are_refused(codes, scales, group, columns, message):
    with pytest.raises(ValueError, match=message):
        weights.pack(np.zeros(codes, np.uint8), np.zeros(scales, np.uint8), group, columns, MXINT8)


def test_scale_words_of_the_wrong_type_are_refused():
    with pytest.raises(ValueError, match="uint32 for NVFP4"):
        weights.pack(np.zeros((4, 32), np.uint8), np.zeros((4, 1), np.uint8), 4, 2, FORMATS["NVFP4"])


def test_code_too_wide_is_refused():
    with pytest.raises(ValueError, match="does not fit in 4 bits"):
        weights.pack(np.full((1, 32), 16, np.uint8), np.zeros((1, 1), np.uint8), 1, 1, FORMATS["INT4"])


def test_wrong_image_size_is_refused():
    with pytest.raises(ValueError, match="bytes, not"):
        weights.unpack(np.zeros(64, np.uint8), 4, 32, 4, 2, MXINT8)
