"""Text to the token ids of an embedding model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from executor.prompts import PromptText
from executor.text import HfTokenizer


class TextTokens:
    """A model's tokenizer, for texts in lower case where the model wants them so."""

    def __init__(self, tokenizer: HfTokenizer, *, lowercases: bool = False) -> None:
        self._tokenizer = tokenizer
        self._lowercases = lowercases

    def encode_batch(self, prompts: Sequence[PromptText]) -> list[list[int]]:
        """Token ids of each."""
        if self._lowercases:
            prompts = [replace(prompt, text=prompt.text.lower()) for prompt in prompts]
        return self._tokenizer.encode_batch(prompts)
