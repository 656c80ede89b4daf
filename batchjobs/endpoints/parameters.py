"""The parameters that every generating endpoint shares.

A parameter is honoured, or accepted because its value changes nothing, or refused by name: what
a request asks for is never silently left out.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from batchjobs.endpoints.base import Body, LineContext, LineProblem, ModelContext
from batchjobs.endpoints.fields import (
    as_problem,
    read_integer,
    unknown,
    unsupported,
    wrong_type,
)
from batchjobs.endpoints.samplers import MAX_CHOICES, MAX_TOP_LOGPROBS, read_sampling
from batchjobs.endpoints.shapes import SHAPES
from batchjobs.endpoints.support import Parameter, Support, honoured, no_effect, refused
from batchjobs.errors import InvalidRequestError
from executor.request import Grammar, Request

CHOICES: dict[str, Parameter] = {
    "n": honoured(f"1 to {MAX_CHOICES}"),
    "max_tokens": honoured(),
    "logprobs": honoured(),
    "prompt_logprobs": honoured(f"0 to {MAX_TOP_LOGPROBS}, in vLLM's shape"),
}
"""What chats and completions share beside; `/v1/responses` has other words for it."""

COMMON: dict[str, Parameter] = {
    **SHAPES,
    "model": honoured("a name or an alias of the catalogue"),
    "user": no_effect(),
    "metadata": no_effect(),
    "store": no_effect("answers are in the batch's result files"),
    "service_tier": no_effect("there is one tier, and answers say `default`"),
    "safety_identifier": no_effect(),
    "prompt_cache_key": no_effect("prompts that begin alike share their beginning anyway"),
    "prompt_cache_retention": no_effect(),
    "stream": refused(False, note="a batch that asks for it fails validation"),
    "stream_options": refused(),
    "moderation": refused(),
    "length_penalty": refused(1),
    "bad_words": refused([]),
    "skip_special_tokens": refused(True),
    "spaces_between_special_tokens": refused(True),
    "truncate_prompt_tokens": refused(),
    "truncation_side": refused(),
    "prompt_logprobs": refused(),
    "logprob_token_ids": refused(),
    "repetition_detection": refused(),
    "watermarking": refused(False),
    "return_token_ids": refused(False),
    "return_tokens_as_token_ids": refused(False),
    "return_prompt_text": refused(False),
    "return_token_offsets": refused(False),
    "use_beam_search": refused(False),
    "logits_processors": refused(),
    "priority": refused(0, note="a batch has a completion window instead"),
    "cache_salt": refused(),
    "kv_transfer_params": refused(),
    "ec_transfer_params": refused(),
    "request_id": no_effect("a line has its `custom_id`"),
    "session_id": no_effect(),
    "vllm_xargs": refused({}),
}
"""What every generating endpoint does with these, whether or not the public API has them."""

CACHE_OPTIONS: dict[str, Parameter] = {
    "prompt_cache_options": honoured("only `prewarm` asks for anything, and is refused"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLimits:
    """What the context allows: its length and what the prompt takes of it, in tokens.

    `default` is the answer's limit when the body names none, None for all that is left; `least`
    is the least it may name.
    """

    max_model_len: int
    prompt_tokens: int
    default: int | None
    least: int = 1
    param: str
    """The body's word for the prompt, for the error."""


def check_body(body: Body, endpoint_name: str, *, prompt: str) -> LineProblem | None:
    """What intake asks of every generating endpoint's body; `prompt` is its word for that."""
    model = body.get("model")
    if model is None:
        return LineProblem(
            code="invalid_request", message="Model parameter is required.", param="body.model"
        )
    if not isinstance(model, str):
        return as_problem(wrong_type("body.model", "a string", model))
    if body.get("stream"):
        message = f"{endpoint_name}: Streaming is not supported in the Batch API."
        return LineProblem(code="streaming_unsupported", message=message, param="body.stream")
    if body.get(prompt) is None:
        return LineProblem(
            code="invalid_request",
            message=f"{prompt.capitalize()} parameter is required.",
            param=f"body.{prompt}",
        )
    return None


def read_honoured(body: Body, parameters: Mapping[str, Parameter], *, ignore_unknown: bool) -> Body:
    """The body's honoured parameters that are not null, and nothing else.

    Raises:
        InvalidRequestError: one is unknown, or asks for what this server cannot do.
    """
    kept = {}
    for name, value in body.items():
        if value is None:
            continue
        parameter = parameters.get(name)
        if parameter is None:
            if not ignore_unknown:
                raise unknown(name)
        elif parameter.support is Support.HONOURED:
            kept[name] = value
        elif parameter.support is Support.REFUSED and not _is_among(value, parameter.off):
            raise unsupported(name)
    return kept


def refuse_prewarm(body: Body) -> None:
    """Of all that may be said of the prompt cache, the one thing that asks for no answer."""
    options = body.get("prompt_cache_options")
    if options is not None and not isinstance(options, dict):
        raise wrong_type("prompt_cache_options", "an object", options)
    if options and options.get("prewarm"):
        raise unsupported("prompt_cache_options.prewarm")


def read_request(
    body: Body,
    prompt: Sequence[int],
    *,
    logprobs: int | None,
    grammar: Grammar | None,
    max_tokens_name: str,
    param: str,
    line: LineContext,
    model: ModelContext,
) -> Request:
    """The one engine request of a body whose answer may take all that the prompt leaves.

    `max_tokens_name` and `param` are the body's words for the answer's limit and the prompt.
    Raises as `read_sampling` and `read_max_tokens`.
    """
    limits = TokenLimits(
        max_model_len=model.max_model_len,
        prompt_tokens=len(prompt),
        default=None,
        param=param,
    )
    sampling = read_sampling(
        body,
        logprobs=logprobs,
        max_tokens=read_max_tokens(body, max_tokens_name, limits),
        line=line,
        model=model,
        grammar=grammar,
    )
    return Request(id="0", prompt_token_ids=tuple(prompt), sampling=sampling)


def read_max_tokens(body: Body, name: str, limits: TokenLimits) -> int:
    """How many tokens the answer may have; `name` is the body's word for it.

    Raises:
        InvalidRequestError: the prompt and the answer asked for do not fit the context.
    """
    asked = read_integer(body, name, limits.least, sys.maxsize)
    wanted = limits.default if asked is None else asked
    room = limits.max_model_len - limits.prompt_tokens
    if room < (1 if wanted is None else wanted):
        raise _context_exceeded(limits, wanted)
    return room if wanted is None else wanted


def _is_among(value: object, values: tuple[object, ...]) -> bool:
    """Equal and of one kind: `true` is not 1."""
    return any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in values)


def _context_exceeded(limits: TokenLimits, wanted: int | None) -> InvalidRequestError:
    length, prompt, where = limits.max_model_len, limits.prompt_tokens, limits.param
    message = f"This model's maximum context length is {length} tokens. However, "
    if wanted is None:
        message += (
            f"your {where} resulted in {prompt} tokens. Please reduce the length of the {where}."
        )
    else:
        message += (
            f"you requested {prompt + wanted} tokens ({prompt} in the {where}, {wanted} in the"
            f" completion). Please reduce the length of the {where} or completion."
        )
    return InvalidRequestError(message, param=where, code="context_length_exceeded")
