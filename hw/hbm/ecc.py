"""SEC-DED of one granule: four words of 64 bits, eight check bits each (an extended Hamming code, 72/64)."""

from amaranth.hdl import Cat, Const, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["COLUMNS", "Decoder", "encode"]

WORD, CHECK, WORDS = 64, 8, 4

# Column of each data bit in the check matrix: an odd number of ones, three at least (Hsiao's construction), so that
# a double error has an even syndrome and cannot look like a single one.
COLUMNS: list[int] = [
    column
    for weight in (3, 5)
    for column in range(1 << CHECK)
    if column.bit_count() == weight
][:WORD]  # fmt: skip


def _word_check(word: Value) -> Value:
    return Cat(Cat(word[bit] for bit in range(WORD) if COLUMNS[bit] >> k & 1).xor() for k in range(CHECK))


def encode(granule: Value) -> Value:
    """32 check bits of a 256-bit granule; byte k of the result belongs to word k."""
    return Cat(_word_check(granule[WORD * k : WORD * (k + 1)]) for k in range(WORDS))


class Decoder(wiring.Component):
    """Combinational: corrects one wrong bit in each word, flags two.

    `data`, `check` in; `fixed` out (`data` with single errors corrected), `corrected` and `failed` (any word).
    """

    data: In(WORD * WORDS)
    check: In(CHECK * WORDS)
    fixed: Out(WORD * WORDS)
    corrected: Out(1)
    failed: Out(1)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        syndromes = Signal(CHECK * WORDS)
        m.d.comb += [syndromes.eq(encode(self.data) ^ self.check), self.fixed.eq(self.data)]
        odd = Cat(syndromes.word_select(k, CHECK).xor() for k in range(WORDS))
        known = Signal(WORDS)
        # A clean granule is the rule: the search for the wrong bit stays out of its way.
        with m.If(syndromes.any()):
            for k in range(WORDS):
                syndrome = syndromes.word_select(k, CHECK)
                word = self.data[WORD * k : WORD * (k + 1)]
                flips = Cat(syndrome == Const(column, CHECK) for column in COLUMNS)
                single = Cat(syndrome == Const(1 << bit, CHECK) for bit in range(CHECK)).any()
                m.d.comb += [
                    self.fixed[WORD * k : WORD * (k + 1)].eq(word ^ flips),
                    known[k].eq(flips.any() | single | ~syndrome.any()),
                ]
            m.d.comb += [self.failed.eq(~known.all()), self.corrected.eq((odd & known).any() & known.all())]
        return m
