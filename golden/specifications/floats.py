"""Floating-point specifications: add, subtract, multiply, fused multiply-add, conversions, comparisons.

IEEE 754 round to nearest even for FP32, FP16 and BF16; E4M3 and E5M2 as OCP 8-bit Floating Point v1.0 has them, with
overflow to NaN (E4M3) or infinity (E5M2), or saturating (`_sat`). NaN results are the format's canonical NaN, an exact
zero sum of opposite signs is +0. Golden functions round in `golden.rounding` only.
"""

import re
from collections.abc import Sequence

import numpy as np

from golden import formats, rounding
from golden.formats import Element, Kind
from golden.rounding import I64, U64, Wide
from golden.specifications.core import Port, Specification, Values, pattern, signed

ELEMENTS: dict[str, Element] = {
    "bf16": formats.BF16,
    "fp16": formats.FP16,
    "fp32": formats.FP32,
    "e4m3": formats.E4M3_ELEMENT,
    "e5m2": formats.E5M2_ELEMENT,
    "e2m3": formats.E2M3_ELEMENT,
    "e3m2": formats.E3M2_ELEMENT,
    "e2m1": formats.E2M1_ELEMENT,
}
ARITHMETIC = ("bf16", "fp16", "fp32", "e4m3", "e5m2")
#: In the order of `Class` in reference.hpp.
CLASSES = (
    "other",
    "nan_payload",
    "zero_sign",
    "subnormal_operand",
    "subnormal_result",
    "overflow_result",
    "special_operand",
    "one_ulp",
)
#: `one_ulp` is a wrong rounding and `other` is anything else: a circuit with those is wrong.
CORNERS = frozenset(CLASSES) - {"other", "one_ulp"}

_Decoded = tuple[np.ndarray, Wide, np.ndarray, np.ndarray]


def decode(element: Element, codes: np.ndarray) -> _Decoded:
    """(sign, magnitude, exponent of its bit 0, kind)."""
    sign, significand, shift, kind = element.decode(np.asarray(codes, U64))
    return sign, rounding.wide(significand), shift + element.lsb, kind


def is_zero(value: _Decoded) -> np.ndarray:
    return (value[1].low == 0) & (value[3] == Kind.FINITE)


def add(left: _Decoded, right: _Decoded, element: Element, saturate: bool) -> np.ndarray:
    """Codes of left + right, rounded once. Magnitudes up to 100 bits."""
    tops, placed = [], []
    for _, magnitude, exponent, _ in (left, right):
        length = rounding.bit_length_wide(magnitude)
        tops.append(np.where(length > 0, exponent + length, -(1 << 20)))
    base = np.maximum(tops[0], tops[1]) - 125
    for sign, magnitude, exponent, _ in (left, right):
        lifted = rounding.shift_left(magnitude, np.clip(exponent - base, 0, 127))
        placed.append((sign, rounding.shift_right_jam(lifted, np.clip(base - exponent, 0, 128))))
    sign, total = rounding.add_signed(*placed)
    zero = (total.high | total.low) == 0
    sign = np.where(zero, left[0] & right[0] & is_zero(left) & is_zero(right), sign)
    result = element.encode(sign, total, np.where(zero, element.lsb, base), saturate)
    infinite = [side[3] == Kind.INFINITY for side in (left, right)]
    sign = np.where(infinite[0], left[0], right[0])
    result = np.where(infinite[0] | infinite[1], special(element, sign), result)
    clash = infinite[0] & infinite[1] & (left[0] != right[0])
    nan = (left[3] == Kind.NAN) | (right[3] == Kind.NAN) | clash
    return np.where(nan, U64(element.nan_code or 0), result)


def special(element: Element, sign: np.ndarray) -> np.ndarray:
    """Infinity of the given sign (0 in a format without; callers then never choose it)."""
    code = element.max_code + 1 if element.has_infinity else 0
    return U64(code) | (np.asarray(sign).astype(U64) << U64(element.bits - 1))


def product(left: _Decoded, right: _Decoded) -> _Decoded:
    """The exact product, of significands up to 32 bits."""
    infinite = (left[3] == Kind.INFINITY) | (right[3] == Kind.INFINITY)
    kind = np.where(infinite, Kind.INFINITY, Kind.FINITE)
    nan = (left[3] == Kind.NAN) | (right[3] == Kind.NAN) | (infinite & (is_zero(left) | is_zero(right)))
    return (
        left[0] ^ right[0],
        rounding.wide(left[1].low * right[1].low),
        left[2] + right[2],
        np.where(nan, Kind.NAN, kind),
    )


