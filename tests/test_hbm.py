"""HBM: traces, address maps, timing table, configuration, and the command-trace checker on sequences by hand."""

import dataclasses

import numpy as np
import pytest
from amaranth.hdl import Module, Signal
from amaranth.sim import Simulator

from golden.hbm_checker import Command, check, read_trace
from golden.hbm_traces import MD5, TRACES, text_md5, trace
from hw.hbm import HbmConfig, HbmController
from hw.hbm.address import AddressMap
from hw.hbm.ecc import COLUMNS, Decoder, encode
from hw.hbm.timing import GENERATIONS

CONFIGS = [
    HbmConfig(generation=name, capacity=4 << 20, hash_banks=hashed, address_map=text)
    for name in GENERATIONS
    for hashed in (False, True)
    for text in ("", "c g b s r", "c2 r2 b g s c r")
]


@pytest.mark.parametrize("name", TRACES)
def test_traces_are_the_ones_that_the_peers_ran(name: str) -> None:
    assert text_md5(trace(name)) == MD5[name]


def test_unknown_trace() -> None:
    with pytest.raises(ValueError, match="trace must be one of"):
        trace("kv128")


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: f"{c.generation}-{c.hash_banks}-{c.address_map}")
def test_address_map_is_one_to_one(config: HbmConfig) -> None:
    """Every granule has a place of its own, and the inverse given to the device finds it again."""
    address_map = AddressMap(config)
    addresses = np.arange(config.granules, dtype=np.uint64)
    column, bank, row = address_map.locate(addresses)
    assert column.max() < config.timing.columns
    assert bank.max() < config.timing.total_banks
    assert row.max() < 1 << config.row_bits
    place = column + (bank << np.uint64(config.column_bits)) + (row << np.uint64(config.column_bits + config.bank_bits))
    assert np.array_equal(np.sort(place), addresses)
    # (the hardware's own way back, `restore`, is the same matrix: every logged error of tb/hbm/test_ecc.py goes by it)
    back = np.zeros_like(addresses)
    for bit, mask in enumerate(address_map.inverse):
        back |= (np.bitwise_count(place & np.uint64(mask)).astype(np.uint64) & np.uint64(1)) << np.uint64(bit)
    assert np.array_equal(back, addresses)


def test_streams_alternate_between_bank_groups() -> None:
    """Neighbouring granules of a stream never wait for CCDL where two groups can take turns."""
    config = HbmConfig()
    _, bank, _ = AddressMap(config).locate(np.arange(4096))
    group = bank >> np.uint64(config.timing.banks.bit_length() - 1) & np.uint64(config.timing.groups - 1)
    within = group.reshape(-1, 64)
    assert (within[:, 1:] != within[:, :-1]).all()


def test_halves_of_the_memory_share_no_bank() -> None:
    """With stack IDs on top, weights and KV cache in different halves never meet in a bank."""
    config = HbmConfig()
    address_map = AddressMap(config)
    half = config.granules // 2
    low = set(np.unique(address_map.locate(np.arange(0, half, 7))[1]))
    high = set(np.unique(address_map.locate(np.arange(half, config.granules, 7))[1]))
    assert low
    assert high
    assert not low & high


def test_timings_in_clocks_are_rounded_up() -> None:
    """Against published.md's numbers in nanoseconds, at 1 GHz, and the peers' in clocks."""
    c = GENERATIONS["hbm4"].cycles()
    assert (c.bl, c.cl, c.cwl, c.rcdrd, c.rcdwr, c.rp, c.ras, c.rc) == (1, 10, 5, 20, 10, 17, 29, 45)
    assert (c.ccds, c.ccdl, c.ccdr, c.rrds, c.rrdl, c.faw) == (1, 2, 1, 3, 4, 15)
    assert (c.wr_pre, c.wtrs, c.wtrl, c.rtw) == (5 + 1 + 21, 5 + 1 + 5, 5 + 1 + 7, 13)
    assert (c.rfcpb, c.rfcab, c.refi) == (280, 450, 3900)
    d = GENERATIONS["hbm3d"].cycles()
    assert (d.cl, d.cwl, d.rcdrd, d.rcdwr, d.rp, d.ras, d.rc, d.faw, d.refi, d.rfcab) == (
        20, 10, 31, 15, 26, 45, 72, 24, 6240, 560
    )  # fmt: skip


