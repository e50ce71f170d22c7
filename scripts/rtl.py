"""`make rtl`: the chip's Verilog for another flow."""

from pathlib import Path

from hw.chip.chip import Chip
from hw.config import DEFAULT, load
from hw.emit import emit


def write(config: Path | None, directory: Path) -> list[Path]:
    """Emit the chip of a configuration (default: the one of `make sim`) with a file list; returns the Verilog files.

    The top module is `chip_<name>`; each repeated block stands in a file of its own. Raises ConfigError.
    """
    chip = load(config or DEFAULT)
    name = f"chip_{chip.name}"
    paths = emit(Chip(chip), name, directory)
    listing = directory / f"{name}.f"
    listing.write_text("".join(f"{path.name}\n" for path in paths))
    size = sum(path.stat().st_size for path in paths)
    print(f"{len(paths)} modules, {size / 1e6:.1f} MB of Verilog in {directory}; top {name}, file list {listing.name}")
    return paths
