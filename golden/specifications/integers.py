"""Integer specifications, by family and width: `add_u16`, `mul_s8`, `dot_s8x32`, `lzc_32`, ..."""

import re
from collections.abc import Callable

import numpy as np

from golden.specifications.core import Port, Specification, Values, mask, pattern, signed

_U = np.uint64


def _most_negative(ports: tuple[Port, ...]) -> dict:
    """Classes for signed operands: wrong only where an operand is the most negative value."""
    tests = [
        f"{port.name} == {1 << (port.width - 1)}ull" for port in ports if port.format == "s" and port.elements == 1
    ]
    if not tests:
        return {}
    return {
        "classify": f"({' || '.join(tests)}) ? 1 : 0",
        "classes": ("other", "most_negative_operand"),
        "corners": frozenset({"most_negative_operand"}),
    }


def _pair(sign: str, width: int) -> tuple[Port, Port]:
    return Port("a", width, sign), Port("b", width, sign)


def _read(port: Port, values: Values) -> np.ndarray:
    value = np.asarray(values[port.name], np.uint64)
    return signed(value, port.width) if port.format == "s" else value.astype(np.int64)


def _cast(sign: str, text: str, width: int) -> str:
    return f"sx({text}, {width})" if sign == "s" else text


def _sum(name: str, sign: str, width: int) -> Specification:
    """`add`: y = a + b + cin modulo 2^w with carry; `sub`: y = a - b modulo 2^w with borrow."""
    ports = _pair(sign, width)
    top = _U(mask(width))
    if name == "add":
        inputs = (*ports, Port("cin", 1, optional=True))

        def function(values: Values) -> Values:
            a, b, carry = (np.asarray(values[port], np.uint64) for port in ("a", "b", "cin"))
            low = (a & _U(1)) + (b & _U(1)) + carry
            high = (a >> _U(1)) + (b >> _U(1)) + (low >> _U(1))
            return {"y": (a + b + carry) & top, "cout": high >> _U(width - 1)}

        cpp = f"y = a + b + cin; cout = (u64)(((u128)a + b + cin) >> {width});"
        verilog = "assign {cout, y} = a + b + cin;"
        outputs = (Port("y", width, sign), Port("cout", 1, optional=True))
    else:
        inputs = ports

        def function(values: Values) -> Values:
            a, b = (np.asarray(values[port], np.uint64) for port in ("a", "b"))
            return {"y": (a - b) & top, "borrow": (a < b).astype(np.uint64)}

        cpp, verilog = "y = a - b; borrow = a < b;", "assign y = a - b; assign borrow = a < b;"
        outputs = (Port("y", width, sign), Port("borrow", 1, optional=True))
    text = {"add": "sum modulo 2^w, optional carry in and out", "sub": "difference modulo 2^w, optional borrow"}[name]
    return Specification(f"{name}_{sign}{width}", f"{width}-bit {text}", inputs, outputs, function, cpp, verilog)


def _compare(name: str, sign: str, width: int) -> Specification:
    ports = _pair(sign, width)
    compare = {
        "lt": (np.less, "<"),
        "le": (np.less_equal, "<="),
        "eq": (np.equal, "=="),
        "min": (np.minimum, "<"),
        "max": (np.maximum, ">"),
    }[name]

    def function(values: Values) -> Values:
        a, b = (signed(values[port], width) if sign == "s" else np.asarray(values[port], np.uint64) for port in "ab")
        return {"y": pattern(compare[0](a, b), width)}

    left, right = (_cast(sign, port, width) for port in "ab")
    of_signs = ("$signed(a)", "$signed(b)") if sign == "s" else ("a", "b")
    test, check = f"{left} {compare[1]} {right}", f"{of_signs[0]} {compare[1]} {of_signs[1]}"
    if name in ("min", "max"):
        cpp, verilog, out = f"y = {test} ? a : b;", f"assign y = {check} ? a : b;", Port("y", width, sign)
    else:
        cpp, verilog, out = f"y = {test};", f"assign y = {check};", Port("y", 1)
    kind = {"lt": "a < b", "le": "a <= b", "eq": "a == b", "min": "the smaller", "max": "the larger"}[name]
    return Specification(
        f"{name}_{sign}{width}",
        f"{kind} of two {width}-bit values",
        ports,
        (out,),
        function,
        cpp,
        verilog,
        **_most_negative(ports),
    )


