"""The models' shapes reproduce what is published about them; descriptions that are wrong are refused by name."""

import tomllib

import pytest

from scripts.extrapolate import chips, shapes
from scripts.extrapolate.toml_object import DescriptionError
from scripts.published import FILE, TAGS, figures, published

LARGE = ("gpt_oss_120b", "deepseek_r1", "kimi_k2_5")


@pytest.mark.parametrize("name", LARGE)
def test_published_sizes_are_reproduced(name):
    """To half a unit of the last published digit."""
    model = shapes.load(name)

    def near(key, value, digits):
        assert value == pytest.approx(published(f"model.{name}.{key}").number, abs=0.5 * 10**-digits + 1e-12)

    near("parameters", model.parameters / 1e9, 1 if name == "kimi_k2_5" else 2)
    near("active", model.active / 1e9, 2)
    near("bytes_per_token", model.weight_bytes() / 1e9, 2 if name == "gpt_oss_120b" else 1)
    near("resident", model.resident / 1e9, 1 if name == "gpt_oss_120b" else 0)
    near("kv_read_8192", model.kv_read(8192) / 1e6, 0)
    assert model.kv_token == pytest.approx(published(f"model.{name}.kv_per_token").number, rel=0.0011)


def test_parts_of_the_weights_are_the_published_ones():
    """The parts that the record lists: attention, experts, output layer, in GB a token."""
    wanted = {
        "gpt_oss_120b": {"attention": 1.91, "expert": 1.90, "head": 1.16},
        "deepseek_r1": {"attention": 11.4, "expert": 20.4, "head": 1.85},
        "kimi_k2_5": {"attention": 12.3, "expert": 11.9, "head": 2.35},
    }
    for name, parts in wanted.items():
        found = dict.fromkeys(parts, 0.0)
        for matrix in shapes.load(name).matrices:
            part = "attention" if matrix.stage < 3 else matrix.name.split()[0]
            if part in found:
                found[part] += matrix.bytes * matrix.used * matrix.layers / 1e9
        for part, value in parts.items():
            assert found[part] == pytest.approx(value, rel=0.006), (name, part)


def test_smollm2_is_the_models_own_shape():
    from golden.smollm2 import SmolLM2

    model, config = shapes.load("smollm2_135m"), SmolLM2.load().config
    assert model.parameters == 134_515_008
    assert [(m.n, m.k) for m in model.matrices[:-1]] == list(config.shapes().values())
    assert (model.layers, model.vocabulary, model.hidden) == (config.layers, config.vocabulary, config.hidden)
    values = model.kv_token * 8 / shapes.BITS["MXINT8"]
    assert 2 * values == published("model.smollm2_135m.kv_per_token").number


def test_distinct_experts():
    expert = next(m for m in shapes.load("deepseek_r1").matrices if m.name == "expert down")
    assert shapes.distinct(expert, 1) == pytest.approx(8)
    assert 8 < shapes.distinct(expert, 2) < 16
    assert shapes.distinct(expert, 10_000) == pytest.approx(256)


def test_windowed_layers_read_their_window():
    model = shapes.load("gpt_oss_120b")
    assert model.kv_read(128) == model.layers * 128 * model.kv_layer
    assert model.kv_read(129) - model.kv_read(128) == 18 * model.kv_layer


def test_every_published_figure_has_source_and_tag():
    assert len(figures()) > 80
    assert {figure.tag for figure in figures().values()} <= set(TAGS)
    assert all(figure.source for figure in figures().values())
    for name in LARGE:
        as_printed = published(f"jalapeno.{name}.as_printed")
        assert "as printed" in as_printed.unit
        assert "not a target" in as_printed.conflict
    with pytest.raises(ValueError, match="no number"):
        _ = published("jalapeno.tdp").number


def test_published_file_has_no_unused_source():
    tables = tomllib.loads(FILE.read_text())
    text = FILE.read_text()
    for name in tables["sources"]:
        assert f'"{name}' in text or f" {name}" in text.split("[jalapeno]", 1)[1], name


def chip_file(tmp_path, old, new):
    path = tmp_path / "mine.toml"
    text = (chips.FOLDER / "full_size.toml").read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    return path


def test_full_size_chip():
    chip = chips.load("full_size")
    assert chip.bandwidth == pytest.approx(8 * 8 * 2.048e12)
    assert chip.granules_per_cycle == 16


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("hop_cycles = 2.0", "hopcycles = 2.0", "unknown key 'hopcycles'; allowed: name, clock_hz"),
        ("[hbm]\n", "[hbm]\nvolts = 1\n", r"mine\.toml\.hbm: unknown key 'volts'"),
        ("stacks = 8", "stacks = 6", "32 tiles of 16 pseudo-channels are not the 384 of 6 HBM4 stacks"),
        ("columns = 8 #", "columns = 0 #", "columns must be more than 0, not 0"),
        ("clock_hz = 1_000_000_000", "", "key 'clock_hz' is missing"),
        ("stacks = 8", "stacks = 'eight'", "stacks must be float, not 'eight'"),
        ("static_watts = [30.0, 120.0]", "static_watts = [130.0, 120.0]", r"a band \[low, high\]"),
        ("expert_groups = 8", "expert_groups = 3", "expert_groups must divide the 8 chips, not 3"),
        ("name =", "name", "not a TOML file"),
    ],
)
def test_wrong_chips_are_refused(tmp_path, old, new, message):
    with pytest.raises(DescriptionError, match=message) as error:
        chips.load(chip_file(tmp_path, old, new))
    assert "\n" not in str(error.value)


def test_unknown_names_are_refused(tmp_path):
    with pytest.raises(DescriptionError, match="no such chip; there are: full_size"):
        chips.load("absent")
    with pytest.raises(DescriptionError, match="no such model; there are: deepseek_r1, gpt_oss_120b"):
        shapes.load("absent")
    path = tmp_path / "model.toml"
    path.write_text((shapes.FOLDER / "kimi_k2_5.toml").read_text().replace("INT4_G32", "INT3"))
    with pytest.raises(DescriptionError, match="routed must be one of BF16"):
        shapes.load(path)


def test_simulated_chip_comes_from_the_runs_configuration():
    values = {"name": "small", "clock_hz": 10**9, "mesh": {"columns": 2, "rows": 2}, "hbm": {"generation": "hbm4"},
              "tile": {"rows": 8, "columns": 4, "slots": 8}}  # fmt: skip
    chip = chips.simulated(values)
    assert chip.bandwidth == pytest.approx(128e9)
    assert chip.bandwidth / 4 == published("hbm4.channel_rate").number * 1e9, "the hardware's table is the standard's"
    assert chip.granules_per_cycle == 1
    older = chips.simulated({**values, "hbm": {"generation": "hbm3d"}})
    assert older.rate == 0.5, "a burst of HBM3 holds the bus for two cycles"
    with pytest.raises(DescriptionError, match="lacks 'tile'"):
        chips.simulated({"mesh": values["mesh"]})
