"""`/v1/completions`: one or more plain prompts in, n continuations of each out."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from batchjobs.endpoints.answers import check_answered, prompt_logprobs, usage
from batchjobs.endpoints.base import (
    Body,
    Draft,
    LineContext,
    LineProblem,
    ModelContext,
    Prompt,
    Task,
    Tokenizer,
)
from batchjobs.endpoints.fields import (
    check_length,
    empty_array,
    invalid_value,
    read_boolean,
    read_integer,
    wrong_type,
)
from batchjobs.endpoints.openings import opening_of
from batchjobs.endpoints.parameters import (
    CHOICES,
    COMMON,
    TokenLimits,
    check_body,
    read_honoured,
    read_max_tokens,
)
from batchjobs.endpoints.samplers import MAX_CHOICES, MAX_TOP_LOGPROBS, SAMPLING, read_sampling
from batchjobs.endpoints.shapes import RESPONSE_FORMAT, read_shape
from batchjobs.endpoints.support import Parameter, honoured, refused
from batchjobs.endpoints.text_logprobs import Echo, text_logprobs
from batchjobs.endpoints.token_ids import check_token_ids, is_integer
from batchjobs.errors import InvalidRequestError
from executor.prompts import PromptText
from executor.request import Choice, Completion, Request, SamplingParams

MAX_PROMPTS = 2048
DEFAULT_MAX_TOKENS = 16


class Completions:
    url = "/v1/completions"
    task = Task.GENERATE
    parameters: Mapping[str, Parameter] = {
        **COMMON,
        **SAMPLING,
        **CHOICES,
        "prompt": honoured("a string, token ids, or an array of either"),
        "max_tokens": honoured(f"{DEFAULT_MAX_TOKENS} by default; 0 generates nothing"),
        "logprobs": honoured(f"0 to {MAX_TOP_LOGPROBS}"),
        "best_of": honoured("`n` of so many, by the mean log-probability of their tokens"),
        "echo": honoured("with `logprobs` the prompt's tokens have theirs as well"),
        "suffix": refused("", note="the engine only writes on"),
        "response_format": RESPONSE_FORMAT,
        "add_special_tokens": refused(True),
    }

    def check(self, body: Body) -> LineProblem | None:
        return check_body(body, "Completions", prompt="prompt")

    def opening(self, body: Body) -> str:
        return opening_of(body.get("prompt"))

    def draft(self, body: Body, line: LineContext, model: ModelContext) -> Draft:
        asked = read_honoured(body, self.parameters, ignore_unknown=model.ignore_unknown)
        prompts = _read_prompts(asked, model.tokenizer.vocab_size)

        def finish(encoded: Sequence[list[int]]) -> list[Request]:
            for name, token_ids in zip(prompts, encoded, strict=True):
                if not token_ids:
                    raise invalid_value(name, "an empty text has no token to go on from.")
            return [_request(asked, index, ids, line, model) for index, ids in enumerate(encoded)]

        return Draft(prompts=list(prompts.values()), finish=finish)

    def respond(
        self, body: Body, line: LineContext, model: ModelContext, completions: list[Completion]
    ) -> Body:
        check_answered(completions, partial(_grammar_fault, body))
        choices: list[dict[str, Any]] = []
        for completion, echo in zip(completions, _echoes(body, model.tokenizer), strict=False):
            for choice in _best(body, completion):
                choices.append(
                    {
                        "text": echo.text + choice.text,
                        "index": len(choices),
                        "logprobs": _logprobs(body, echo, completion, choice, model.tokenizer),
                        "finish_reason": str(choice.finish_reason),
                        **prompt_logprobs(body, completion, model.tokenizer),
                    }
                )
        return {
            "id": f"cmpl-{line.id}",
            "object": "text_completion",
            "created": line.created,
            "model": model.name,
            "choices": choices,
            "usage": usage(completions),
            "system_fingerprint": model.fingerprint,
        }


def _grammar_fault(body: Body, part: str, reason: str) -> InvalidRequestError:
    shape = read_shape(body, ignore_unknown=True)
    assert shape is not None
    return shape.fault(reason)


def prompt_seed(seed: int, index: int) -> int:
    """The seed of the prompt at `index` of a line: the line's own for the first, so that a list
    of one prompt is answered as the prompt alone; others apart from it and from each other."""
    if index == 0:
        return seed
    digest = hashlib.blake2b(f"{seed}:{index}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def _request(
    body: Body, index: int, prompt: list[int], line: LineContext, model: ModelContext
) -> Request:
    limits = TokenLimits(
        max_model_len=model.max_model_len,
        prompt_tokens=len(prompt),
        default=DEFAULT_MAX_TOKENS,
        least=0,
        param="prompt",
    )
    shape = read_shape(body, ignore_unknown=model.ignore_unknown)
    logprobs = read_integer(body, "logprobs", 0, MAX_TOP_LOGPROBS)
    sampling = read_sampling(
        body,
        logprobs=logprobs,
        max_tokens=read_max_tokens(body, "max_tokens", limits),
        line=line,
        model=model,
        grammar=None if shape is None else shape.grammar,
    )
    best_of = _read_best_of(body, sampling.n)
    sampling = replace(
        sampling,
        seed=prompt_seed(sampling.seed, index),
        n=best_of,
        # The best are found by their log-probabilities, whether or not those are asked for.
        logprobs=0 if logprobs is None and best_of > sampling.n else logprobs,
        prompt_logprobs=_prompt_logprobs(logprobs, sampling, echo=read_boolean(body, "echo")),
    )
    return Request(id=str(index), prompt_token_ids=tuple(prompt), sampling=sampling)


def _prompt_logprobs(logprobs: int | None, asked: SamplingParams, *, echo: bool) -> int | None:
    """How many alternatives the prompt's tokens need, for their echo or for themselves."""
    if not echo or logprobs is None:
        return asked.prompt_logprobs
    return max(logprobs, asked.prompt_logprobs or 0)


