"""What a model reasoned before its answer, told from the answer."""

from __future__ import annotations

from batchjobs.endpoints.base import Tokenizer
from batchjobs.endpoints.templates import END_OF_THINK, THINK


def split_reasoning(text: str, *, is_open: bool) -> tuple[str | None, str]:
    """What stands within the first `<think>…</think>`, None for nothing, and the text behind it.

    `is_open` says that the prompt ends with `<think>`, so that the text begins behind that. What
    is cut off before `</think>` is reasoning without an answer.
    """
    if text.lstrip().startswith(THINK):
        text, is_open = text.lstrip().removeprefix(THINK), True
    if not is_open and (END_OF_THINK not in text or THINK in text):
        return None, text
    reasoning, _, answer = text.partition(END_OF_THINK)
    return reasoning.strip() or None, answer.lstrip("\n")


def opens_with_reasoning(prompt: str) -> bool:
    """Whether the prompt ends within `<think>`."""
    return prompt.rstrip().endswith(THINK)


def has_reasoned(prompt: str) -> bool:
    """Whether the prompt ends behind `</think>`."""
    return prompt.rstrip().endswith(END_OF_THINK)


def reasoning_tokens(token_ids: tuple[int, ...], tokenizer: Tokenizer) -> int:
    """How many tokens an answer that reasons takes for that, its end tag included."""
    end = END_OF_THINK.encode()
    read = b""
    for count, token in enumerate(token_ids, start=1):
        # The tag may be several tokens; no more of what is read can be part of it.
        read = read[-len(end) :] + tokenizer.token_bytes(token)
        if end in read:
            return count
    return len(token_ids)
