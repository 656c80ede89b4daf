"""What a line of a job answered, as scorers see it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from batchjobs.errors import IntegrityError
from batchjobs.evals.outcomes import Missing

LENGTH = "length"
"""The finish reason of an answer that ran into its token limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """`text` is without reasoning. `error` says why the line has no answer, and is None where it
    has; `likelihoods` are the choices' log-probabilities, of a request that asked for them."""

    text: str = ""
    finish_reason: str | None = None
    tool_calls: Sequence[Mapping[str, Any]] = ()
    likelihoods: Sequence[float] = ()
    prompt_tokens: int = 0
    completion_tokens: int = 0
    error: str | None = None

    @property
    def is_truncated(self) -> bool:
        return self.finish_reason == LENGTH

    @property
    def missing(self) -> Missing | None:
        """Why there is nothing to score, if so: an unfinished thought is a truncated answer."""
        if self.error is not None:
            return Missing.REQUEST_FAILED
        if self.text.strip() or self.tool_calls or self.likelihoods:
            return None
        return Missing.TRUNCATED if self.is_truncated else Missing.EMPTY


def read_answer(record: Mapping[str, Any]) -> Answer:
    """Of a line of an output or error file."""
    if record.get("error") is not None:
        return Answer(error=f"{record['error']['code']}: {record['error']['message']}")
    response = record["response"]
    body = response["body"]
    if response["status_code"] != 200:
        return Answer(error=str(body["error"]["message"]))
    choices = body["choices"]
    usage = body.get("usage") or {}
    message = choices[0].get("message") or {}
    is_echo = "message" not in choices[0] and choices[0].get("logprobs") is not None
    return Answer(
        text=message.get("content") or choices[0].get("text") or "",
        finish_reason=choices[0].get("finish_reason"),
        tool_calls=tuple(message.get("tool_calls") or ()),
        likelihoods=tuple(logprob_sums(choices)) if is_echo else (),
        prompt_tokens=int(usage.get("prompt_tokens") or 0),
        completion_tokens=int(usage.get("completion_tokens") or 0),
    )


def kept_answer(record: Mapping[str, Any]) -> Answer:
    """Of a run's own record of an answer (`words_of` wrote it)."""
    return Answer(
        text=record["text"],
        finish_reason=record["finish_reason"],
        tool_calls=tuple(record["tool_calls"]),
        likelihoods=tuple(record["likelihoods"]),
        prompt_tokens=record["prompt_tokens"],
        completion_tokens=record["completion_tokens"],
        error=record["error"],
    )


def words_of(answer: Answer) -> dict[str, Any]:
    """What is kept of an answer, enough to score it again."""
    return {
        "text": answer.text,
        "tool_calls": list(answer.tool_calls),
        "likelihoods": list(answer.likelihoods),
        "error": answer.error,
        "finish_reason": answer.finish_reason,
        "prompt_tokens": answer.prompt_tokens,
        "completion_tokens": answer.completion_tokens,
    }


def logprob_sums(choices: Sequence[Mapping[str, Any]]) -> list[float]:
    """Of each continuation: the echoed prompts are the context alone, then the context with each
    continuation; what follows as many tokens as the context has is the continuation, which is how
    lm-evaluation-harness cuts them."""
    context, *continued = [choice["logprobs"] for choice in choices]
    length = len(context["tokens"])
    return [_total(logprobs["token_logprobs"][length:]) for logprobs in continued]


def _total(logprobs: Sequence[float | None]) -> float:
    if not logprobs or None in logprobs:
        raise IntegrityError("A continuation has tokens without a log-probability.")
    return float(sum(value for value in logprobs if value is not None))
