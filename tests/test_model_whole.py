"""The whole of SmolLM2 in golden arithmetic against float32: perplexity, KL divergence, top-1 agreement."""

import numpy as np
import pytest

from golden import reference
from golden.formats import FORMATS
from golden.model import GoldenModel
from golden.smollm2 import SmolLM2
from golden.tokenizer import Tokenizer
from golden.vector_functions import ChipFunctions

PROSE = """\
The old lighthouse stood at the end of a long spit of gravel, and for most of the year nobody went there. The road \
that led to it had been washed away twice, once in the year of the great storm and once, more slowly, by the ordinary \
patience of the tide. What was left was a line of stones, dry at low water and slippery with weed, on which a careful \
person could still reach the door in about half an hour.

Martha went out on the first calm day of spring. She carried bread, a lamp, and the notebook in which her father had \
written down the weather every morning for thirty years. She did not expect to find anything. The letter from the \
harbour office had only said that the building would be sold before the summer, and that the family might wish to \
collect what belonged to them.

Inside it was cold, and it smelled of salt and oil. The stairs went round and round the wall, past three small \
windows, to the room where the light had been. Somebody had taken the lens, but the great iron frame was still there, \
and beneath it a table, a chair, and a stove with a kettle on it, as if the keeper had gone down a moment ago to look \
at the boats. She sat down in the chair. From here you could see the whole bay: the town with its two churches, the \
ferry coming in, the grey islands, and behind them the line where the sea ended and the sky began.

She opened the notebook at the last page. The wind had been from the north-west that day, her father had written, \
force four, and the glass was rising. Under it, in a hand that was much less steady, there was one more sentence, \
which she had not seen before. It said that the light must be kept, because somebody was always out there, and because \
it cost so little to be kind to a stranger whom you would never meet.
"""


@pytest.fixture(scope="module")
def prose():
    """Token ids, and the float32 reference's logits of them."""
    model = SmolLM2.load()
    tokens = Tokenizer(model).encode(PROSE)
    return model, tokens, reference.Reference(model).forward(tokens)


@pytest.mark.long
def test_mxint8_is_near_float32(prose):
    model, tokens, wanted = prose
    result = reference.agreement(wanted, GoldenModel(model).logits(tokens), tokens)
    print(f"{len(tokens)} tokens, MXINT8: {result}")
    assert result.perplexity == pytest.approx(result.reference_perplexity, rel=0.02)
    assert result.mean_kl < 0.02
    assert result.top1 > 0.92


@pytest.mark.long
@pytest.mark.parametrize(("name", "worst"), [("E2M3", 1.3), ("E2M1", 5.0)])
def test_narrow_formats_lose_what_was_seen_before(prose, name, worst):
    """Narrow weights with MXINT8 activations: worse than MXINT8, and not absurd."""
    model, tokens, wanted = prose
    narrow = GoldenModel(model, FORMATS[name], FORMATS["MXINT8"])
    result = reference.agreement(wanted, narrow.logits(tokens), tokens)
    print(f"{len(tokens)} tokens, {name} weights, MXINT8 activations: {result}")
    assert 1.0 < result.perplexity / result.reference_perplexity < worst


@pytest.mark.long
def test_row_order_of_q_and_k_matters(prose, monkeypatch):
    """Without undoing llama.cpp's order of rows the model is broken: the perplexity shows that the order is right."""
    model, tokens, wanted = prose
    monkeypatch.setattr("golden.smollm2.undo_rope_permutation", lambda matrix, heads: matrix)
    broken = SmolLM2(model.path, type("Reader", (), {"fields": model._fields, "tensors": model._tensors.values()}))
    found = reference.perplexity(reference.Reference(broken).forward(tokens), tokens)
    assert found > 3 * reference.perplexity(wanted, tokens)


@pytest.mark.long
def test_golden_model_generates_what_float32_does():
    """Greedy decoding, a token at a time, on a prompt whose first tokens are not a close call."""
    model = SmolLM2.load()
    tokenizer, golden, plain = Tokenizer(model), GoldenModel(model), reference.Reference(model)
    prompt = tokenizer.encode(Tokenizer.chat("Why is the sky blue?"))
    pending, answer = prompt, []
    while len(answer) < 6:
        answer.append(int(np.argmax(golden.logits(pending)[-1])))
        pending = answer[-1:]
    assert answer == plain.generate(prompt, 6)


@pytest.mark.long
def test_the_chips_own_functions_cost_little(prose):
    """Attention in MXINT8 leaves and the vector unit's functions between the products; more than one leaf of 128."""
    model, tokens, wanted = prose
    chip = GoldenModel(model, functions=ChipFunctions())
    result = reference.agreement(wanted, chip.logits(tokens), tokens)
    print(f"{len(tokens)} tokens, MXINT8 with the chip's functions: {result}")
    assert result.perplexity == pytest.approx(result.reference_perplexity, rel=0.02)
    assert result.mean_kl < 0.02
    assert result.top1 > 0.92
