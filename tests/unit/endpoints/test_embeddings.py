from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import numpy as np
import orjson
import pytest

from batchjobs.endpoints.base import ModelContext, Task, check_task
from batchjobs.endpoints.chat_completions import ChatCompletions
from batchjobs.endpoints.drafts import prepare_alone
from batchjobs.endpoints.embedding_input import count_inputs
from batchjobs.endpoints.embeddings import Embeddings
from batchjobs.errors import InvalidRequestError
from executor.request import Completion, PoolingParams
from tests.support.endpoint import EMBEDDER, LINE, MODEL

VECTOR = np.array([0.1, -2.5, 1e-7], dtype="<f4")


def model(**facts: Any) -> ModelContext:
    assert EMBEDDER.embedding is not None
    return replace(EMBEDDER, embedding=replace(EMBEDDER.embedding, **facts))


def prompts(
    body: dict[str, Any], context: ModelContext = EMBEDDER
) -> list[tuple[tuple[int, ...], PoolingParams | None]]:
    requests = prepare_alone(Embeddings(), {"model": "m", **body}, LINE, context)
    assert [request.id for request in requests] == [str(i) for i in range(len(requests))]
    return [(request.prompt_token_ids, request.pooling) for request in requests]


def texts(body: dict[str, Any], context: ModelContext = EMBEDDER) -> list[bytes]:
    return [bytes(token_ids) for token_ids, _ in prompts(body, context)]


def refusal(body: dict[str, Any], context: ModelContext = EMBEDDER) -> InvalidRequestError:
    with pytest.raises(InvalidRequestError) as refused:
        prompts(body, context)
    return refused.value


def respond(body: dict[str, Any], *vectors: bytes) -> Any:
    completions = [
        Completion(request_id=str(i), prompt_tokens=3 + i, embedding=vector)
        for i, vector in enumerate(vectors)
    ]
    answer = Embeddings().respond({"model": "m", **body}, LINE, EMBEDDER, completions)
    return orjson.loads(orjson.dumps(answer))


@pytest.mark.parametrize(
    ("asked", "read"),
    [
        ("ab", [b"<ab>"]),
        (["ab", "c"], [b"<ab>", b"<c>"]),
        ([97, 98], [b"ab"]),
        ([[97], [98, 99]], [b"a", b"bc"]),
        (["ab", [99]], [b"<ab>", b"c"]),
    ],
)
def test_inputs_are_texts_or_token_ids(asked: Any, read: list[bytes]) -> None:
    assert texts({"input": asked}) == read


@pytest.mark.parametrize(
    ("asked", "param", "code"),
    [
        ("", "input", "empty_string"),
        ([], "input", "empty_array"),
        (["a", ""], "input[1]", "empty_string"),
        ([[1], []], "input[1]", "empty_array"),
        (7, "input", "invalid_type"),
        ({"text": "a"}, "input", "invalid_type"),
        (["a", None], "input[1]", "invalid_type"),
        ([1, "a"], "input[1]", "invalid_type"),
        ([1, True], "input[1]", "invalid_type"),
        ([1, 300], "input[1]", "invalid_value"),
        ([[1], [-1]], "input[1][0]", "invalid_value"),
        (["a"] * 2049, "input", "array_above_max_length"),
        ("x" * 99, "input", "context_length_exceeded"),
        ([[1], [5] * 101], "input[1]", "context_length_exceeded"),
    ],
)
def test_an_input_that_cannot_be_embedded_is_named(asked: Any, param: str, code: str) -> None:
    error = refusal({"input": asked})
    assert (error.param, error.code) == (param, code)


def test_too_long_an_input_is_told_with_both_numbers() -> None:
    message = refusal({"input": ["a", "x" * 199]}).message
    assert "maximum context length is 100 tokens" in message
    assert "your input[1] resulted in 201 tokens" in message


@pytest.mark.parametrize(
    ("more", "read"),
    [
        ({"truncate_prompt_tokens": 5}, b"<abc>"),
        ({"truncate_prompt_tokens": 5, "truncation_side": "left"}, b"<def>"),
        ({"truncate_prompt_tokens": -1}, b"<abcdef>"),
        ({"truncate_prompt_tokens": 3, "add_special_tokens": False}, b"abc"),
        ({"add_special_tokens": False}, b"abcdef"),
    ],
)
def test_a_text_is_cut_as_asked(more: dict[str, Any], read: bytes) -> None:
    assert texts({"input": "abcdef", **more}) == [read]


@pytest.mark.parametrize(("side", "kept"), [(None, b"ab"), ("right", b"ab"), ("left", b"bc")])
def test_token_ids_are_cut_as_asked(side: str | None, kept: bytes) -> None:
    body = {"input": [97, 98, 99], "truncate_prompt_tokens": 2, "truncation_side": side}
    assert texts(body) == [kept]


