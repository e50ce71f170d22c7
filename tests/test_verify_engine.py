"""The pieces of `verify`: catalogue, golden function against compiled mirror, netlists, port maps, sandbox."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from golden import specifications
from golden.specifications import Values
from golden.specifications.core import describe
from scripts.verify import netlist as netlists
from scripts.verify import pipeline, ports, proof, sandbox
from scripts.verify.engine import Engine
from scripts.verify.netlist import Cell, Netlist


def test_catalogue_is_large_and_every_specification_answers() -> None:
    names = specifications.catalogue()
    assert len(names) == len(set(names)) >= 25
    for name in names:
        found = specifications.find(name)
        values = specifications.operands(found.inputs, 64, seed=3)
        for port in found.outputs:
            result = found.function(values)[port.name]
            assert result.dtype == np.uint64 and result.shape == (64,)
            assert int(result.max()) >> port.width == 0, name


def test_unknown_specification_names_near_ones() -> None:
    with pytest.raises(ValueError, match="bf16_mul"):
        specifications.find("bf16_mull")


# One program a specification is compiled: a sample of every family here, all of them with --long.
SAMPLE = [
    "mul_s8",
    "add_u32",
    "lzc_32",
    "fp32_fma",
    "bf16_add",
    "e4m3_mul_sat",
    "fp32_to_e5m2",
    "fp16_to_s8_rtz",
    "mxe5m2_dot32",
    "mxint8_dot32",
    "fp32_rsqrt_ulp1",
]


@pytest.mark.parametrize("name", SAMPLE)
def test_golden_function_and_compiled_mirror_agree(name: str) -> None:
    _mirror(name)


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in specifications.catalogue() if name not in SAMPLE])
def test_every_golden_function_and_its_mirror_agree(name: str) -> None:
    _mirror(name)


def _mirror(name: str) -> None:
    """The golden results, judged by the mirror, are right; with one bit changed they are wrong."""
    found = specifications.find(name)
    values = specifications.operands(found.inputs, 4000, seed=5)
    want = found.function(values)
    engine = Engine(None, found, optimise="-O0")
    good = engine.judge(values, want)
    assert (good.checked, good.wrong) == (4000, 0), good.differences
    first = found.outputs[0]
    flip = np.uint64(1 << (first.width - 1))
    assert engine.judge(values, {**want, first.name: want[first.name] ^ flip}).wrong > 2000


def test_golden_float_functions_against_float_oracles() -> None:
    """ml_dtypes and NumPy, where they round once: products and sums of 8-bit formats are exact in float32."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    codes = np.arange(65536, dtype=np.uint64)
    values = {"a": codes & np.uint64(255), "b": codes >> np.uint64(8)}
    for name, kind in (("e4m3", ml_dtypes.float8_e4m3fn), ("e5m2", ml_dtypes.float8_e5m2)):
        a, b = (values[port].astype(np.uint8).view(kind).astype(np.float32) for port in "ab")
        with np.errstate(all="ignore"):
            for operation, exact in (("mul", a * b), ("add", a + b)):
                want = exact.astype(kind)
                got = specifications.find(f"{name}_{operation}").function(values)["y"].astype(np.uint8).view(kind)
                nan = np.isnan(want.astype(np.float32))
                assert (np.isnan(got.astype(np.float32)) == nan).all()
                assert (want.view(np.uint8)[~nan] == got.view(np.uint8)[~nan]).all(), (name, operation)


def test_fused_multiply_add_traps_of_wide_floats() -> None:
    """Cases that go wrong with a float32 or float64 intermediate."""
    fp16 = {"a": 0x5B80, "b": 0x5C44, "c": 0x8000 | 0x0001}  # 240 * 273 - 2^-24
    result = specifications.find("fp16_fma").function({k: np.array([v], np.uint64) for k, v in fp16.items()})
    assert int(result["y"][0]) == 0x7BFF
    bf16 = {"a": 0x3F88, "b": 0x3F88, "c": 0x0D80}  # 1.0625^2 + 2^-100
    result = specifications.find("bf16_fma").function({k: np.array([v], np.uint64) for k, v in bf16.items()})
    assert int(result["y"][0]) == 0x3F91


