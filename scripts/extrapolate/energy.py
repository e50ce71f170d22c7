"""Energy of a step: events times published energy per event, scaled to 3 nm with a band, never a point."""

from __future__ import annotations

from dataclasses import dataclass

from scripts.extrapolate.chips import Band, Chip
from scripts.extrapolate.step import Step
from scripts.published import published

CONTROL: Band = (1.2, 2.0)
"""Clock, control and wires inside the tile over its arithmetic and SRAM: assumed, there is no public figure."""
WEIGHT_COPIES = 2  # a weight is written to and read from the queue between memory and array


def _figure(name: str) -> float:
    return published(name).number


def _logic_scale() -> Band:
    newest = _figure("energy.scale_7_to_3")
    return _figure("energy.scale_45_to_7_low") * newest, _figure("energy.scale_45_to_7_high_logic") * newest


def _sram_scale() -> Band:
    newest = _figure("energy.scale_7_to_3")
    return _figure("energy.scale_45_to_7_low") * newest, _figure("energy.scale_45_to_7_high_sram") * newest


@dataclass(frozen=True)
class Energy:
    """Joules of one step in the whole domain, by part, each a band; static power is apart, in `Power.static_watts`."""

    hbm: Band
    arithmetic: Band
    sram: Band
    network: Band
    links: Band

    @property
    def total(self) -> Band:
        """All parts, through the voltage regulators."""
        parts = (self.hbm, self.arithmetic, self.sram, self.network, self.links)
        efficiency = _figure("energy.regulator")
        return sum(p[0] for p in parts) / efficiency, sum(p[1] for p in parts) / efficiency


def mac_parts() -> tuple[float, float]:
    """Picojoules of a multiply-accumulate at 45 nm: product and sum, and its share of the block's FP32 accumulate."""
    integer = _figure("energy.int8_multiply_45") + _figure("energy.int32_add_45")
    return integer, _figure("energy.fp32_add_45") / 32


def energy(step: Step, chip: Chip) -> Energy:
    """Energy of `step` on `chip`."""
    picojoule = 1e-12
    logic, sram = _logic_scale(), _sram_scale()
    mac = sum(mac_parts())
    # A weight passes a queue; an activation block is read once for the columns of a row, and once for each block dot
    # of a column an FP32 accumulator is read and written.
    block_dots = step.macs / 32
    sram_bits = step.hbm_bytes * 8 * WEIGHT_COPIES + block_dots * (33 * 8 / chip.tile.columns + 2 * 32)
    bit = _figure("energy.sram_8k_45") / 64
    hops = (chip.columns + chip.rows) / 2
    network = step.flits * 32 * _figure("energy.noc_hop") * picojoule
    # A multicast crosses about one link for each tile that it reaches; a path to each tile apart, `hops` links.
    return Energy(
        hbm=(step.hbm_bytes * 8 * _figure("hbm4.energy_low") * picojoule,
             step.hbm_bytes * 8 * _figure("hbm4.energy_high") * picojoule),
        arithmetic=(step.macs * mac * logic[0] * CONTROL[0] * picojoule,
                    step.macs * mac * logic[1] * CONTROL[1] * picojoule),
        sram=(sram_bits * bit * sram[0] * CONTROL[0] * picojoule, sram_bits * bit * sram[1] * CONTROL[1] * picojoule),
        network=(network, network * hops),
        links=(step.link_bytes * 8 * _figure("energy.link_low") * picojoule,
               step.link_bytes * 8 * _figure("energy.link_high") * picojoule),
    )  # fmt: skip


def watts(step: Step, chip: Chip, seconds: float) -> Band:
    """Power of one chip while it repeats `step` every `seconds`; what flows when nothing happens is included."""
    return watts_of(energy(step, chip), chip, seconds)


def watts_of(spent: Energy, chip: Chip, seconds: float) -> Band:
    """Power of one chip whose domain spends that much every `seconds`, static power included."""
    low, high = spent.total
    chips = chip.domain.chips
    return low / seconds / chips + chip.power.static_watts[0], high / seconds / chips + chip.power.static_watts[1]
