"""Circuit variants as Amaranth components: what the search finds, in the place of what was written by hand.

The switch is `SERRANO_VARIANT` (`make ... VARIANT=file`): with it every dot unit whose formats the circuit in the file
fits has `VariantBlockDot`, with the same ports and latency, where it has `hw.numerics.dot.BlockDot` otherwise. This
package knows nothing of how a circuit was found; `make explore` writes the files.
"""

from hw.variants.circuit import Gates, PipelinedCircuit, VariantBlockDot, crossings, levels, thrifty_cuts
from hw.variants.selected import SWITCH, VariantError, VariantFile, read, selected, switch_arguments, write

__all__ = [
    "SWITCH",
    "Gates",
    "PipelinedCircuit",
    "VariantBlockDot",
    "VariantError",
    "VariantFile",
    "crossings",
    "levels",
    "read",
    "selected",
    "switch_arguments",
    "thrifty_cuts",
    "write",
]
