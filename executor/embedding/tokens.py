"""Text to the token ids of an embedding model."""

from __future__ import annotations

from typing import Literal

from executor.text import HfTokenizer

Side = Literal["left", "right"]


class TextTokens:
    """A model's tokenizer without the truncation and padding that its file may ask for."""

    def __init__(self, tokenizer: HfTokenizer, *, lowercases: bool = False) -> None:
        self._rust = tokenizer.backend
        self._rust.no_truncation()
        self._rust.no_padding()
        self._truncation_side = tokenizer.truncation_side
        self._lowercases = lowercases

    def encode(
        self,
        text: str,
        *,
        special_tokens: bool = True,
        longest: int | None = None,
        side: Side | None = None,
    ) -> list[int]:
        """Token ids, with the model's special ones around them unless they are not wanted.

        Of more than `longest`, those on `side` are cut off (None: where the model's tokenizer
        cuts); special tokens stay, and count.
        """
        if self._lowercases:
            text = text.lower()
        encoding = self._rust.encode(text, add_special_tokens=False)
        if longest is not None:
            kept = longest - (self._special_count() if special_tokens else 0)
            encoding.truncate(max(0, kept), direction=side or self._truncation_side)
        if special_tokens:
            encoding = self._rust.post_process(encoding)
        ids: list[int] = encoding.ids
        return ids

    def _special_count(self) -> int:
        return int(self._rust.num_special_tokens_to_add(is_pair=False))