def test_describe_shows_hex_and_value() -> None:
    found = specifications.find("fp32_add")
    assert describe(found.inputs[0], 0x3FC00000) == "0x3fc00000 (1.5)"
    assert describe(found.inputs[0], 0xFF800000) == "0xff800000 (-inf)"
    assert describe(specifications.find("mul_s8").inputs[0], 0x80) == "0x80 (-128)"


def ripple(width: int, broken: int = -1) -> Netlist:
    """A ripple-carry adder of a and b; position `broken` loses its carry."""
    a, b = list(range(2, 2 + width)), list(range(2 + width, 2 + 2 * width))
    cells, carry, total, count = [], 0, [], 2 + 2 * width
    for index in range(width):
        half, out, one, two, up = range(count, count + 5)
        count += 5
        cells += [
            Cell("$_XOR_", (a[index], b[index]), half),
            Cell("$_XOR_", (half, carry), out),
            Cell("$_AND_", (a[index], b[index]), one),
            Cell("$_AND_", (half, carry), two),
            Cell("$_OR_", (one, two if index != broken else 0), up),
        ]
        total.append(out)
        carry = up
    return Netlist({"a": a, "b": b}, {"y": total}, cells)


def test_engine_exhausts_and_finds_a_lost_carry() -> None:
    found = specifications.find("add_u8").reduced({"a", "b", "y"})
    assert Engine(ripple(8), found).exhaustive().wrong == 0
    broken = Engine(ripple(8, broken=3), found).exhaustive()
    assert (broken.checked, broken.wrong > 0) == (1 << 16, True)
    example = broken.differences[0]
    assert (example.inputs["a"][0] + example.inputs["b"][0]) % 256 == example.want["y"] != example.got["y"]


def test_engine_tests_wide_operands_and_sat_proves_them() -> None:
    found = specifications.find("add_u64").reduced({"a", "b", "y"})
    assert Engine(ripple(64), found).random(1, 1 << 16).wrong == 0
    assert Engine(ripple(64, broken=40), found).random(1, 1 << 16).wrong > 0
    assert proof.prove(ripple(64), found, 60).equal
    assert proof.prove(ripple(64, broken=63), found, 60).equal  # the last carry does not reach y
    refuted = proof.prove(ripple(64, broken=62), found, 60)
    assert refuted.equal is False and refuted.counterexample is not None
    a, b = (refuted.counterexample[port][0] for port in "ab")
    assert (a & (2**63 - 1)) + (b & (2**63 - 1)) >= 2**63


def test_simplify_keeps_the_function() -> None:
    for kind, (pins, _) in netlists.GATES.items():
        for values in np.ndindex(*(3,) * len(pins)):  # 0, 1, or a free net
            inputs = tuple(value if value < 2 else 10 + index for index, value in enumerate(values))
            small = netlists.simplify(kind, inputs)
            for row in range(1 << len(pins)):
                state = {0: 0, 1: 1} | {10 + index: row >> index & 1 for index in range(len(pins))}
                want = netlists.EVALUATE[kind](*(state[net] for net in inputs)) & 1
                got = (
                    state[small]
                    if isinstance(small, int)
                    else netlists.EVALUATE[small[0]](*(state[net] for net in small[1])) & 1
                )
                assert got == want, (kind, inputs)


def test_canonical_text_ignores_names_and_order_but_not_function() -> None:
    one = ripple(6)
    shuffled = netlists.substitute(one, {})
    renamed = {cell.output: cell.output + 1000 for cell in one.cells}
    shuffled = netlists.substitute(one, renamed)
    shuffled.cells = netlists.sort(
        [
            Cell(c.kind, tuple(reversed(c.inputs)), renamed[o.output])
            for c, o in zip(shuffled.cells, one.cells, strict=True)
        ][::-1],
        range(2, 14),
    )
    assert netlists.canonical(one) == netlists.canonical(shuffled)
    assert netlists.canonical(one) != netlists.canonical(ripple(6, broken=2))


