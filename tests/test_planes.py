"""BF16 operands as planes: through the compiler and the golden machine, to the specification's own bits."""

import numpy as np
import pytest

from golden import dot
from golden.compiler import lower, results
from golden.formats import FORMATS, MXINT8
from golden.model import Product, Quantised
from golden.planes import bf16_operand, meet
from tests.test_lower import SMALL, run_machines


def bf16(numbers: np.random.Generator, *shape: int) -> np.ndarray:
    return numbers.standard_normal(shape, np.float32).view(np.uint32) & np.uint32(0xFFFF0000)


@pytest.mark.parametrize(("a_planes", "b_planes"), [(2, 0), (0, 2), (2, 2), (3, 1)])
def test_bf16_products_run_on_the_tile(a_planes, b_planes):
    numbers = np.random.default_rng(a_planes * 4 + b_planes)
    a_bits, b_bits = bf16(numbers, 5, 64), bf16(numbers, 13, 64)

    def operand(bits, planes):
        return bf16_operand(bits, planes) if planes else [Quantised.of(bits.view(np.float32), MXINT8)]

    a, b = operand(a_bits, a_planes), operand(b_bits, b_planes)
    product = Product("bf16", 0, *meet(a, b))
    plan = lower(SMALL, [[product]])
    found = results(SMALL, plan.phases[0].products[0], run_machines(plan))

    expected = np.zeros((5, 13), np.uint32)
    for block in range(2):
        part = slice(32 * block, 32 * block + 32)
        for left in a:
            for right in b:
                expected = dot.matmul(
                    left.codes[:, part], left.scales[:, block : block + 1], right.codes[:, part],
                    right.scales[:, block : block + 1], MXINT8, MXINT8, expected,
                )  # fmt: skip
    assert np.array_equal(found, expected)
    if a_planes == b_planes == 2:
        exact = a_bits.view(np.float32).astype(np.float64) @ b_bits.view(np.float32).astype(np.float64).T
        assert np.abs(found.view(np.float32) - exact).max() < 2**-10
        plain = Product("mxint8", 0, *meet(operand(a_bits, 0), operand(b_bits, 0))).golden().view(np.float32)
        assert np.abs(plain - exact).max() > 2**-7, "the planes bring nothing here: the test compares nothing"


def test_planes_of_two_shapes_are_refused():
    plane = bf16_operand(np.zeros((1, 32), np.uint32), 1)[0]
    other = Quantised(plane.codes, plane.scales, FORMATS["E4M3"])
    with pytest.raises(ValueError, match="one shape and format, not 2"):
        meet([plane, other], [plane])
