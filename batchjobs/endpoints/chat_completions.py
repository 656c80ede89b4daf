"""`/v1/chat/completions`: messages in, one assistant message per choice out."""

from __future__ import annotations

from typing import Any

from batchjobs.endpoints.answers import check_answered, token_text, usage, wire_logprob
from batchjobs.endpoints.base import Body, LineContext, LineProblem, ModelContext, Tokenizer
from batchjobs.endpoints.fields import invalid_value, read_boolean, read_integer
from batchjobs.endpoints.messages import read_messages
from batchjobs.endpoints.openings import opening_of
from batchjobs.endpoints.parameters import (
    MAX_TOP_LOGPROBS,
    OFF,
    SAMPLING,
    TokenLimits,
    check_body,
    read_max_tokens,
    read_sampling,
    refuse_the_rest,
)
from batchjobs.errors import InvalidRequestError
from executor.request import Choice, Completion, Request, TokenLogprob

_HONOURED = SAMPLING | {"messages", "max_completion_tokens", "top_logprobs"}
_OFF: dict[str, tuple[object, ...]] = OFF | {
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "parallel_tool_calls": (True, False),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "reasoning_effort": ("none",),
    "verbosity": ("medium",),
    "web_search_options": (),
}


class ChatCompletions:
    url = "/v1/chat/completions"

    def check(self, body: Body) -> LineProblem | None:
        return check_body(body, "Chat Completions", prompt="messages")

    def opening(self, body: Body) -> str:
        return opening_of(body.get("messages"))

    def prepare(self, body: Body, line: LineContext, model: ModelContext) -> list[Request]:
        refuse_the_rest(body, honoured=_HONOURED, off=_OFF)
        messages = read_messages(body)
        try:
            prompt = model.tokenizer.render_chat(messages)
        except ValueError as refusal:
            raise invalid_value("messages", str(refusal)) from refusal
        limits = TokenLimits(
            max_model_len=model.max_model_len,
            prompt_tokens=len(prompt),
            default=None,
            param="messages",
        )
        sampling = read_sampling(
            body,
            logprobs=_read_logprobs(body),
            max_tokens=read_max_tokens(body, _max_tokens_name(body), limits),
            default_seed=line.seed,
        )
        return [Request(id="0", prompt_token_ids=tuple(prompt), sampling=sampling)]

    def respond(
        self, body: Body, line: LineContext, model: ModelContext, completions: list[Completion]
    ) -> Body:
        check_answered(completions)
        (completion,) = completions
        return {
            "id": f"chatcmpl-{line.id}",
            "object": "chat.completion",
            "created": line.created,
            "model": model.name,
            "choices": [_choice(choice, model.tokenizer) for choice in completion.choices],
            "usage": usage(completions),
            "service_tier": "default",
            "system_fingerprint": model.fingerprint,
        }


def _max_tokens_name(body: Body) -> str:
    """Which of its two names the body uses for the answer's limit."""
    if body.get("max_completion_tokens") is None:
        return "max_tokens"
    if body.get("max_tokens") is None:
        return "max_completion_tokens"
    raise InvalidRequestError(
        "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.",
        param="max_tokens",
        code="invalid_parameter_combination",
    )


def _read_logprobs(body: Body) -> int | None:
    """How many alternatives to return per token, None for no log-probabilities at all."""
    wanted = read_boolean(body, "logprobs")
    alternatives = read_integer(body, "top_logprobs", 0, MAX_TOP_LOGPROBS)
    if wanted:
        return alternatives or 0
    if alternatives:
        raise invalid_value("top_logprobs", "it needs 'logprobs' to be true.")
    return None


def _choice(choice: Choice, tokenizer: Tokenizer) -> dict[str, Any]:
    logprobs = None
    if choice.logprobs is not None:
        content = [_position(position, tokenizer) for position in choice.logprobs]
        logprobs = {"content": content, "refusal": None}
    return {
        "index": choice.index,
        "message": {"role": "assistant", "content": choice.text, "refusal": None},
        "logprobs": logprobs,
        "finish_reason": str(choice.finish_reason),
    }


def _position(position: TokenLogprob, tokenizer: Tokenizer) -> dict[str, Any]:
    top = [_token(token, logprob, tokenizer) for token, logprob in position.top]
    return _token(position.token_id, position.logprob, tokenizer) | {"top_logprobs": top}


def _token(token_id: int, logprob: float, tokenizer: Tokenizer) -> dict[str, Any]:
    data = tokenizer.token_bytes(token_id)
    return {
        "token": token_text(data),
        "logprob": wire_logprob(logprob),
        "bytes": list(data),
    }