def _product(name: str, sign: str, width: int) -> Specification:
    """`mul`: exact product; `mac`: y = a * b + c, c and y of `wide` bits, modulo 2^wide."""
    ports = _pair(sign, width)
    wide = 2 * width if name == "mul" else max(32, 2 * width + 16)
    if wide > 64:
        raise ValueError(
            f"{name}_{sign}{width} is wider than 64 bits: width must be at most {32 if name == 'mul' else 24}"
        )
    addend = Port("c", wide, sign)

    def function(values: Values) -> Values:
        a, b = (_read(port, values).view(np.uint64) for port in ports)
        product = a * b
        if name == "mac":
            product = product + np.asarray(values["c"], np.uint64)
        return {"y": product & _U(mask(wide))}

    left, right = (f"(u64){_cast(sign, port, width)}" for port in "ab")
    tail = " + c" if name == "mac" else ""
    left_v, right_v, tail_v = ("$signed(a)", "$signed(b)", "$signed(c)") if sign == "s" else ("a", "b", "c")
    return Specification(
        f"{name}_{sign}{width}",
        f"exact {width}x{width} product" if name == "mul" else f"{width}x{width} product plus a {wide}-bit addend",
        ports if name == "mul" else (*ports, addend),
        (Port("y", wide, sign),),
        function,
        f"y = {left} * {right}{tail};",
        f"assign y = {left_v} * {right_v}{' + ' + tail_v if name == 'mac' else ''};",
        **_most_negative(ports),
    )


def _mixed(width: int) -> Specification:
    ports = (Port("a", width, "s"), Port("b", width, "u"))

    def function(values: Values) -> Values:
        a, b = (_read(port, values).view(np.uint64) for port in ports)
        return {"y": a * b & _U(mask(2 * width))}

    return Specification(
        f"mul_su{width}",
        f"exact {width}x{width} product, signed times unsigned",
        ports,
        (Port("y", 2 * width, "s"),),
        function,
        f"y = (u64)sx(a, {width}) * b;",
        "assign y = $signed(a) * $signed({1'b0, b});",
        **_most_negative(ports),
    )


def _dot(sign: str, width: int, elements: int) -> Specification:
    """Exact dot product of two vectors; the result has room for the largest sum."""
    ports = tuple(Port(name, width, sign, elements) for name in "ab")
    wide = 2 * width + (elements - 1).bit_length() + (1 if sign == "u" and elements > 1 else 0)
    if wide > 64 or not 1 < elements <= 64:
        raise ValueError(f"dot_{sign}{width}x{elements}: result of {wide} bits; at most 64 bits and 2 to 64 elements")

    def function(values: Values) -> Values:
        a, b = (_read(port, values) for port in ports)
        return {"y": pattern((a * b).sum(axis=1), wide)}

    term = f"(u64){_cast(sign, 'a(i)', width)} * (u64){_cast(sign, 'b(i)', width)}"
    pick = (
        [f"a[{i * width} +: {width}]" for i in range(elements)],
        [f"b[{i * width} +: {width}]" for i in range(elements)],
    )
    if sign == "s":
        terms = " + ".join(f"$signed({a}) * $signed({b})" for a, b in zip(*pick, strict=True))
    else:
        terms = " + ".join(f"{a} * {b}" for a, b in zip(*pick, strict=True))
    return Specification(
        f"dot_{sign}{width}x{elements}",
        f"exact dot product of {elements} pairs of {width}-bit values",
        ports,
        (Port("y", wide, sign),),
        function,
        f"y = 0; for (int i = 0; i < {elements}; i++) y += {term};",
        f"assign y = {terms};",
    )


def _shift(name: str, width: int) -> Specification:
    bits = (width - 1).bit_length()
    ports = (Port("a", width, "s" if name == "sar" else "u"), Port("n", bits))

    def function(values: Values) -> Values:
        a, n = np.asarray(values["a"], np.uint64), np.asarray(values["n"], np.uint64)
        left = np.where(n < 64, a << (n & _U(63)), _U(0))
        right = a >> n
        if name == "sar":
            right = (signed(a, width) >> n.astype(np.int64)).view(np.uint64)
        if name == "rotl":
            right = np.where(n == 0, _U(0), a >> (_U(width) - np.maximum(n, _U(1))))
            left = left | right
        return {"y": (left if name in ("shl", "rotl") else right) & _U(mask(width))}

    cpp = {
        "shl": "y = a << n;",
        "shr": "y = a >> n;",
        "sar": f"y = (u64)(sx(a, {width}) >> n);",
        "rotl": f"y = n ? (a << n) | (a >> ({width} - n)) : a;",
    }[name]
    verilog = {
        "shl": "assign y = a << n;",
        "shr": "assign y = a >> n;",
        "sar": "assign y = $signed(a) >>> n;",
        "rotl": f"wire [{2 * width - 1}:0] d = {{a, a}} << n; assign y = d[{2 * width - 1}:{width}];",
    }[name]
    if width & (width - 1):
        raise ValueError(f"{name}_{width}: width must be a power of two, at most 64")
    text = {"shl": "left shift", "shr": "logical right shift", "sar": "arithmetic right shift", "rotl": "left rotation"}
    return Specification(
        f"{name}_{width}", f"{width}-bit {text[name]}", ports, (Port("y", width),), function, cpp, verilog
    )


