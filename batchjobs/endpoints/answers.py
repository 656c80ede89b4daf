"""What the response bodies of generating endpoints share."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from batchjobs.endpoints.base import Body, Tokenizer
from batchjobs.errors import BatchJobsError, InvalidRequestError
from executor.request import Choice, Completion, FinishReason, TokenLogprob

# The public API's word for "impossible": JSON has no minus infinity.
IMPOSSIBLE_LOGPROB = -9999.0
LOGPROB_DIGITS = 4
"""Decimals of a log-probability. Other company in a step moves one by up to 0.00005 (measured on
the default model), which is half a unit of the last of them."""


GrammarFault = Callable[[str, str], InvalidRequestError]
"""The error for the part of a grammar that is to blame, and the reason."""


def check_answered(
    completions: Sequence[Completion], grammar_fault: GrammarFault | None = None
) -> None:
    """Raise if a request came to nothing, or ran out of its time.

    The public API has no `finish_reason` for the latter, and strict clients take no other words
    than its own: it is an error of the line, which can be run again.
    """
    for completion in completions:
        if completion.error is not None:
            if completion.error_code is not None:
                raise BatchJobsError(completion.error, code=completion.error_code)
            if completion.grammar_part is not None and grammar_fault is not None:
                raise grammar_fault(completion.grammar_part, completion.error)
            raise InvalidRequestError(completion.error)
        if any(choice.finish_reason is FinishReason.TIMEOUT for choice in completion.choices):
            raise BatchJobsError(
                "The request ran for longer than BATCHJOBS_REQUEST_TIMEOUT_SECONDS allows.",
                code="request_timeout",
            )


def usage(completions: Sequence[Completion], *, reasoning_tokens: int = 0) -> dict[str, Any]:
    """Tokens over all prompts and choices; a prompt counts once, however many choices it has.

    No prompt token is reported as cached: which lines found their prompt computed depends on
    what ran beside them, and a line's answer does not. `cached_tokens` of the batch are the sum.
    """
    prompt = sum(completion.prompt_tokens for completion in completions)
    generated = sum(completion.completion_tokens for completion in completions)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": generated,
        "total_tokens": prompt + generated,
        "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": reasoning_tokens,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


def token_logprobs(choice: Choice, tokenizer: Tokenizer) -> list[dict[str, Any]]:
    """Each token of the choice with its log-probability, bytes and likeliest alternatives."""
    return [_position(position, tokenizer) for position in choice.logprobs or ()]


def prompt_logprobs(body: Body, completion: Completion, tokenizer: Tokenizer) -> dict[str, Any]:
    """Those of the prompt's tokens as vLLM gives them, under that name, where they are asked for:
    for each token its likeliest alternatives and itself by token id, null for the first."""
    count = body.get("prompt_logprobs")
    if count is None:
        return {}
    positions = completion.prompt_logprobs or ()
    return {"prompt_logprobs": [None, *(_ranked(each, count, tokenizer) for each in positions)]}


def token_text(data: bytes) -> str:
    """A token as text; one that holds part of a character only, as the escapes of its bytes."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "".join(f"\\x{byte:02x}" for byte in data)


def wire_logprob(value: float) -> float:
    """A natural log-probability as JSON can hold it, to as many decimals as are certain."""
    if not math.isfinite(value):
        return IMPOSSIBLE_LOGPROB
    return round(value, LOGPROB_DIGITS) + 0.0  # never -0.0


def _position(position: TokenLogprob, tokenizer: Tokenizer) -> dict[str, Any]:
    top = [_token(token, logprob, tokenizer) for token, logprob in position.top]
    return _token(position.token_id, position.logprob, tokenizer) | {"top_logprobs": top}


def _ranked(position: TokenLogprob, count: int, tokenizer: Tokenizer) -> dict[str, Any]:
    ranked = enumerate(position.top[:count], start=1)
    found = {token_id: (logprob, rank) for rank, (token_id, logprob) in ranked}
    found.setdefault(position.token_id, (position.logprob, position.rank))
    return {
        str(token_id): {
            "logprob": wire_logprob(logprob),
            "rank": rank,
            "decoded_token": token_text(tokenizer.token_bytes(token_id)),
        }
        for token_id, (logprob, rank) in found.items()
    }


def _token(token_id: int, logprob: float, tokenizer: Tokenizer) -> dict[str, Any]:
    data = tokenizer.token_bytes(token_id)
    return {
        "token": token_text(data),
        "logprob": wire_logprob(logprob),
        "bytes": list(data),
    }