def encode(value: _Decoded, element: Element, saturate: bool) -> np.ndarray:
    """Codes of exact values. Infinity in a format without it: its largest value if `saturate`, else as overflow."""
    sign, magnitude, exponent, kind = value
    result = element.encode(sign, magnitude, exponent, saturate)
    if element.has_infinity:
        unbounded = special(element, sign)
    else:
        huge = Wide(np.full(sign.shape, 1 << 62, U64), np.zeros(sign.shape, U64))
        unbounded = element.encode(sign, huge, np.full(sign.shape, 1 << 10, I64), saturate)
    result = np.where(kind == Kind.INFINITY, unbounded, result)
    return np.where(kind == Kind.NAN, U64(element.nan_code or 0), result)


def _arithmetic(format: str, operation: str, saturate: bool) -> Specification:
    element = ELEMENTS[format]
    names = "abc" if operation == "fma" else "ab"

    def function(values: Values) -> Values:
        numbers = [decode(element, values[name]) for name in names]
        if operation == "sub":
            numbers[1] = (~numbers[1][0], *numbers[1][1:])
        if operation in ("add", "sub"):
            return {"y": add(numbers[0], numbers[1], element, saturate)}
        exact = product(numbers[0], numbers[1])
        if operation == "fma":
            return {"y": add(exact, numbers[2], element, saturate)}
        return {"y": encode(exact, element, saturate)}

    kind, flag = format.upper(), "true" if saturate else "false"
    call = f"fp_{operation}<{kind}>"
    flushed = f"{call}({', '.join(f'{kind}::flush({name})' for name in names)}, {flag})"
    text = {"add": "a + b", "sub": "a - b", "mul": "a * b", "fma": "a * b + c, rounded once"}[operation]
    return Specification(
        f"{format}_{operation}{'_sat' if saturate else ''}",
        f"{kind}: {text}{', overflow saturates' if saturate else ''}",
        tuple(Port(name, element.bits, format) for name in names),
        (Port("y", element.bits, format),),
        function,
        f"y = {call}({', '.join(names)}, {flag});",
        classify=classify(kind, names, kind, flushed),
        classes=CLASSES,
        corners=CORNERS,
    )


def classify(source: str, names: Sequence[str], target: str, flushed: str) -> str:
    """The C++ expression that sorts a difference: operands of format `source`, result of format `target`."""
    special_operand = " || ".join(f"{source}::is_special({name})" for name in names)
    subnormal = " || ".join(f"{source}::is_subnormal({name})" for name in names)
    return f"fp_class<{target}>(want, got, {special_operand}, {flushed}, {subnormal})"


def _conversion(source: str, target: str, saturate: bool) -> Specification:
    left, right = ELEMENTS[source], ELEMENTS[target]

    def function(values: Values) -> Values:
        sign, magnitude, exponent, kind = decode(left, values["a"])
        if right.nan_code is None:  # no NaN: +0 stands for it
            sign = sign & (kind != Kind.NAN)
        return {"y": encode((sign, magnitude, exponent, kind), right, saturate)}

    a, b, flag = source.upper(), target.upper(), "true" if saturate else "false"
    return Specification(
        f"{source}_to_{target}{'_sat' if saturate else ''}",
        f"{a} to {b}, nearest even{', overflow saturates' if saturate else ''}",
        (Port("a", left.bits, source),),
        (Port("y", right.bits, target),),
        function,
        f"y = fp_convert<{a}, {b}>(a, {flag});",
        classify=classify(a, "a", b, f"fp_convert<{a}, {b}>({a}::flush(a), {flag})"),
        classes=CLASSES,
        corners=CORNERS,
    )


def _from_integer(width: int, target: str) -> Specification:
    element = ELEMENTS[target]

    def function(values: Values) -> Values:
        sign, magnitude = rounding.from_signed(signed(values["a"], width))
        return {"y": element.encode(sign, magnitude, np.zeros(sign.shape, I64), False)}

    kind = target.upper()
    return Specification(
        f"s{width}_to_{target}",
        f"signed {width}-bit integer to {kind}, nearest even",
        (Port("a", width, "s"),),
        (Port("y", element.bits, target),),
        function,
        f"y = from_integer<{kind}>(sx(a, {width}));",
        classify=f"fp_class<{kind}>(want, got, false, 0, false)",
        classes=CLASSES,
        corners=CORNERS,
    )


