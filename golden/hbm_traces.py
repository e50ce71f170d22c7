"""The eleven memory traces that controllers are compared on, one pseudo-channel, footprint 128 MiB.

A request is a granule index of 32 bytes; bit 31 marks a write. Random numbers come from splitmix64 with state 1 at the
start of each trace. As text (`R|W index` a line) the traces have the MD5 sums of `MD5`.
"""

from __future__ import annotations

import hashlib

import numpy as np

__all__ = ["LINES", "MD5", "TRACES", "WRITE", "text_md5", "trace"]

LINES = 100_000
WRITE = np.uint32(1 << 31)
FOOTPRINT = 128 << 20
GRANULE = 32
TRACES = ("seq", "rw11", "rw11b16", "rand", "conf", "kv256", "kv1024", "kv4096", "page256", "page1024", "page4096")
MD5 = {
    "seq": "ea5220263b3865ba73f281cf63b4608f", "rw11": "9aa0cd14cd9496c2cc6411abef3a68ac",
    "rw11b16": "15bfd3a5fc9b315ee9fa0242435610d8", "rand": "82d7332cbf161722302c75c52f752958",
    "conf": "511cb096bd2dc24189f9793efc130a8a", "kv256": "fe5ea51a0028eee97a777da5f17f5176",
    "kv1024": "0259ce263dc6cbecde29570201db49cc", "kv4096": "2e873d3e16c7b6a88e4f3f1ca0e20c2a",
    "page256": "3045df35b622f87ba562b865f2cc374c", "page1024": "9908cdbe88006ccca6df5611d8f67da5",
    "page4096": "84a5aaf9c0f8f26361da83c99751cffa",
}  # fmt: skip


def _splitmix64(count: int) -> np.ndarray:
    """The first `count` draws of splitmix64 from state 1."""
    with np.errstate(over="ignore"):
        z = np.uint64(1) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _pages(size: int, count: int) -> np.ndarray:
    """`count` granules of random pages of `size` bytes from 64 MiB on."""
    per_page = size // GRANULE
    half = FOOTPRINT // 2
    pages = half // GRANULE + (_splitmix64(-(-count // per_page)) % np.uint64(half // size)) * np.uint64(per_page)
    return (pages[:, None] + np.arange(per_page, dtype=np.uint64)).reshape(-1)[:count]


def trace(name: str, lines: int = LINES) -> np.ndarray:
    """Requests of a trace: uint32 (lines,), granule index with bit 31 for a write."""
    i = np.arange(lines, dtype=np.uint64)
    half = np.uint64(FOOTPRINT // 2 // GRANULE)
    write = np.zeros(lines, dtype=bool)
    if name == "seq":
        index = i
    elif name == "rw11":
        write = i % 2 == 1
        index = i // 2 + half * write
    elif name == "rw11b16":
        write = i % 32 >= 16
        index = 16 * (i // 32) + i % 16 + half * write
    elif name == "rand":
        index = _splitmix64(lines) % np.uint64(FOOTPRINT // GRANULE)
    elif name == "conf":
        index = (i * np.uint64(65536) % np.uint64(FOOTPRINT)) // np.uint64(GRANULE)
    elif name.startswith("kv") and name in TRACES:
        page = i % 3 == 2
        index = np.empty(lines, dtype=np.uint64)
        index[~page] = np.arange((~page).sum(), dtype=np.uint64)
        index[page] = _pages(int(name[2:]), int(page.sum()))
    elif name in TRACES:
        index = _pages(int(name[4:]), lines)
    else:
        raise ValueError(f"trace must be one of {', '.join(TRACES)}, not '{name}'")
    return index.astype(np.uint32) | np.where(write, WRITE, np.uint32(0))


def text_md5(requests: np.ndarray) -> str:
    """MD5 of the trace as text."""
    kinds = np.where(requests & WRITE, "W", "R")
    lines = (f"{kind} {index}\n" for kind, index in zip(kinds, requests & ~WRITE, strict=True))
    return hashlib.md5("".join(lines).encode()).hexdigest()
