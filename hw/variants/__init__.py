"""Circuit variants as Amaranth components: what the search finds, in the place of what was written by hand.

The hook for the tile is `VariantBlockDot`: the same ports and latency as `hw.numerics.dot.BlockDot` for MXINT8 alone,
around a circuit of `dot_s8x32`. A circuit comes as gates, from `scripts.explore.variant.gates(graph,
specification)`; this package knows nothing of how it was found. To put one in, make the tile's dot unit with
`VariantBlockDot(formats, circuit)` where it makes `BlockDot(formats)` today, and run the tile's tests.
"""

from hw.variants.circuit import Gates, PipelinedCircuit, VariantBlockDot

__all__ = ["Gates", "PipelinedCircuit", "VariantBlockDot"]
