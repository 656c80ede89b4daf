"""The `input` of an embedding request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from batchjobs.endpoints.base import Body, EmbeddingFacts, ModelContext, Prompt
from batchjobs.endpoints.fields import (
    check_length,
    empty_array,
    empty_string,
    invalid_value,
    not_among,
    read_boolean,
    read_integer,
    read_string,
    unsupported,
    wrong_type,
)
from batchjobs.endpoints.token_ids import check_token_ids, is_integer
from batchjobs.errors import InvalidRequestError
from executor.prompts import PromptText, Side

MAX_INPUTS = 2048

_SIDES = ("left", "right")


def count_inputs(body: Body) -> int:
    """How many vectors the body asks for, as far as that can be seen."""
    value = body.get("input")
    if not isinstance(value, list) or not value or is_integer(value[0]):
        return 1
    return len(value)


def read_inputs(body: Body, model: ModelContext) -> dict[str, Prompt]:
    """Each by its name in the body, which has a string, token ids, or an array of either.

    Raises:
        InvalidRequestError: an input is malformed or empty.
    """
    value = body.get("input")
    read = _reader(body, model)
    if isinstance(value, str):
        return {"input": read("input", value)}
    if not isinstance(value, list):
        raise wrong_type("input", "a string or an array", value)
    if not value:
        raise empty_array("input")
    if is_integer(value[0]):
        return {"input": read("input", value)}
    check_length("input", value, MAX_INPUTS)
    named = {f"input[{index}]": one for index, one in enumerate(value)}
    return {name: read(name, one) for name, one in named.items()}


def check_input(name: str, token_ids: list[int], longest: int) -> None:
    """Raise InvalidRequestError if the input has no token, or more than `longest`."""
    if not token_ids:
        raise invalid_value(name, "there is no token in it.")
    if len(token_ids) > longest:
        raise _too_long(name, len(token_ids), longest)


def _reader(body: Body, model: ModelContext) -> Callable[[str, object], Prompt]:
    facts = model.embedding
    if facts is None:
        raise RuntimeError("the model gives no embeddings")
    return _InputReader(
        vocab_size=model.tokenizer.vocab_size,
        prompt=_read_prompt(body, facts),
        special_tokens=(
            body.get("add_special_tokens") is None or read_boolean(body, "add_special_tokens")
        ),
        longest=_read_longest(body, model),
        side=_read_side(body),
    ).read


@dataclass(frozen=True, slots=True, kw_only=True)
class _InputReader:
    """How the body wants its inputs; `longest` None cuts nothing, `prompt` precedes texts."""

    vocab_size: int
    prompt: str
    special_tokens: bool
    longest: int | None
    side: Side | None

    def read(self, name: str, value: object) -> Prompt:
        if isinstance(value, str):
            if not value:
                raise empty_string(name)
            return PromptText(
                text=self.prompt + value,
                special_tokens=self.special_tokens,
                longest=self.longest,
                side=self.side,
            )
        if not isinstance(value, list):
            raise wrong_type(name, "a string or an array of token ids", value)
        if not value:
            raise empty_array(name)
        if self.prompt:
            raise invalid_value("prompt_name", "it goes before texts, and token ids are none.")
        return self._cut(check_token_ids(name, value, self.vocab_size))

    def _cut(self, token_ids: list[int]) -> list[int]:
        if self.longest is None or len(token_ids) <= self.longest:
            return token_ids
        return token_ids[-self.longest :] if self.side == "left" else token_ids[: self.longest]


def _read_longest(body: Body, model: ModelContext) -> int | None:
    asked = read_integer(body, "truncate_prompt_tokens", -1, model.max_model_len)
    if asked == 0:
        raise invalid_value("truncate_prompt_tokens", "no token would be left of the input.")
    return model.max_model_len if asked == -1 else asked


def _read_side(body: Body) -> Side | None:
    side = read_string(body, "truncation_side")
    if side is not None and side not in _SIDES:
        raise not_among("truncation_side", side, _SIDES)
    return cast("Side | None", side)


def _read_prompt(body: Body, facts: EmbeddingFacts) -> str:
    name = read_string(body, "prompt_name")
    if name is None:
        return ""
    if name not in facts.prompts:
        if not facts.prompts:
            raise invalid_value("prompt_name", "the model has no prompts.")
        raise not_among("prompt_name", name, tuple(facts.prompts))
    if not facts.pools_prompt:
        raise unsupported("prompt_name", name)  # its tokens would have to be left out again
    return facts.prompts[name]


def _too_long(name: str, tokens: int, longest: int) -> InvalidRequestError:
    message = (
        f"This model's maximum context length is {longest} tokens. However, your {name} resulted"
        f" in {tokens} tokens. Please reduce the length of the {name}, or set"
        " 'truncate_prompt_tokens'."
    )
    return InvalidRequestError(message, param=name, code="context_length_exceeded")
