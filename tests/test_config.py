"""The chip's configuration: the file that ships, and one clear line for everything that cannot be used."""

import pytest

from hw.config import DEFAULT, ChipConfig, ConfigError, load

GOOD = DEFAULT.read_text()


def test_the_default_is_the_small_chip():
    config = load()
    assert (config.mesh.columns, config.mesh.rows, config.tiles) == (2, 2, 4)
    assert config.place(3) == (1, 1)
    assert config.mesh.ports_at(0, 0) == 2


def test_an_empty_file_is_the_default_chip(tmp_path):
    path = tmp_path / "empty.toml"
    path.write_text("")
    assert load(path) == ChipConfig()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("rows = 4", "rows = 0", "tile.rows must be an integer from 1 to 64, not 0"),
        ("rows = 4", "rows = true", "tile.rows must be an integer"),
        ("columns = 4", "colums = 4", ":13: unknown key 'colums' in [tile]; allowed: rows, columns"),
        ("[mesh]", "[mash]", "unknown section 'mash'; allowed: chip, mesh, tile, hbm"),
        ("columns = 2", "columns = 65", "columns must be an integer from 1 to 64, not 65"),
        ('"MXINT8"', '"MXINT9"', "tile.formats has 'MXINT9'; allowed are MXINT8"),
        ('"MXINT8"', '"FP4"', "tile.formats has 'FP4'; allowed are MXINT8, E4M3, E5M2, E2M3, E3M2, E2M1, INT4, NVFP4"),
        ('formats = ["MXINT8"]', "formats = []", "tile.formats is empty"),
        ('"hbm4"', '"hbm5"', "generation must be one of hbm4"),
        ('"hbm4"', '"hbm3d"', "has a controller clock of 0.625 ns; at 1 GHz a chip takes hbm4"),
        ("capacity = 4194304", "capacity = 5", "capacity must be a power of two"),
        ("result_granules = 32768", "result_granules = 1", "chip.result_granules must be an integer from 64"),
        ('name = "small"', 'name = "Small chip"', "chip.name must be lower-case"),
        ("[tile]", "[tile", "not a TOML file"),
        ("rows = 2", "rows = 17", "a mesh of 2 x 17 has 34 tiles; the host port serves at most 32"),
    ],
)
def test_what_cannot_be_used_is_one_line(tmp_path, old, new, message):
    assert old in GOOD
    path = tmp_path / "mine.toml"
    path.write_text(GOOD.replace(old, new))
    with pytest.raises(ConfigError) as error:
        load(path)
    text = str(error.value)
    assert message in text and str(path) in text and "\n" not in text


def test_the_line_of_a_key_is_that_of_its_section(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("[mesh]\ncolumns = 2\n[tile]\n# rows\nroes = 1\n[hbm]\n")
    with pytest.raises(ConfigError, match=r"mine.toml:5: unknown key 'roes' in \[tile\]"):
        load(path)


def test_a_missing_file_is_one_line(tmp_path):
    with pytest.raises(ConfigError, match=r"nowhere\.toml: No such file"):
        load(tmp_path / "nowhere.toml")
