"""A model and a line for endpoints to work on, and completions as the engine would give them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from batchjobs.endpoints.base import EmbeddingFacts, LineContext, ModelContext
from executor.prompts import PromptText
from executor.request import Choice, Completion, FinishReason, TokenLogprob
from tests.support.tokenizer import ByteTokenizer

LINE = LineContext(id="0123456789abcdef0123456789abcdef", created=1767323045, seed=42)
MODEL = ModelContext(
    name="gpt-4o-mini", tokenizer=ByteTokenizer(), max_model_len=100, fingerprint="fp_1"
)


def encode_marked(prompts: Sequence[PromptText]) -> list[list[int]]:
    """A token a byte, between `<` and `>`."""
    return [_encode_marked(prompt) for prompt in prompts]


def _encode_marked(prompt: PromptText) -> list[int]:
    data = prompt.text.encode()
    if prompt.longest is not None:
        kept = max(0, prompt.longest - 2 * prompt.special_tokens)
        data = data[max(0, len(data) - kept) :] if prompt.side == "left" else data[:kept]
    return list(b"<" + data + b">" if prompt.special_tokens else data)


EMBEDDER = ModelContext(
    name="text-embedding-3-small",
    tokenizer=ByteTokenizer(),
    max_model_len=100,
    fingerprint="fp_2",
    embedding=EmbeddingFacts(encode_batch=encode_marked, dimensions=3),
)


def choice(
    data: bytes,
    *,
    index: int = 0,
    finish_reason: FinishReason = FinishReason.STOP,
    alternatives: int | None = None,
) -> Choice:
    """A choice of these bytes and one end token; each byte has probability one half, the byte
    after it in the alphabet one quarter, and so on."""
    return Choice(
        index=index,
        token_ids=tuple(data),
        text=data.decode(errors="replace"),
        finish_reason=finish_reason,
        generated_tokens=len(data) + 1,
        logprobs=None if alternatives is None else tuple(_halves(data, alternatives)),
    )


def _halves(data: bytes, alternatives: int) -> list[TokenLogprob]:
    half = math.log(0.5)
    return [
        TokenLogprob(
            token_id=byte,
            logprob=half,
            top=tuple((byte + rank, (rank + 1) * half) for rank in range(alternatives)),
        )
        for byte in data
    ]


def completion(*choices: Choice, prompt_tokens: int = 7, cached_tokens: int = 0) -> Completion:
    return Completion(
        request_id="0",
        prompt_tokens=prompt_tokens,
        choices=choices,
        cached_tokens=cached_tokens,
    )