def _count(name: str, width: int) -> Specification:
    bits = width.bit_length()

    def function(values: Values) -> Values:
        a = np.asarray(values["a"], np.uint64)
        lanes = (a[:, None] >> np.arange(width, dtype=np.uint64)) & _U(1)
        if name == "popcount":
            return {"y": lanes.sum(axis=1).astype(np.uint64)}
        order = lanes[:, ::-1] if name == "lzc" else lanes
        first = np.where(lanes.any(axis=1), order.argmax(axis=1), width)
        return {"y": first.astype(np.uint64)}

    cpp = {
        "popcount": "y = __builtin_popcountll(a);",
        "lzc": f"y = a ? __builtin_clzll(a) - {64 - width} : {width};",
        "tzc": f"y = a ? __builtin_ctzll(a) : {width};",
    }[name]
    chain = f"{bits}'d{width}"
    for index in range(width) if name == "lzc" else reversed(range(width)):
        place = width - 1 - index if name == "lzc" else index
        chain = f"a[{index}] ? {bits}'d{place} : ({chain})"
    verilog = f"assign y = {' + '.join(f'a[{i}]' for i in range(width)) if name == 'popcount' else chain};"
    text = {"popcount": "number of ones", "lzc": "leading zeros (all of them for 0)", "tzc": "trailing zeros"}[name]
    return Specification(
        f"{name}_{width}", f"{text} in {width} bits", (Port("a", width),), (Port("y", bits),), function, cpp, verilog
    )


def _absolute(width: int) -> Specification:
    port = Port("a", width, "s")
    return Specification(
        f"abs_s{width}",
        f"absolute value of a {width}-bit value (the most negative one as unsigned)",
        (port,),
        (Port("y", width),),
        lambda values: {"y": pattern(np.abs(signed(values["a"], width)), width)},
        f"y = sx(a, {width}) < 0 ? -a : a;",
        "assign y = $signed(a) < 0 ? -a : a;",
        **_most_negative((port,)),
    )


_FAMILIES: list[tuple[str, Callable[..., Specification], str]] = [
    (r"(add|sub)_([us])(\d+)", lambda n, s, w: _sum(n, s, int(w)), "add_u32 sub_s16"),
    (r"(lt|le|eq|min|max)_([us])(\d+)", lambda n, s, w: _compare(n, s, int(w)), "lt_s32 eq_u64 min_s8 max_u16"),
    (r"(mul|mac)_([us])(\d+)", lambda n, s, w: _product(n, s, int(w)), "mul_s8 mul_u16 mul_s32 mac_s8"),
    (r"mul_su(\d+)", lambda w: _mixed(int(w)), "mul_su8"),
    (r"dot_([us])(\d+)x(\d+)", lambda s, w, n: _dot(s, int(w), int(n)), "dot_s8x4 dot_s8x32 dot_s4x32"),
    (r"(shl|shr|sar|rotl)_(\d+)", lambda n, w: _shift(n, int(w)), "shl_32 sar_16 rotl_8"),
    (r"(lzc|tzc|popcount)_(\d+)", lambda n, w: _count(n, int(w)), "lzc_32 tzc_16 popcount_32"),
    (r"abs_s(\d+)", lambda w: _absolute(int(w)), "abs_s16"),
]


def find(name: str) -> Specification | None:
    """The integer specification of that name, at any width up to 64; None if the name is of no family."""
    for expression, build, _ in _FAMILIES:
        match = re.fullmatch(expression, name)
        if match:
            widths = [int(group) for group in match.groups() if group.isdigit()]
            if not all(1 <= width <= 64 for width in widths):
                raise ValueError(f"{name}: widths must be 1 to 64, not {widths}")
            return build(*match.groups())
    return None


def names() -> list[str]:
    """An example of every family and sign."""
    return [name for _, _, examples in _FAMILIES for name in examples.split()]
