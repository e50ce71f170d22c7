"""The byte-pair tokenizer of SmolLM2, built from the vocabulary and merges inside the GGUF file.

Source: the `smollm` pre-tokenizer of llama.cpp (each digit alone, then GPT-2's byte-level pattern) and the chat
template in the file's metadata.
"""

from __future__ import annotations

from collections.abc import Sequence

from golden.smollm2 import ModelFileError, SmolLM2

CONTROL = 3  # The token type that GGUF gives to tokens that text cannot spell.


class Tokenizer:
    """Text to token ids and back without loss; text that the vocabulary cannot spell is refused, never dropped."""

    def __init__(self, model: SmolLM2) -> None:
        import tokenizers
        from tokenizers import decoders, models, pre_tokenizers

        if model.field("tokenizer.ggml.model") != "gpt2" or model.field("tokenizer.ggml.pre") != "smollm":
            raise ModelFileError(f"{model.path}: the tokenizer is not byte-pair encoding of the kind 'smollm'")
        vocabulary = {token: index for index, token in enumerate(model.tokens)}
        merges = [(left, right) for left, _, right in (merge.partition(" ") for merge in model.merges)]
        try:
            bpe = models.BPE(vocab=vocabulary, merges=merges)
        except Exception as error:  # The Rust library raises plain Exception for merges outside the vocabulary.
            raise ModelFileError(f"{model.path}: vocabulary and merges do not fit together ({error})") from None
        self._tokenizer = tokenizers.Tokenizer(bpe)
        self._tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
        self._tokenizer.decoder = decoders.ByteLevel()
        kinds = model.field("tokenizer.ggml.token_type")
        control = [token for token, kind in zip(model.tokens, kinds, strict=True) if kind == CONTROL]
        self._tokenizer.add_special_tokens(control)
        # The vocabulary lacks some bytes (six control characters, the first bytes of planes 4 to 11), and the library
        # drops what it cannot spell.
        self._unknown = {c for c in pre_tokenizers.ByteLevel.alphabet() if c not in vocabulary}
        self._spell = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str
        self.end = int(model.field("tokenizer.ggml.eos_token_id"))

    def encode(self, text: str) -> list[int]:
        """Token ids; control tokens such as <|im_start|> are recognised where the text spells them.

        Raises ValueError for a character whose UTF-8 bytes are not all in the vocabulary.
        """
        for character in sorted(set(text)):
            if any(not self._unknown.isdisjoint(piece) for piece, _ in self._spell(character)):
                raise ValueError(f"the vocabulary cannot spell the character U+{ord(character):04X}")
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of the ids, control tokens included."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=False)

    @staticmethod
    def chat(prompt: str) -> str:
        """`prompt` as the user's first message in the template that the model was tuned on, up to its answer."""
        system = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
        return f"<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n"
