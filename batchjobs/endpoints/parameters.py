"""The parameters that every generating endpoint shares.

A parameter is honoured, or accepted because its value changes nothing, or refused by name: what
a request asks for is never silently left out.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from batchjobs.endpoints.base import Body, LineProblem
from batchjobs.endpoints.fields import (
    as_problem,
    check_length,
    invalid_value,
    read_boolean,
    read_decimal,
    read_integer,
    unknown,
    unsupported,
    wrong_type,
)
from batchjobs.errors import InvalidRequestError
from executor.request import SamplingParams

MAX_STOP_STRINGS = 16
MAX_CHOICES = 128
MAX_TOP_LOGPROBS = 20
_UINT64 = (1 << 64) - 1

SAMPLING = frozenset(
    {"temperature", "top_p", "top_k", "min_p", "seed", "n", "max_tokens", "min_tokens"}
    | {"stop", "ignore_eos", "logprobs"}
)

NO_EFFECT = frozenset(
    {"model", "user", "metadata", "store", "service_tier", "safety_identifier"}
    | {"prompt_cache_key", "prompt_cache_retention"}
)
"""Accepted with any value: they say nothing about the answer."""

OFF: dict[str, tuple[object, ...]] = {
    "stream": (False,),
    "stream_options": (),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "repetition_penalty": (1,),
    "logit_bias": ({},),
    "stop_token_ids": ([],),
    "include_stop_str_in_output": (False,),
    "skip_special_tokens": (True,),
    "use_beam_search": (False,),
}
"""Known parameters that only these values leave off; any other is refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLimits:
    """What the context allows: its length and what the prompt takes of it, in tokens.

    `default` is the answer's limit when the body names none, None for all that is left.
    """

    max_model_len: int
    prompt_tokens: int
    default: int | None
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


def refuse_the_rest(
    body: Body, *, honoured: Collection[str], off: Mapping[str, tuple[object, ...]]
) -> None:
    """Raise for the first parameter that is unknown, or asks for what this server cannot do."""
    for name, value in body.items():
        if value is None or name in honoured or name in NO_EFFECT:
            continue
        if name not in off:
            raise unknown(name)
        if value not in off[name]:
            raise unsupported(name)


def read_sampling(
    body: Body, *, logprobs: int | None, max_tokens: int, default_seed: int
) -> SamplingParams:
    """The sampling parameters of a body whose answer may have `max_tokens` tokens.

    Raises:
        InvalidRequestError: a value has a wrong type or is out of range.
    """
    temperature = read_decimal(body, "temperature", 0, 2)
    seed = read_integer(body, "seed", -(1 << 63), (1 << 63) - 1)
    return SamplingParams(
        temperature=1.0 if temperature is None else temperature,
        top_p=_read_top_p(body),
        top_k=max(read_integer(body, "top_k", -1, sys.maxsize) or 0, 0),
        min_p=read_decimal(body, "min_p", 0, 1) or 0.0,
        seed=(default_seed if seed is None else seed) & _UINT64,
        max_tokens=max_tokens,
        min_tokens=_read_min_tokens(body, max_tokens),
        stop=_read_stop(body),
        ignore_eos=read_boolean(body, "ignore_eos"),
        n=read_integer(body, "n", 1, MAX_CHOICES) or 1,
        logprobs=logprobs,
    )


def read_max_tokens(body: Body, name: str, limits: TokenLimits) -> int:
    """How many tokens the answer may have; `name` is the body's word for it.

    Raises:
        InvalidRequestError: the prompt and the answer asked for do not fit the context.
    """
    asked = read_integer(body, name, 1, sys.maxsize)
    wanted = limits.default if asked is None else asked
    room = limits.max_model_len - limits.prompt_tokens
    if room < 1 or (wanted is not None and wanted > room):
        raise _context_exceeded(limits, wanted)
    return room if wanted is None else wanted


def _read_stop(body: Body) -> tuple[str, ...]:
    """`stop`: a string or up to 16 of them (the public API takes four)."""
    value = body.get("stop")
    if value is None:
        return ()
    strings = [value] if isinstance(value, str) else value
    if not isinstance(strings, list):
        raise wrong_type("stop", "a string or an array of strings", value)
    check_length("stop", strings, MAX_STOP_STRINGS)
    for index, string in enumerate(strings):
        name = "stop" if strings is not value else f"stop[{index}]"
        if not isinstance(string, str):
            raise wrong_type(name, "a string", string)
        if not string:
            raise invalid_value(name, "a stop string must have at least one character.")
    return tuple(strings)


def _read_top_p(body: Body) -> float:
    value = read_decimal(body, "top_p", 0, 1)
    if value is None:
        return 1.0
    # The public API takes 0, which keeps the likeliest token alone; so does this share, which
    # no vocabulary is large enough to undercut.
    return max(value, 1e-6)


def _read_min_tokens(body: Body, max_tokens: int) -> int:
    value = read_integer(body, "min_tokens", 0, sys.maxsize) or 0
    if value > max_tokens:
        why = f"{value} is more than the {max_tokens} tokens that the answer may have."
        raise invalid_value("min_tokens", why)
    return value


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
