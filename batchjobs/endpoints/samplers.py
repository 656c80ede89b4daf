"""How every generating endpoint is told to choose tokens."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TypedDict

from batchjobs.endpoints.base import Body, LineContext, ModelContext
from batchjobs.endpoints.fields import (
    check_decimal,
    check_length,
    empty_array,
    invalid_value,
    not_among,
    read_boolean,
    read_decimal,
    read_integer,
    wrong_type,
)
from batchjobs.endpoints.support import Parameter, honoured
from batchjobs.endpoints.token_ids import check_token_ids
from batchjobs.errors import InvalidRequestError
from executor.request import Grammar, SamplingParams

MAX_STOP_STRINGS = 16
MAX_CHOICES = 128
MAX_TOP_LOGPROBS = 20
_UINT64 = (1 << 64) - 1

SAMPLING: dict[str, Parameter] = {
    "temperature": honoured("0 to 2, 0 taking the likeliest token; without it the model's, or 1"),
    "top_p": honoured("0 to 1; without it the model's, or 1"),
    "seed": honoured("a line without one has its own, derived from its place in the file"),
    "stop": honoured(f"a string, or up to {MAX_STOP_STRINGS} of them"),
    "top_k": honoured("0 and -1 keep every token; without it the model's, or 0"),
    "min_p": honoured("0 to 1; without it the model's, or 0"),
    "presence_penalty": honoured("-2 to 2"),
    "frequency_penalty": honoured("-2 to 2"),
    "repetition_penalty": honoured(
        "0.01 to 100, for the prompt's tokens and the answer's; without it the model's, or 1"
    ),
    "logit_bias": honoured("-100 to 100 for each token id"),
    "allowed_token_ids": honoured("no other token is taken"),
    "min_tokens": honoured("no stop before so many tokens"),
    "ignore_eos": honoured("end-of-sequence tokens are tokens like others"),
    "stop_token_ids": honoured("token ids that end an answer, and are left out of it"),
    "include_stop_str_in_output": honoured("leaves what ended an answer in it"),
}

_MODEL_DEFAULTS = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")


def check_model_sampling(values: Mapping[str, object]) -> None:
    """Raise InvalidRequestError for the first value that a model cannot have as a default."""
    for name in values:
        if name not in _MODEL_DEFAULTS:
            raise not_among("name", name, _MODEL_DEFAULTS)
    _read_filters(dict(values))


def read_sampling(
    body: Body,
    *,
    logprobs: int | None,
    max_tokens: int,
    line: LineContext,
    model: ModelContext,
    grammar: Grammar | None = None,
) -> SamplingParams:
    """The sampling parameters of a body whose answer may have `max_tokens` tokens.

    Raises:
        InvalidRequestError: a value has a wrong type or is out of range.
    """
    body = {**model.sampling, **body}
    seed = read_integer(body, "seed", -(1 << 63), (1 << 63) - 1)
    return SamplingParams(
        **_read_filters(body),
        presence_penalty=read_decimal(body, "presence_penalty", -2, 2) or 0.0,
        frequency_penalty=read_decimal(body, "frequency_penalty", -2, 2) or 0.0,
        logit_bias=_read_logit_bias(body, model.tokenizer.vocab_size),
        allowed_token_ids=_read_token_ids(body, "allowed_token_ids", model.tokenizer.vocab_size),
        seed=(line.seed if seed is None else seed) & _UINT64,
        max_tokens=max_tokens,
        min_tokens=_read_min_tokens(body, max_tokens),
        stop=_read_stop(body),
        stop_token_ids=_read_token_ids(body, "stop_token_ids", model.tokenizer.vocab_size) or (),
        include_stop_str_in_output=read_boolean(body, "include_stop_str_in_output"),
        ignore_eos=read_boolean(body, "ignore_eos"),
        n=read_integer(body, "n", 1, MAX_CHOICES) or 1,
        logprobs=logprobs,
        prompt_logprobs=read_integer(body, "prompt_logprobs", 0, MAX_TOP_LOGPROBS),
        grammar=grammar,
    )


class _Filters(TypedDict):
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    repetition_penalty: float


def _read_filters(body: Body) -> _Filters:
    """What a model may have defaults of its own for."""
    temperature = read_decimal(body, "temperature", 0, 2)
    return _Filters(
        temperature=1.0 if temperature is None else temperature,
        top_p=_read_top_p(body),
        top_k=max(read_integer(body, "top_k", -1, sys.maxsize) or 0, 0),
        min_p=read_decimal(body, "min_p", 0, 1) or 0.0,
        repetition_penalty=read_decimal(body, "repetition_penalty", 0.01, 100) or 1.0,
    )


def _read_logit_bias(body: Body, vocab_size: int) -> tuple[tuple[int, float], ...]:
    """Pairs in order of the token ids; what adds nothing is left out."""
    value = body.get("logit_bias")
    if value is None:
        return ()
    if not isinstance(value, dict):
        raise wrong_type("logit_bias", "an object", value)
    pairs = [
        (_read_token_key(key, vocab_size), check_decimal(f"logit_bias.{key}", bias, -100, 100))
        for key, bias in value.items()
    ]
    return tuple(sorted((token, bias) for token, bias in dict(pairs).items() if bias))


def _read_token_key(key: str, vocab_size: int) -> int:
    if not (key.isascii() and key.isdigit()):
        why = "You should only be submitting non-negative integers."
    elif len(key) < len(str(_UINT64)) and int(key) < vocab_size:
        return int(key)
    else:
        why = f"Maximum value is {vocab_size - 1}."
    message = f"Invalid key in 'logit_bias': {key}. {why}"
    raise InvalidRequestError(message, param="logit_bias", code="invalid_value")


def _read_token_ids(body: Body, name: str, vocab_size: int) -> tuple[int, ...] | None:
    """In ascending order, each once; None where nothing is said."""
    value = body.get(name)
    if value is None:
        return None
    if not isinstance(value, list):
        raise wrong_type(name, "an array of token ids", value)
    check_token_ids(name, value, vocab_size)
    if not value and name == "allowed_token_ids":
        raise empty_array(name)
    return tuple(sorted(set(value)))


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
