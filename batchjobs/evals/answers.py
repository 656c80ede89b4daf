"""What a line of a job answered, as scorers see it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from batchjobs.evals.outcomes import Missing

LENGTH = "length"
"""The finish reason of an answer that ran into its token limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """`text` is without reasoning. `error` says why the line has no answer, and is None where it
    has; `choices` are the wire's, of an answer whose prompts were echoed."""

    text: str = ""
    finish_reason: str | None = None
    tool_calls: Sequence[Mapping[str, Any]] = ()
    choices: Sequence[Mapping[str, Any]] = ()
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
        if self.text.strip() or self.tool_calls or self.choices:
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
        choices=tuple(choices) if is_echo else (),
        prompt_tokens=int(usage.get("prompt_tokens") or 0),
        completion_tokens=int(usage.get("completion_tokens") or 0),
    )
