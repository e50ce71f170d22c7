"""Formal proofs of hardware blocks."""