def _to_integer(source: str, width: int, truncate: bool) -> Specification:
    element = ELEMENTS[source]
    most = (1 << (width - 1)) - 1

    def function(values: Values) -> Values:
        sign, magnitude, exponent, kind = decode(element, values["a"])
        if truncate:
            down = np.clip(-exponent, 0, 63).astype(U64)
            whole = magnitude.low >> down
        else:
            whole, _ = rounding.round_magnitude(magnitude, np.minimum(exponent, 0), 62, 0)
        up = np.clip(exponent, 0, 38).astype(U64)
        limit = U64(most) + sign.astype(U64)
        whole = np.minimum(np.where((exponent > 38) & (whole > 0), limit, whole << up), limit)
        whole = np.where(kind == Kind.INFINITY, limit, whole).astype(I64)
        value = np.where(kind == Kind.NAN, most, np.where(sign, -whole, whole))
        return {"y": pattern(value, width)}

    kind, way = source.upper(), "toward zero" if truncate else "nearest even"
    return Specification(
        f"{source}_to_s{width}{'_rtz' if truncate else ''}",
        f"{kind} to a signed {width}-bit integer, {way}; out of range saturates, NaN gives the largest",
        (Port("a", element.bits, source),),
        (Port("y", width, "s"),),
        function,
        f"y = to_integer<{kind}>(a, {width}, {'true' if truncate else 'false'});",
        classify=f"{kind}::is_nan(a) ? 1 : {kind}::is_special(a) || want == {most}ull || want == {most + 1}ull ? 2 : 0",
        classes=("other", "nan_operand", "out_of_range"),
        corners=frozenset({"nan_operand", "out_of_range"}),
    )


def _compare(format: str, operation: str) -> Specification:
    element = ELEMENTS[format]
    wanted = {"lt": np.less, "le": np.less_equal, "eq": np.equal}[operation]
    sign = {"lt": "<", "le": "<=", "eq": "=="}[operation]

    def function(values: Values) -> Values:
        ordered, keys = np.array(True), []
        for name in "ab":
            codes = np.asarray(values[name], U64)
            magnitude = (codes & U64((1 << (element.bits - 1)) - 1)).astype(I64)
            keys.append(np.where(codes >> U64(element.bits - 1) != 0, -magnitude, magnitude))
            ordered = ordered & (element.decode(codes)[3] != Kind.NAN)
        return {"y": (wanted(*keys) & ordered).astype(U64)}

    kind = format.upper()
    return Specification(
        f"{format}_{operation}",
        f"{kind}: a {sign} b; false where one is NaN; -0 equals +0",
        tuple(Port(name, element.bits, format) for name in "ab"),
        (Port("y", 1),),
        function,
        f"y = to_double<{kind}>(a) {sign} to_double<{kind}>(b);",
        classify=f"{kind}::is_nan(a) || {kind}::is_nan(b) ? 1 : {kind}::is_zero(a) && {kind}::is_zero(b) ? 2 : 0",
        classes=("other", "nan_operand", "zero_sign"),
        corners=frozenset({"nan_operand", "zero_sign"}),
    )


def find(name: str) -> Specification | None:
    """The floating-point specification of that name, or None."""
    arithmetic = "|".join(ARITHMETIC)
    every = "|".join(ELEMENTS)
    if match := re.fullmatch(rf"({arithmetic})_(add|sub|mul|fma)(_sat)?", name):
        return _arithmetic(match[1], match[2], bool(match[3]))
    if (match := re.fullmatch(rf"({every})_to_({every})(_sat)?", name)) and match[1] != match[2]:
        return _conversion(match[1], match[2], bool(match[3]))
    if match := re.fullmatch(rf"s(8|16|32)_to_({arithmetic})", name):
        return _from_integer(int(match[1]), match[2])
    if match := re.fullmatch(rf"({arithmetic})_to_s(8|16|32)(_rtz)?", name):
        return _to_integer(match[1], int(match[2]), bool(match[3]))
    if match := re.fullmatch(rf"({arithmetic})_(lt|le|eq)", name):
        return _compare(match[1], match[2])
    return None


def names() -> list[str]:
    """All of them, but for saturating variants of formats that overflow to infinity by habit."""
    result = [f"{format}_{operation}" for format in ARITHMETIC for operation in ("add", "sub", "mul", "fma")]
    result += [f"{format}_{operation}_sat" for format in ("e4m3", "e5m2") for operation in ("add", "mul", "fma")]
    result += [f"{a}_to_{b}" for a in ELEMENTS for b in ELEMENTS if a != b]
    result += [f"{a}_to_{b}_sat" for a in ARITHMETIC for b in ("e4m3", "e5m2") if a != b]
    result += [f"s{width}_to_{format}" for width in (8, 16, 32) for format in ARITHMETIC]
    result += [f"{format}_to_s{width}{way}" for format in ARITHMETIC for width in (8, 16, 32) for way in ("", "_rtz")]
    return result + [f"{format}_{operation}" for format in ARITHMETIC for operation in ("lt", "le", "eq")]
