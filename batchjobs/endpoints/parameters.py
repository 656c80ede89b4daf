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
    check_length,
    invalid_value,
    read_boolean,
    read_decimal,
    read_integer,
    unknown,
    unsupported,
    wrong_type,
)
from batchjobs.endpoints.support import Parameter, Support, honoured, no_effect, refused
from batchjobs.errors import InvalidRequestError
from executor.request import Request, SamplingParams

MAX_STOP_STRINGS = 16
MAX_CHOICES = 128
MAX_TOP_LOGPROBS = 20
_UINT64 = (1 << 64) - 1

NEEDS_GRAMMAR = "needs constrained decoding, which this server does not have"

SAMPLING: dict[str, Parameter] = {
    "temperature": honoured("0 to 2; 0 takes the likeliest token"),
    "top_p": honoured("0 to 1"),
    "seed": honoured("a line without one has its own, derived from its place in the file"),
    "stop": honoured(f"a string, or up to {MAX_STOP_STRINGS} of them"),
    "top_k": honoured("0 and -1 keep every token"),
    "min_p": honoured("0 to 1"),
    "min_tokens": honoured("no stop before so many tokens"),
    "ignore_eos": honoured("end-of-sequence tokens are tokens like others"),
}
"""How every generating endpoint is told to choose tokens."""

CHOICES: dict[str, Parameter] = {
    "n": honoured(f"1 to {MAX_CHOICES}"),
    "max_tokens": honoured(),
    "logprobs": honoured(),
    "prompt_logprobs": honoured(f"0 to {MAX_TOP_LOGPROBS}, in vLLM's shape"),
}
"""What chats and completions share beside; `/v1/responses` has other words for it."""

COMMON: dict[str, Parameter] = {
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
    "frequency_penalty": refused(0),
    "presence_penalty": refused(0),
    "repetition_penalty": refused(1),
    "length_penalty": refused(1),
    "logit_bias": refused({}),
    "allowed_token_ids": refused(),
    "bad_words": refused([]),
    "stop_token_ids": refused([]),
    "include_stop_str_in_output": refused(False),
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
    "guided_json": refused(note=NEEDS_GRAMMAR),
    "guided_regex": refused(note=NEEDS_GRAMMAR),
    "guided_choice": refused(note=NEEDS_GRAMMAR),
    "guided_grammar": refused(note=NEEDS_GRAMMAR),
    "guided_decoding_backend": refused(note=NEEDS_GRAMMAR),
    "guided_whitespace_pattern": refused(note=NEEDS_GRAMMAR),
    "structured_outputs": refused(note=NEEDS_GRAMMAR),
    "structural_tag": refused(note=NEEDS_GRAMMAR),
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
        default_seed=line.seed,
    )
    return Request(id="0", prompt_token_ids=tuple(prompt), sampling=sampling)


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
        prompt_logprobs=read_integer(body, "prompt_logprobs", 0, MAX_TOP_LOGPROBS),
    )


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
