"""Log-probabilities as `/v1/completions` has them: four arrays, one element a token."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from batchjobs.endpoints.answers import token_text, wire_logprob
from batchjobs.endpoints.base import Tokenizer
from executor.request import TokenLogprob


@dataclass(frozen=True, slots=True, kw_only=True)
class Echo:
    """What stands before the answers to a prompt: with `echo` its text and tokens."""

    text: str = ""
    token_ids: Sequence[int] = ()


_Position = TokenLogprob | None
"""Nothing foretells a prompt's first token."""


def text_logprobs(
    echo: Echo,
    prompt: Sequence[TokenLogprob],
    answer: Sequence[TokenLogprob],
    text: str,
    *,
    top: int,
    tokenizer: Tokenizer,
) -> dict[str, Any]:
    """The arrays of an answer `text`, behind its echoed prompt.

    `prompt` are of all its tokens but the first. `top` alternatives are shown of each, and always
    the token itself. `text_offset` counts characters of the choice's whole text.
    """
    positions: list[_Position] = [None, *prompt] if echo.token_ids else []
    positions += answer
    asked = [tokenizer.token_bytes(token_id) for token_id in echo.token_ids]
    given = [tokenizer.token_bytes(position.token_id) for position in answer]
    behind = [len(echo.text) + offset for offset in _answer_offsets(given, text)]
    return {
        "tokens": [_token_name(token) for token in (*asked, *given)],
        "token_logprobs": [each and wire_logprob(each.logprob) for each in positions],
        "top_logprobs": [each and _top(each, top, tokenizer) for each in positions],
        "text_offset": [*_prompt_offsets(asked, echo.text), *behind],
    }


def _top(position: TokenLogprob, count: int, tokenizer: Tokenizer) -> dict[str, float]:
    pairs = (*position.top[:count], (position.token_id, position.logprob))
    return {
        _token_name(tokenizer.token_bytes(token_id)): wire_logprob(logprob)
        for token_id, logprob in pairs
    }


def _token_name(token: bytes) -> str:
    """As the public API writes it here: escaped bytes are marked, and stay apart as keys."""
    text = token_text(token)
    return text if text.encode() == token else f"bytes:{text}"


def _answer_offsets(tokens: Sequence[bytes], text: str) -> list[int]:
    return [min(start, len(text)) for start in _starts(tokens)]


def _prompt_offsets(tokens: Sequence[bytes], text: str) -> list[int]:
    """What a tokenizer puts before a text, like a token that opens it, is no part of that."""
    spelled = _decode(tokens)
    put_before = len(spelled) - len(text) if spelled.endswith(text) else 0
    return [min(max(0, start - put_before), len(text)) for start in _starts(tokens)]


def _starts(tokens: Sequence[bytes]) -> list[int]:
    """Characters before each token, one that is not whole yet counting for none."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    starts = []
    length = 0
    for token in tokens:
        starts.append(length)
        length += len(decoder.decode(token))
    return starts


def _decode(tokens: Sequence[bytes]) -> str:
    return b"".join(tokens).decode(errors="replace")
