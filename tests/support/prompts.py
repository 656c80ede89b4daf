"""Prompts as a model's tokenizer encodes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from batchjobs.endpoints.base import Tokenizer
from executor.prompts import PromptText


def chat_ids(
    tokenizer: Tokenizer, messages: Sequence[dict[str, Any]], **settings: Any
) -> list[int]:
    """Token ids of the conversation and the opening of the answer."""
    text = tokenizer.render_chat(messages, **settings)
    [ids] = tokenizer.encode_batch([PromptText(text=text, special_tokens=False)])
    return ids
