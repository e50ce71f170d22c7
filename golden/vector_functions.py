"""`golden.model_functions.Functions` as the chip computes them: vector engine passes, and attention on the tile."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from golden import vector
from golden.attention import LEAF, AttentionShape, PagedCache, attention, query_factor
from golden.formats import MXINT8, Format
from golden.fp32_ops import Bits, from_float, to_float
from golden.model_functions import Floats
from golden.rope_tables import rope_table

_TABLE_STEP = 256


def _bits(values: Floats) -> Bits:
    return np.ascontiguousarray(values, np.float32).view(np.uint32)


class ChipFunctions:
    """What stands between a layer's products, bit for bit as the vector unit and the array give it. float32 arrays.

    `format` is that of query, key, value and softmax weight.
    """

    def __init__(self, format: Format = MXINT8) -> None:
        self.format = format

    def rms_norm(self, x: Floats, gain: Floats, epsilon: float) -> Floats:
        """[M, hidden] and [hidden] to [M, hidden]."""
        return to_float(vector.rms_norm(_bits(x), _bits(gain), from_float(epsilon)[()]))

    def rope(self, x: Floats, positions: NDArray[np.int64], base: float) -> Floats:
        """[M, heads, head_size], rotated by the angles of positions [M]."""
        if base != int(base):
            raise ValueError(f"the RoPE base must be a whole number, not {base}")
        length = -(-(int(positions.max()) + 1) // _TABLE_STEP) * _TABLE_STEP
        cosine, sine = (table[positions][:, None] for table in rope_table(int(base), x.shape[-1], length))
        return to_float(vector.rope(_bits(x), cosine, sine))

    def attention(self, q: Floats, keys: Floats, values: Floats, positions: NDArray[np.int64]) -> Floats:
        """q [M, heads, head_size], keys and values [T, kv_heads, head_size] to [M, heads, head_size], causal."""
        shape = AttentionShape(q.shape[1], keys.shape[1], q.shape[2], values.shape[2], self.format)
        pages = -(-len(keys) // LEAF)
        cache, table = PagedCache(shape, pages), np.arange(pages)
        cache.append(table, np.arange(len(keys)), _bits(keys), _bits(values))
        query = vector.scale(_bits(q), query_factor(shape.key_size))
        return to_float(attention(query, positions, cache, table))

    def swiglu(self, gate: Floats, up: Floats) -> Floats:
        """silu(gate) * up, elementwise."""
        return to_float(vector.swiglu(_bits(gate), _bits(up)))

    def add(self, x: Floats, y: Floats) -> Floats:
        """The residual connection."""
        return to_float(vector.add(_bits(x), _bits(y)))
