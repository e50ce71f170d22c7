"""Explore circuit variants of an arithmetic block: proposers suggest, trusted code checks, measures and keeps."""
