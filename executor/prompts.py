"""Prompts as texts, before they are token ids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Side = Literal["left", "right"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptText:
    """A text to be encoded, with the model's `special_tokens` around it or only those that it
    spells itself.

    Of more than `longest` tokens, those on `side` are cut off (None: where the model's own
    tokenizer cuts); special tokens stay, and count.
    """

    text: str
    special_tokens: bool = True
    longest: int | None = None
    side: Side | None = None
