"""Block dot products as the tile does them: OCP Microscaling blocks of 32, exact inside, one rounding into FP32."""

import re

import numpy as np

from golden import dot
from golden.formats import BLOCK, FORMATS
from golden.specifications.core import Port, Specification, Values
from golden.specifications.floats import CLASSES, CORNERS

_CHUNK = 16  # matmul() makes all pairs of rows; this keeps what is thrown away small
_NAMES = {name.lower().removeprefix("mx"): format for name, format in FORMATS.items()}


def _dot(name: str) -> Specification:
    format = _NAMES[name]
    element = format.element

    def function(values: Values) -> Values:
        a, b, sa, sb = (np.asarray(values[port]).astype(np.uint8) for port in ("a", "b", "sa", "sb"))
        c, results = np.asarray(values["c"]).astype(np.uint32), []
        for start in range(0, len(a), _CHUNK):
            part = slice(start, start + _CHUNK)
            accumulator = np.repeat(c[part, None], len(c[part]), axis=1)
            pairs = dot.matmul(a[part], sa[part, None], b[part], sb[part, None], format, format, accumulator)
            results.append(np.diagonal(pairs))
        return {"y": np.concatenate(results).astype(np.uint64)}

    if element.is_integer:
        term = f"block.sum += sx(a(i), {element.bits}) * sx(b(i), {element.bits});"
    else:
        term = f"block.add<{name.upper()}>(a(i), b(i));"
    special = "sa == 255 || sb == 255 || FP32::is_special(c)"
    return Specification(
        f"mx{name}_dot{BLOCK}",
        f"{format.name}: dot product of two blocks of {BLOCK}, scaled, added to FP32, rounded once",
        (
            *(Port(port, element.bits, "s" if element.is_integer else name, BLOCK) for port in "ab"),
            Port("sa", 8),
            Port("sb", 8),
            Port("c", 32, "fp32"),
        ),
        (Port("y", 32, "fp32"),),
        function,
        f"Block block; for (int i = 0; i < {BLOCK}; i++) {term} y = block.accumulate(sa, sb, {2 * element.lsb}, c);",
        classify=f"fp_class<FP32>(want, got, {special}, 0, false)",
        classes=CLASSES,
        corners=CORNERS,
    )


def find(name: str) -> Specification | None:
    """The block dot of that name (`mxint8_dot32`, `mxe4m3_dot32`, ...), or None."""
    match = re.fullmatch(rf"mx(\w+)_dot{BLOCK}", name)
    return _dot(match[1]) if match and match[1] in _NAMES and _NAMES[match[1]].scale == "E8M0" else None


def names() -> list[str]:
    return [f"mx{name}_dot{BLOCK}" for name, format in _NAMES.items() if format.scale == "E8M0"]
