"""`/v1/embeddings`: texts or token ids in, one vector each out."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson

from batchjobs.endpoints.answers import check_answered
from batchjobs.endpoints.base import Body, Draft, LineContext, LineProblem, ModelContext, Task
from batchjobs.endpoints.embedding_input import MAX_INPUTS, check_input, read_inputs
from batchjobs.endpoints.fields import (
    not_among,
    read_boolean,
    read_integer,
    read_string,
)
from batchjobs.endpoints.parameters import check_body, read_honoured
from batchjobs.endpoints.support import Parameter, honoured, no_effect, refused
from batchjobs.errors import InvalidRequestError
from executor.request import Completion, PoolingParams, Request

FLOAT, BASE64 = "float", "base64"

_LARGEST = 1 << 31


class Embeddings:
    url = "/v1/embeddings"
    task = Task.EMBED
    parameters: Mapping[str, Parameter] = {
        "model": honoured("a name or an alias of the catalogue"),
        "input": honoured(
            f"a string, token ids, or an array of up to {MAX_INPUTS:,} of either; none may be empty"
        ),
        "encoding_format": honoured("`float`, or `base64` of little-endian float32"),
        "dimensions": honoured(
            "for models whose configuration says that vectors may be cut (`is_matryoshka`,"
            " `matryoshka_dimensions`); refused by name otherwise"
        ),
        "user": no_effect(),
        "truncate_prompt_tokens": honoured(
            "keeps so many tokens of longer inputs, -1 as many as the model takes; without it,"
            " too long an input fails the line"
        ),
        "truncation_side": honoured("`left` or `right`, where that cuts; else the tokenizer's own"),
        "add_special_tokens": honoured("`true` by default; token ids are taken as they are"),
        "use_activation": honoured("`false` leaves the vector's length, `true` makes it 1"),
        "prompt_name": honoured(
            "puts the model's own prompt of that name before each text; without it none is used"
        ),
        "embed_dtype": refused("float32"),
        "endianness": refused("native", "little"),
        "padding": refused("do_not_pad"),
        "normalize": refused(note="the older word for `use_activation`"),
        "messages": refused(),
        "stream": refused(False, note="a batch that asks for it fails validation"),
        "priority": refused(0, note="a batch has a completion window instead"),
        "mm_processor_kwargs": refused(),
        "cache_salt": refused(),
        "request_id": no_effect("a line has its `custom_id`"),
    }

    def check(self, body: Body) -> LineProblem | None:
        return check_body(body, "Embeddings", prompt="input")

    def opening(self, body: Body) -> str:
        """Nothing: texts share no work, however they begin."""
        return ""

    def draft(self, body: Body, line: LineContext, model: ModelContext) -> Draft:
        asked = read_honoured(body, self.parameters, ignore_unknown=model.ignore_unknown)
        _read_format(asked)
        pooling = PoolingParams(
            dimensions=_read_dimensions(asked, model),
            use_activation=(
                read_boolean(asked, "use_activation") if "use_activation" in asked else None
            ),
        )
        inputs = read_inputs(asked, model)

        def finish(encoded: Sequence[list[int]]) -> list[Request]:
            for name, token_ids in zip(inputs, encoded, strict=True):
                check_input(name, token_ids, model.max_model_len)
            return [
                Request(id=str(index), prompt_token_ids=tuple(token_ids), pooling=pooling)
                for index, token_ids in enumerate(encoded)
            ]

        return Draft(prompts=list(inputs.values()), finish=finish)

    def respond(
        self, body: Body, line: LineContext, model: ModelContext, completions: list[Completion]
    ) -> Body:
        check_answered(completions)
        show = _FORMATS[_read_format(body)]
        tokens = sum(completion.prompt_tokens for completion in completions)
        return {
            "object": "list",
            "data": [
                {"object": "embedding", "index": index, "embedding": show(_vector(completion))}
                for index, completion in enumerate(completions)
            ],
            "model": model.name,
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        }


def _vector(completion: Completion) -> bytes:
    if completion.embedding is None:
        raise RuntimeError("the engine answered an embedding request without a vector")
    return completion.embedding


def _numbers(vector: bytes) -> orjson.Fragment:
    """A JSON array of the fewest digits that give each float32 back, half as long as doubles."""
    import numpy as np

    array = np.frombuffer(vector, "<f4")
    return orjson.Fragment(orjson.dumps(array, option=orjson.OPT_SERIALIZE_NUMPY))


def _base64(vector: bytes) -> str:
    return base64.b64encode(vector).decode()


_FORMATS: dict[str, Callable[[bytes], Any]] = {FLOAT: _numbers, BASE64: _base64}


def _read_format(body: Body) -> str:
    form = read_string(body, "encoding_format") or FLOAT
    if form not in _FORMATS:
        raise not_among("encoding_format", form, tuple(_FORMATS))
    return form


def _read_dimensions(body: Body, model: ModelContext) -> int | None:
    """How much of each vector to return, None for all of it."""
    asked = read_integer(body, "dimensions", 1, _LARGEST)
    facts = model.embedding
    if asked is None or facts is None:
        return None
    if asked == facts.dimensions:
        return None
    if facts.matryoshka is None:
        return _refuse_dimensions(
            f"Model '{model.name}' does not support Matryoshka embeddings: its vectors have"
            f" {facts.dimensions} dimensions, and 'dimensions' cannot ask for {asked}."
        )
    if asked > facts.dimensions or (facts.matryoshka and asked not in facts.matryoshka):
        allowed = (
            f"of {', '.join(map(str, facts.matryoshka))}"
            if facts.matryoshka
            else f"from 1 to {facts.dimensions}"
        )
        return _refuse_dimensions(
            f"Model '{model.name}' only supports dimensions {allowed}, but got {asked} instead."
        )
    return asked


def _refuse_dimensions(message: str) -> int:
    raise InvalidRequestError(message, param="dimensions", code="invalid_value")
