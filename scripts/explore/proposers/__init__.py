"""Proposers that come with the explorer. Each is a program on the line protocol of `scripts.explore.protocol`."""
