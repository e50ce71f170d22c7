"""BF16 operands on an array of block formats: planes of MXINT8 that meet one after the other along K.

A BF16 value is the sum of its planes (`golden.quantise.split_bf16`), and a sum of products over K does not care which
block of K is a plane: an operand of P planes is a matrix of P times as many blocks, and the other side's block comes
once for each. No hardware of its own, any format on the other side; the price is that many more block dots, and the
other side's blocks in memory once for each plane.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from golden.formats import BLOCK, MXINT8
from golden.model import Quantised
from golden.quantise import split_bf16


def bf16_operand(values: NDArray[np.uint32], planes: int = 2) -> list[Quantised]:
    """The planes of FP32 (or BF16 << 16) patterns uint32 [rows, K], the most significant first."""
    return [Quantised(codes, scales, MXINT8) for codes, scales in split_bf16(values, planes)]


def meet(activations: list[Quantised], weights: list[Quantised]) -> tuple[Quantised, Quantised]:
    """Two operands of one or more planes as the two matrices of one product.

    For each block of K come all pairs of planes, those of the weights innermost: the order of docs/numerics.md.
    Raises ValueError where the planes of an operand are not of one shape and format.
    """
    pairs = [(a, b) for a in activations for b in weights]
    return _along_k([a for a, _ in pairs]), _along_k([b for _, b in pairs])


def _along_k(planes: list[Quantised]) -> Quantised:
    shapes = {(plane.codes.shape, plane.format) for plane in planes}
    if len(shapes) != 1:
        raise ValueError(f"planes of one operand have one shape and format, not {len(shapes)}")
    rows = len(planes[0].codes)
    codes = np.stack([plane.codes.reshape(rows, -1, BLOCK) for plane in planes], axis=2)
    scales = np.stack([plane.scales for plane in planes], axis=2)
    return Quantised(codes.reshape(rows, -1), scales.reshape(rows, -1), planes[0].format)