def _read_best_of(body: Body, n: int) -> int:
    best_of = read_integer(body, "best_of", 1, MAX_CHOICES) or n
    if best_of < n:
        message = (
            "You requested that the server return more choices than it will generate (HINT: you"
            f" must set 'n' (currently {n}) to be at most 'best_of' (currently {best_of}), or"
            " omit either parameter)."
        )
        raise InvalidRequestError(message, param="best_of", code="invalid_value")
    return best_of


def _best(body: Body, completion: Completion) -> Sequence[Choice]:
    """The n likeliest of the choices, likeliest first where there are more than n."""
    n: int = body.get("n") or 1
    if body.get("best_of") in (None, n):
        return completion.choices
    return sorted(completion.choices, key=_mean_logprob, reverse=True)[:n]


def _mean_logprob(choice: Choice) -> float:
    """Of the choice's tokens; one without any is the unlikeliest."""
    positions = choice.logprobs or ()
    if not positions:
        return -math.inf
    return math.fsum(position.logprob for position in positions) / len(positions)


def _logprobs(
    body: Body, echo: Echo, completion: Completion, choice: Choice, tokenizer: Tokenizer
) -> dict[str, Any] | None:
    """None where nobody asked: choices may have them for our sake alone."""
    if choice.logprobs is None or (body.get("logprobs") is None and body.get("best_of")):
        return None
    return text_logprobs(
        echo,
        completion.prompt_logprobs or (),
        choice.logprobs,
        choice.text,
        top=MAX_TOP_LOGPROBS if body.get("logprobs") is None else body["logprobs"],
        tokenizer=tokenizer,
    )


def _echoes(body: Body, tokenizer: Tokenizer) -> Iterator[Echo]:
    """What stands before the answers to each prompt."""
    if not body.get("echo"):
        yield from itertools.repeat(Echo())
    prompt = body["prompt"]
    prompts = [prompt] if isinstance(prompt, str) or is_integer(prompt[0]) else prompt
    for one in prompts:
        text = one if isinstance(one, str) else _decode(one, tokenizer)
        token_ids = tokenizer.encode(one) if isinstance(one, str) else one
        yield Echo(text=text, token_ids=token_ids)


def _decode(token_ids: list[int], tokenizer: Tokenizer) -> str:
    return b"".join(map(tokenizer.token_bytes, token_ids)).decode(errors="replace")


def _read_prompts(body: Body, vocab_size: int) -> dict[str, Prompt]:
    """Each by its name in the body, which has a string, token ids, or an array of either."""
    prompt = body.get("prompt")
    if isinstance(prompt, str):
        return {"prompt": PromptText(text=prompt)}
    if not isinstance(prompt, list):
        raise wrong_type("prompt", "a string or an array", prompt)
    if not prompt:
        raise empty_array("prompt")
    if is_integer(prompt[0]):
        return {"prompt": check_token_ids("prompt", prompt, vocab_size)}
    check_length("prompt", prompt, MAX_PROMPTS)
    named = {f"prompt[{index}]": one for index, one in enumerate(prompt)}
    return {name: _read_prompt(name, one, vocab_size) for name, one in named.items()}


def _read_prompt(name: str, prompt: object, vocab_size: int) -> Prompt:
    if isinstance(prompt, str):
        return PromptText(text=prompt)
    if not isinstance(prompt, list):
        raise wrong_type(name, "a string or an array of token ids", prompt)
    if not prompt:
        raise empty_array(name)
    return check_token_ids(name, prompt, vocab_size)