@pytest.mark.parametrize("field", [f.name for f in dataclasses.fields(GENERATIONS["hbm4"]) if f.type == "float"])
def test_no_time_is_ever_shortened(field: str) -> None:
    for timing in GENERATIONS.values():
        clocks = timing.up(getattr(timing, field))
        assert clocks * timing.clock >= getattr(timing, field) - 1e-6
        assert (clocks - 1) * timing.clock < getattr(timing, field)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"generation": "hbm9"}, "generation must be one of"),
        ({"capacity": 3 << 20}, "capacity must be a power of two"),
        ({"capacity": 1024}, "capacity must be a power of two"),
        ({"read_queue": 65}, "read_queue must be an integer from 4 to 64, not 65"),
        ({"refresh": "never"}, "refresh must be"),
        ({"close": "sometimes"}, "close must be"),
        ({"scrub_interval": -1}, "scrub_interval must be an integer from 0 to 1048576, not -1"),
        ({"error_limit": 70000}, "error_limit must be an integer from 0 to 65535"),
        ({"prefetch": 100}, "prefetch must be a power of two"),
        ({"write_buffer": 16}, "write_buffer must be a power of two from write_queue"),
        ({"address_map": "c g b r"}, "leaves bits out: 1 of 's'"),
        ({"address_map": "c9 g b s r"}, "'c9' is not a field"),
        ({"address_map": "x"}, "'x' is not a field"),
    ],
)
def test_impossible_configurations(change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        HbmConfig(**change)


def test_tags_must_hold_the_prefetch() -> None:
    with pytest.raises(ValueError, match="tag_bits must be at least 11"):
        HbmController(HbmConfig(prefetch=256))


def test_checker_accepts_and_refuses() -> None:
    """A read, by hand: ACT at 0, RD at 20, PRE at 29 are legal for HBM4; each a clock earlier is not."""
    t = GENERATIONS["hbm4"]

    def rules(*commands: tuple[int, str]) -> list[str]:
        return [breach.rule for breach in check([Command(clock, name, 3, 0) for clock, name in commands], t)]

    assert rules((0, "ACT"), (20, "RD"), (29, "PRE"), (46, "ACT")) == []
    assert rules((0, "ACT"), (19, "RD")) == ["RCDRD"]
    assert rules((0, "ACT"), (20, "RD"), (28, "PRE")) == ["RAS"]
    assert rules((0, "ACT"), (24, "RD"), (29, "PRE")) == ["RTP"]
    assert rules((0, "ACT"), (20, "RD"), (29, "PRE"), (45, "ACT")) == ["RP"]
    assert rules((0, "RD")) == ["CLOSED"]


def test_checker_refuses_an_empty_trace(tmp_path) -> None:
    (tmp_path / "trace").write_text("")
    with pytest.raises(ValueError, match="has no command"):
        read_trace(tmp_path / "trace")


def test_check_bits_tell_errors_apart() -> None:
    """72 different columns of odd weight: a double error has an even syndrome, never that of a single one."""
    columns = [*COLUMNS, *(1 << k for k in range(8))]
    assert len(set(columns)) == 72
    assert all(column.bit_count() % 2 for column in columns)


def test_ecc_corrects_one_and_detects_two() -> None:
    """Every single error of a word, data or check bit, and random double errors, on random data."""
    generator = np.random.default_rng(1)
    decoder, m = Decoder(), Module()
    m.submodules.decoder = decoder
    plain, check_bits = Signal(256), Signal(32)
    m.d.comb += check_bits.eq(encode(plain))

    async def bench(ctx) -> None:
        seen = 0
        for trial in range(4 * 72 + 100):
            value = int.from_bytes(generator.bytes(32), "little")
            ctx.set(plain, value)
            flips = [(trial // 72, trial % 72)] if trial < 4 * 72 else []
            if not flips:
                word, (a, b) = int(generator.integers(4)), generator.choice(72, 2, replace=False)
                flips = [(word, int(a)), (word, int(b))]
            data, check_value = value, ctx.get(check_bits)
            for word, bit in flips:
                if bit < 64:
                    data ^= 1 << (64 * word + bit)
                else:
                    check_value ^= 1 << (8 * word + bit - 64)
            ctx.set(decoder.data, data)
            ctx.set(decoder.check, check_value)
            if len(flips) == 1:
                found = (ctx.get(decoder.fixed), ctx.get(decoder.corrected), ctx.get(decoder.failed))
                assert found == (value, 1, 0), flips
            else:
                assert ctx.get(decoder.failed), flips
            seen += 1
        assert seen

    simulator = Simulator(m)
    simulator.add_testbench(bench)
    simulator.run()
