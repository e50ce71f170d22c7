"""The address map of a pseudo-channel: granule address to stack ID, bank group, bank, row and column.

A map is a matrix over GF(2): each device bit is the XOR of some address bits. The same matrix serves the hardware,
the device model (its inverse, as a parameter) and NumPy.
"""

from __future__ import annotations

import numpy as np
from amaranth.hdl import Cat, Value

from .config import HbmConfig

__all__ = ["AddressMap"]


class AddressMap:
    """Map of one configuration.

    Device bits are ordered column (least significant), bank (`{sid, group, bank}`), row. `masks[i]` has the address
    bits whose XOR is device bit i; `inverse[j]` the device bits whose XOR is address bit j.
    """

    def __init__(self, config: HbmConfig):
        self.config = config
        self.masks = self._masks(config)
        self.inverse = _invert(self.masks)

    @staticmethod
    def _masks(config: HbmConfig) -> list[int]:
        timing = config.timing
        start = {"c": 0, "b": config.column_bits}
        start["g"] = start["b"] + timing.banks.bit_length() - 1
        start["s"] = start["g"] + timing.groups.bit_length() - 1
        start["r"] = start["s"] + timing.sids.bit_length() - 1
        masks, position = [0] * config.address_bits, 0
        for field, bits in config.fields():
            for _ in range(bits):
                masks[start[field]] = 1 << position
                start[field] += 1
                position += 1
        if config.hash_banks:
            row = config.column_bits + config.bank_bits
            # Stack bits stay as they are: software may keep what must not collide in different stacks.
            bits = start["s"] - timing.sids.bit_length() + 1 - config.column_bits
            for index in range(config.row_bits):
                masks[config.column_bits + bits - 1 - index % bits] ^= masks[row + index]
        return masks

    def bits(self, address: Value) -> Value:
        """Device bits of a granule address (hardware)."""
        return self._product(self.masks, address)

    def restore(self, bits: Value) -> Value:
        """Granule address of device bits (hardware)."""
        return self._product(self.inverse, bits)

    @staticmethod
    def _product(masks: list[int], value: Value) -> Value:
        return Cat(Cat(value[k] for k in range(len(masks)) if mask >> k & 1).xor() for mask in masks)

    def split(self, address: Value) -> tuple[Value, Value, Value]:
        """Column, bank and row of a granule address (hardware)."""
        bits, column = self.bits(address), self.config.column_bits
        row = column + self.config.bank_bits
        return bits[:column], bits[column:row], bits[row:]

    def locate(self, address: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Column, bank index and row of granule addresses (NumPy, any shape, unsigned)."""
        address = np.asarray(address, dtype=np.uint64)
        device = np.zeros_like(address)
        for index, mask in enumerate(self.masks):
            device |= (np.bitwise_count(address & np.uint64(mask)).astype(np.uint64) & np.uint64(1)) << np.uint64(index)
        column, row = self.config.column_bits, self.config.column_bits + self.config.bank_bits
        low = np.uint64((1 << column) - 1)
        banks = np.uint64((1 << self.config.bank_bits) - 1)
        return device & low, device >> np.uint64(column) & banks, device >> np.uint64(row)

    def inverse_parameter(self) -> int:
        """The inverse matrix as one constant, address bit 0's mask first, `address_bits` bits each."""
        width = len(self.inverse)
        return sum(mask << (width * index) for index, mask in enumerate(self.inverse))


def _invert(masks: list[int]) -> list[int]:
    """Inverse of a square matrix over GF(2), rows as bit masks."""
    size = len(masks)
    work = [(mask, 1 << index) for index, mask in enumerate(masks)]
    for column in range(size):
        pivot = next((k for k in range(column, size) if work[k][0] >> column & 1), None)
        if pivot is None:
            raise ValueError("The address map is not invertible: two addresses would share a granule")
        work[column], work[pivot] = work[pivot], work[column]
        for other in range(size):
            if other != column and work[other][0] >> column & 1:
                work[other] = (work[other][0] ^ work[column][0], work[other][1] ^ work[column][1])
    return [inverse for _, inverse in work]
