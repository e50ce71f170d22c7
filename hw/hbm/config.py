"""Configuration of one HBM pseudo-channel: controller and device are both built from it."""

from __future__ import annotations

from dataclasses import dataclass

from .timing import GENERATIONS, Cycles, Timing

__all__ = ["GRANULE_BYTES", "HbmConfig"]

GRANULE_BYTES = 32


def _power_of_two(value: int) -> bool:
    return value > 0 and value & (value - 1) == 0


@dataclass(frozen=True)
class HbmConfig:
    """One pseudo-channel.

    Parameters
    ----------
    generation : str
        Row of the timing table: `hbm4`, `hbm3d`, `hbm2c` or `hbm2a`.
    capacity : int
        Bytes of storage; a power of two, at least one row in every bank. Sets the number of rows.
    read_queue, write_queue : int
        Requests that the scheduler sees, 4 to 64 each.
    write_buffer : int
        Granules of write data held (a power of two, at least `write_queue`).
    prefetch : int
        Granules of the streaming port in flight or waiting for the tile; a power of two, 8 to 512.
    descriptors : int
        Stream descriptors that wait in the controller.
    refresh : str
        `per_bank`, `all_bank`, or `off` (for measurements of an upper bound alone; a device with its refresh check
        on stops the simulation).
    refresh_batch : int
        All-bank refresh: refreshes that are postponed and then issued together, 1 to 8.
    age_limit : int
        Clocks after which the oldest request of a queue overrides first-ready order.
    batch_limit : int
        Requests served in one direction while the other waits with its queue full.
    close : str
        `adaptive`: a row that nobody waits for and that no sequential stream is in is closed in a free slot; `open`:
        rows stay open until another row is wanted.
    address_map : str
        Fields from the least significant granule-address bit on, such as `c2 g c b s r`: c column, g bank group,
        b bank, s stack ID, r row; a number takes that many bits, none takes the rest. Empty: groups alternate every
        granule (two groups) or every four (more), and the stack ID is on top, so that data kept in different halves
        of the memory (weights, KV cache) never share a bank.
    hash_banks : bool
        Fold the row bits into the bank and group bits, so that strides spread over banks.
    ecc : bool
        SEC-DED check bits for each 64-bit word.
    scrub_interval : int
        Clocks between two granules that the ECC scrubber reads, up to 2**20; 0: no scrubber.
    error_limit : int
        Corrected errors after which the interrupt is raised; 0: never (an uncorrectable one always raises it).
    tag_bits : int
        Width of the request tag on the core's port.
    """

    generation: str = "hbm4"
    capacity: int = 128 << 20
    read_queue: int = 32
    write_queue: int = 32
    write_buffer: int = 64
    prefetch: int = 128
    descriptors: int = 4
    refresh: str = "per_bank"
    refresh_batch: int = 4
    age_limit: int = 1000
    batch_limit: int = 64
    close: str = "adaptive"
    address_map: str = ""
    hash_banks: bool = True
    ecc: bool = True
    scrub_interval: int = 0
    error_limit: int = 0
    tag_bits: int = 10

    def __post_init__(self) -> None:
        if self.generation not in GENERATIONS:
            raise ValueError(f"generation must be one of {', '.join(GENERATIONS)}, not '{self.generation}'")
        if self.refresh not in ("per_bank", "all_bank", "off"):
            raise ValueError(f"refresh must be 'per_bank', 'all_bank' or 'off', not '{self.refresh}'")
        if self.close not in ("adaptive", "open"):
            raise ValueError(f"close must be 'adaptive' or 'open', not '{self.close}'")
        row_of_all_banks = GRANULE_BYTES * self.timing.columns * self.timing.total_banks
        if not _power_of_two(self.capacity) or self.capacity < 2 * row_of_all_banks:
            raise ValueError(
                f"capacity must be a power of two of at least {2 * row_of_all_banks} bytes, not {self.capacity}"
            )
        for name, low, high in (
            ("read_queue", 4, 64), ("write_queue", 4, 64), ("descriptors", 1, 64), ("refresh_batch", 1, 8),
            ("age_limit", 64, 65535), ("batch_limit", 1, 1023), ("tag_bits", 1, 32),
            ("scrub_interval", 0, 1 << 20), ("error_limit", 0, 65535),
        ):  # fmt: skip
            value = getattr(self, name)
            if not isinstance(value, int) or not low <= value <= high:
                raise ValueError(f"{name} must be an integer from {low} to {high}, not {value!r}")
        if not _power_of_two(self.prefetch) or not 8 <= self.prefetch <= 512:
            raise ValueError(f"prefetch must be a power of two from 8 to 512, not {self.prefetch}")
        if not _power_of_two(self.write_buffer) or not self.write_queue <= self.write_buffer <= 256:
            raise ValueError(
                f"write_buffer must be a power of two from write_queue ({self.write_queue}) to 256, "
                f"not {self.write_buffer}"
            )
        self.fields()

    @property
    def timing(self) -> Timing:
        return GENERATIONS[self.generation]

    @property
    def cycles(self) -> Cycles:
        return self.timing.cycles()

    @property
    def granules(self) -> int:
        return self.capacity // GRANULE_BYTES

    @property
    def address_bits(self) -> int:
        """Bits of a granule address."""
        return self.granules.bit_length() - 1

    @property
    def bank_bits(self) -> int:
        """Bits of a bank index: stack ID, bank group, bank, from the most significant down."""
        return self.timing.total_banks.bit_length() - 1

    @property
    def column_bits(self) -> int:
        return self.timing.columns.bit_length() - 1

    @property
    def row_bits(self) -> int:
        return self.address_bits - self.bank_bits - self.column_bits

    def fields(self) -> list[tuple[str, int]]:
        """`address_map` as (field, bits), least significant first. Raises ValueError when it is not a full map."""
        left = {
            "c": self.column_bits, "g": self.timing.groups.bit_length() - 1, "b": self.timing.banks.bit_length() - 1,
            "s": self.timing.sids.bit_length() - 1, "r": self.row_bits,
        }  # fmt: skip
        default = "g c b r s" if self.timing.groups == 2 else "c3 g c b r s"
        result = []
        for part in (self.address_map or default).split():
            field, digits = part[0], part[1:]
            bits = int(digits) if digits.isdigit() else left.get(field, -1)
            if field not in left or (digits and not digits.isdigit()) or bits > left[field]:
                raise ValueError(f"address_map: '{part}' is not a field of c, g, b, s, r with at most its bits left")
            left[field] -= bits
            result.append((field, bits))
        if any(left.values()):
            missing = ", ".join(f"{bits} of '{field}'" for field, bits in left.items() if bits)
            raise ValueError(f"address_map '{self.address_map}' leaves bits out: {missing}")
        return result