@pytest.mark.parametrize(
    ("more", "param", "code"),
    [
        ({"encoding_format": "hex"}, "encoding_format", "invalid_value"),
        ({"encoding_format": 4}, "encoding_format", "invalid_type"),
        ({"dimensions": 2}, "dimensions", "invalid_value"),
        ({"dimensions": 0}, "dimensions", "integer_below_min_value"),
        ({"truncate_prompt_tokens": 101}, "truncate_prompt_tokens", "integer_above_max_value"),
        ({"truncate_prompt_tokens": 0}, "truncate_prompt_tokens", "invalid_value"),
        ({"truncation_side": "middle"}, "truncation_side", "invalid_value"),
        ({"prompt_name": "query"}, "prompt_name", "invalid_value"),
        ({"use_activation": "yes"}, "use_activation", "invalid_type"),
        ({"normalize": True}, "normalize", "unsupported_parameter"),
        ({"messages": []}, "messages", "unsupported_parameter"),
        ({"temperature": 0}, "temperature", "unknown_parameter"),
    ],
)
def test_a_parameter_that_cannot_be_honoured_is_named(
    more: dict[str, Any], param: str, code: str
) -> None:
    error = refusal({"input": "a", **more})
    assert (error.param, error.code) == (param, code)


@pytest.mark.parametrize(
    ("allowed", "asked", "kept"),
    [((), 2, 2), ((), 3, None), ((1, 2), 2, 2), ((1, 2), 3, None), (None, 3, None)],
)
def test_vectors_are_cut_where_the_model_says_they_may(
    allowed: tuple[int, ...] | None, asked: int, kept: int | None
) -> None:
    [(_, pooling)] = prompts({"input": "a", "dimensions": asked}, model(matryoshka=allowed))
    assert pooling == PoolingParams(dimensions=kept)


@pytest.mark.parametrize(
    ("allowed", "asked", "why"),
    [
        (None, 2, "does not support Matryoshka embeddings"),
        ((), 4, "only supports dimensions from 1 to 3"),
        ((1, 2), 4, "only supports dimensions of 1, 2"),
    ],
)
def test_other_lengths_are_refused(allowed: tuple[int, ...] | None, asked: int, why: str) -> None:
    error = refusal({"input": "a", "dimensions": asked}, model(matryoshka=allowed))
    assert (error.param, error.code) == ("dimensions", "invalid_value")
    assert why in error.message


def test_the_models_prompts_are_used_only_by_name() -> None:
    context = model(prompts={"query": "Q:"})
    assert texts({"input": ["a", "b"]}, context) == [b"<a>", b"<b>"]
    assert texts({"input": ["a", "b"], "prompt_name": "query"}, context) == [b"<Q:a>", b"<Q:b>"]
    assert "'query'" in refusal({"input": "a", "prompt_name": "other"}, context).message
    assert refusal({"input": [1], "prompt_name": "query"}, context).param == "prompt_name"
    unpooled = model(prompts={"query": "Q:"}, pools_prompt=False)
    error = refusal({"input": "a", "prompt_name": "query"}, unpooled)
    assert error.code == "unsupported_parameter"


@pytest.mark.parametrize("asked", [None, True, False])
def test_a_line_says_whether_its_vectors_are_normalised(asked: bool | None) -> None:
    [(_, pooling)] = prompts({"input": "a", "use_activation": asked})
    assert pooling == PoolingParams(use_activation=asked)


def test_vectors_come_in_the_order_of_the_inputs() -> None:
    other = VECTOR[::-1]
    answer = respond({"input": ["a", "b"]}, VECTOR.tobytes(), other.tobytes())
    assert [item["index"] for item in answer["data"]] == [0, 1]
    for item, vector in zip(answer["data"], (VECTOR, other), strict=True):
        assert np.array_equal(np.array(item["embedding"], dtype="<f4"), vector)
    assert answer["usage"] == {"prompt_tokens": 7, "total_tokens": 7}


def test_base64_is_of_the_same_numbers() -> None:
    answer = respond({"input": "a", "encoding_format": "base64"}, VECTOR.tobytes())
    packed = base64.b64decode(answer["data"][0]["embedding"])
    assert np.array_equal(np.frombuffer(packed, "<f4"), VECTOR)


def test_an_error_of_the_engine_is_the_lines() -> None:
    completion = Completion(request_id="0", prompt_tokens=1, error="it went wrong")
    with pytest.raises(InvalidRequestError, match="it went wrong"):
        Embeddings().respond({"input": "a"}, LINE, EMBEDDER, [completion])


@pytest.mark.parametrize(
    ("body", "count"),
    [
        ({"input": "a"}, 1),
        ({"input": [1, 2, 3]}, 1),
        ({"input": ["a", "b"]}, 2),
        ({"input": [[1], [2], [3]]}, 3),
        ({"input": []}, 1),
        ({}, 1),
    ],
)
def test_inputs_are_counted(body: dict[str, Any], count: int) -> None:
    assert count_inputs(body) == count


def test_a_model_does_what_it_is_for() -> None:
    assert (MODEL.task, EMBEDDER.task) == (Task.GENERATE, Task.EMBED)
    check_task(ChatCompletions(), MODEL)
    check_task(Embeddings(), EMBEDDER)
    with pytest.raises(InvalidRequestError, match="does not support /v1/embeddings"):
        check_task(Embeddings(), MODEL)
    with pytest.raises(InvalidRequestError, match="does not support /v1/chat/completions"):
        check_task(ChatCompletions(), EMBEDDER)
