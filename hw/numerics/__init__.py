"""Arithmetic units: decode, block dot, accumulate, quantise."""