def test_pipeline_stages_need_equal_paths() -> None:
    straight = Netlist(
        {"a": [2, 3]}, {"y": [6]}, [Cell("$_DFF_P_", (2,), 4), Cell("$_DFF_P_", (3,), 5), Cell("$_AND_", (4, 5), 6)]
    )
    assert pipeline.stages(straight) == 1
    assert [cell.kind for cell in pipeline.collapse(straight).cells] == ["$_AND_"]
    crooked = Netlist({"a": [2, 3]}, {"y": [6]}, [Cell("$_DFF_P_", (2,), 4), Cell("$_AND_", (4, 3), 6)])
    assert pipeline.stages(crooked) is None
    feedback = Netlist({"a": [2]}, {"y": [4]}, [Cell("$_DFF_P_", (5,), 4), Cell("$_XOR_", (2, 4), 5)])
    assert pipeline.stages(feedback) is None


MUL = {"clk": ("input", 1), "rst_n": ("input", 1), "op_a": ("input", 8), "op_b": ("input", 8), "result": ("output", 16)}


def test_ports_are_matched_by_name_and_width() -> None:
    found = ports.match(specifications.find("mul_u8"), MUL)
    assert (found.inputs["a"], found.inputs["b"]) == ([("op_a", 0, 8)], [("op_b", 0, 8)])
    assert (found.clock, found.reset, found.reset_active) == ("clk", "rst_n", 0)
    swapped = ports.match(specifications.find("mul_u8"), MUL, ports.read('[ports]\na = "op_b"\nb = "op_a"\n'))
    assert swapped.inputs["a"] == [("op_b", 0, 8)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("colour = 1", "unknown key 'colour'"),
        ("latency = -1", "0 to 256"),
        ('[ports]\nq = "x"', "no port 'q'"),
        ('[ports]\na = "nothing"', "no input 'nothing'"),
        ('[ports]\na = "op_a[9:0]"', "outside"),
        ("[clock", "not TOML"),
        ("[constants]\nen = 1", "no such input"),
    ],
)
def test_wrong_maps_say_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(ports.MapError, match=message.replace("[", r"\[")):
        ports.match(specifications.find("mul_u8"), MUL, ports.read(text))


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 2**13 - 1), min_size=1, max_size=20))
def test_bits_and_values_are_inverse(values: list[int]) -> None:
    port = specifications.Port("a", 13)
    array: Values = {"a": np.array(values, np.uint64)}
    assert (ports.from_bits(ports.to_bits(array["a"], port), port) == array["a"]).all()


def test_sandbox_has_no_network_no_home_and_writes_nothing() -> None:
    script = (
        "ls /etc /home /sys 2>&1; cat /proc/net/dev | wc -l; touch /x /usr/x /in/x 2>&1; echo hello > file && cat file"
    )
    done = sandbox.run(["/bin/sh", "-c", script], {"a": "1"})
    text = done.stdout.decode()
    assert done.ok and "hello" in text
    assert text.count("Read-only file system") == 3 and text.count("No such file") == 3
    assert "\n3\n" in text  # two lines of heading and the loopback device


@pytest.mark.parametrize(
    ("command", "limits", "reason"),
    [
        ("sleep 30", sandbox.Limits(seconds=1), "longer than 1 s"),
        ("cat /dev/zero", sandbox.Limits(output=1 << 20), "bytes of output"),
    ],
)
def test_sandbox_limits(command: str, limits: sandbox.Limits, reason: str) -> None:
    assert reason in sandbox.run(["/bin/sh", "-c", command], limits=limits).reason


def test_nothing_runs_without_a_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    for program in ("/nowhere/bwrap", "/bin/true"):  # not there; there, but builds no walls
        monkeypatch.setenv("SERRANO_BWRAP", program)
        with pytest.raises(sandbox.SandboxUnavailable, match="nothing was run"):
            sandbox.run(["/bin/sh", "-c", "true"])
