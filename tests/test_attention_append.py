"""What appending a token writes, against the image of the golden cache; and the hardware's division by the group."""

import numpy as np
import pytest

from golden.attention import LEAF, AttentionShape, PagedCache
from golden.attention_layout import leaf_granules, leaf_image, token_writes
from golden.formats import E4M3, MXINT8
from golden.fp32_ops import INFINITY, NAN, from_float

SHAPES = {
    "head": AttentionShape(1, 1, 64, 64),
    "E4M3": AttentionShape(1, 1, 64, 64, E4M3),
    "wide": AttentionShape(1, 1, 32, 128),
    "latent": AttentionShape(1, 1, 96, 64, latent=True),
    "whole_latent": AttentionShape(1, 1, 64, 64, MXINT8, latent=True),
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_writes_make_the_image(shape):
    """Tokens written one by one into garbage give, in their places, what the golden cache has."""
    generator = np.random.default_rng(1)
    keys = from_float(generator.normal(size=(LEAF, 1, shape.key_size)))
    values = from_float(generator.normal(size=(LEAF, 1, shape.value_size)))
    keys[3, 0, 1], values[4, 0, 2] = NAN, INFINITY
    cache = PagedCache(shape, 1)
    cache.append(np.array([0]), np.arange(LEAF), keys, values)
    image = generator.integers(0, 256, (leaf_granules(shape), 32)).astype(np.uint8)
    for position in generator.permutation(LEAF):
        for write in token_writes(keys[position, 0], values[position, 0], int(position), 0, shape):
            chosen = [write.strobe >> byte & 1 for byte in range(32)]
            image[write.address] = np.where(chosen, write.data, image[write.address])
    expected = leaf_image(cache.leaf(np.array([0]), 0, 0, LEAF), shape)
    assert (image == expected).all()


def test_row_over_group():
    """The receiver's quotient, row * ceil(2**16 / group) >> 16, for every row and group that a command can have."""
    rows, groups = np.arange(256)[:, None], np.arange(1, 256)[None, :]
    assert (rows * -(-(1 << 16) // groups) >> 16 == rows // groups).all()
