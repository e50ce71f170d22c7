"""Functions of one operand with an error bound: `fp32_exp2_ulp1`, `bf16_rsqrt_ulp2`, ...

A result is right if it is within the bound of the exact value, in units in the last place of the exact value's binade.
NaN, infinities and overflow have to be exact. The exact value is taken from float64: its error is 2^-29 of an FP32 unit
in the last place, far below any bound, and it is never rounded twice into a result that has to match bit for bit.
"""

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from golden.formats import Kind
from golden.rounding import I64, U64, wide
from golden.specifications.core import Port, Specification, Values
from golden.specifications.floats import CLASSES, CORNERS, ELEMENTS, decode, encode

_FORMATS = ("bf16", "fp16", "fp32")
_FUNCTIONS: dict[str, tuple[Callable[..., Any], str, str]] = {
    "exp2": (np.exp2, "std::exp2({0})", "2^a"),
    "recip": (lambda x: 1.0 / x, "1.0 / {0}", "1 / a"),
    "rsqrt": (lambda x: 1.0 / np.sqrt(x), "1.0 / std::sqrt({0})", "1 / sqrt(a); negative operands give NaN"),
}


def _function(format: str, name: str, bound: int) -> Specification:
    element = ELEMENTS[format]
    compute, cpp, text = _FUNCTIONS[name]

    def function(values: Values) -> Values:
        sign, magnitude, exponent, kind = decode(element, values["a"])
        value = np.ldexp(magnitude.low.astype(np.float64), exponent.astype(np.int32))
        value = np.where(kind == Kind.INFINITY, np.inf, np.where(kind == Kind.NAN, np.nan, value))
        with np.errstate(all="ignore"):
            exact = compute(np.where(sign, -value, value))
        fraction, power = np.frexp(np.where(np.isfinite(exact), np.abs(exact), 0))
        number = (
            np.signbit(exact),
            wide(np.ldexp(fraction, 53).astype(U64)),
            power.astype(I64) - 53,
            np.where(np.isnan(exact), Kind.NAN, np.where(np.isinf(exact), Kind.INFINITY, Kind.FINITE)),
        )
        return {"y": encode(number, element, False)}

    kind = format.upper()
    exact = cpp.format(f"to_double<{kind}>(a)")
    return Specification(
        f"{format}_{name}_ulp{bound}",
        f"{kind}: {text}, within {bound} ulp",
        (Port("a", element.bits, format),),
        (Port("y", element.bits, format),),
        function,
        f"const double exact = {exact}; y = from_double<{kind}>(exact); error = ulps<{kind}>(exact, got);",
        classify=f"fp_class<{kind}>(want, got, {kind}::is_special(a) || {kind}::is_zero(a), want, "
        f"{kind}::is_subnormal(a))",
        classes=CLASSES,
        corners=CORNERS,
        bound=float(bound),
    )


def find(name: str) -> Specification | None:
    """The bounded function of that name, any whole bound from 1 to 1000 ulp; None for another name."""
    match = re.fullmatch(rf"({'|'.join(_FORMATS)})_({'|'.join(_FUNCTIONS)})_ulp([1-9]\d{{0,2}}|1000)", name)
    return _function(match[1], match[2], int(match[3])) if match else None


def names() -> list[str]:
    return [f"{format}_{name}_ulp1" for format in _FORMATS for name in _FUNCTIONS]
