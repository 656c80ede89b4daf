"""`docs/parameters.md` says of every parameter what becomes of it, and the code does that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from openai.types import chat, responses, shared_params
from openai.types.responses import response_input_item_param as items

from batchjobs.endpoints import ENDPOINTS
from batchjobs.endpoints.base import Task
from batchjobs.endpoints.drafts import prepare_alone
from batchjobs.endpoints.support import Support
from batchjobs.errors import InvalidRequestError
from tests.support.chat_templates import HERMES
from tests.support.endpoint import EMBEDDER, LINE, MODEL
from tests.support.parameter_table import BODIES, DOCUMENT, fields, render
from tests.support.tokenizer import ByteTokenizer

GOOD: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"model": "m", "messages": [{"role": "user", "content": "Hi"}]},
    "/v1/completions": {"model": "m", "prompt": "Hi"},
    "/v1/responses": {"model": "m", "input": "Hi"},
    "/v1/embeddings": {"model": "m", "input": "Hi"},
}
_STRANGE = {"no": "endpoint takes this"}


@pytest.mark.parametrize("url", BODIES)
def test_every_parameter_of_the_public_api_is_known(url: str) -> None:
    assert set(fields(url)) <= set(ENDPOINTS[url].parameters)


def test_the_page_is_as_the_tables_and_the_public_types_say() -> None:
    assert DOCUMENT.read_text() == render(), "run scripts/parameters"


def test_every_endpoint_is_on_the_page() -> None:
    assert set(ENDPOINTS) == set(BODIES)


def prepare(url: str, name: str, value: object) -> object:
    endpoint = ENDPOINTS[url]
    model = EMBEDDER if endpoint.task is Task.EMBED else MODEL
    return prepare_alone(endpoint, GOOD[url] | {name: value}, LINE, model)


@pytest.mark.parametrize(
    ("url", "name"), [(url, name) for url in ENDPOINTS for name in ENDPOINTS[url].parameters]
)
def test_a_parameter_is_what_its_row_says(url: str, name: str) -> None:
    parameter = ENDPOINTS[url].parameters[name]
    if parameter.support is Support.NO_EFFECT:
        assert prepare(url, name, _STRANGE) == prepare(url, name, None)
        return
    if parameter.support is Support.HONOURED:
        assert name in {"model", "prompt_cache_options", "guided_json"} or _is_read(url, name)
        return
    assert all(prepare(url, name, off) == prepare(url, name, None) for off in parameter.off)
    with pytest.raises(InvalidRequestError) as refused:
        prepare(url, name, _STRANGE)
    assert (refused.value.code, refused.value.param) == ("unsupported_parameter", name)


def _is_read(url: str, name: str) -> bool:
    """A value that no parameter has fails the line, under the parameter's name."""
    with pytest.raises(InvalidRequestError) as refused:
        prepare(url, name, _STRANGE)
    return (refused.value.param or "").startswith(name)


Builder = Callable[[dict[str, Any]], dict[str, Any]]
"""What a body has of a part of it."""

_CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
_RESULT = {"type": "function_call_output", "call_id": "c", "output": "4"}
_CALLED = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
_TOOL = {"type": "function", "function": {"name": "f"}}


def message(**base: Any) -> Builder:
    called = {"role": "assistant", "tool_calls": [_CALL]}
    return lambda keys: {"messages": [called, base | keys]}


def part(**base: Any) -> Builder:
    return lambda keys: {"messages": [{"role": "assistant", "content": [base | keys]}]}


def item(**base: Any) -> Builder:
    return lambda keys: {"input": [_CALLED, base | keys]}


def item_part(**base: Any) -> Builder:
    return lambda keys: {"input": [{"role": "user", "content": [base | keys]}]}


_CHAT, _RESPONSES = "/v1/chat/completions", "/v1/responses"
PARTS: list[tuple[str, Any, Builder]] = [
    *(
        (_CHAT, kind, message(role=role, content="Hi"))
        for role, kind in (
            ("developer", chat.ChatCompletionDeveloperMessageParam),
            ("system", chat.ChatCompletionSystemMessageParam),
            ("user", chat.ChatCompletionUserMessageParam),
            ("assistant", chat.ChatCompletionAssistantMessageParam),
            ("function", chat.ChatCompletionFunctionMessageParam),
        )
    ),
    (
        _CHAT,
        chat.ChatCompletionToolMessageParam,
        message(role="tool", content="4", tool_call_id="c"),
    ),
    (_CHAT, chat.ChatCompletionContentPartTextParam, part(type="text", text="Hi")),
    (_CHAT, chat.ChatCompletionContentPartRefusalParam, part(type="refusal", refusal="No")),
    (
        _CHAT,
        chat.ChatCompletionMessageFunctionToolCallParam,
        lambda keys: {"messages": [{"role": "assistant", "tool_calls": [_CALL | keys]}]},
    ),
    (_CHAT, chat.ChatCompletionFunctionToolParam, lambda keys: {"tools": [_TOOL | keys]}),
    (
        _CHAT,
        shared_params.FunctionDefinition,
        lambda keys: {"tools": [_TOOL | {"function": {"name": "f"} | keys}]},
    ),
    (
        _CHAT,
        chat.ChatCompletionNamedToolChoiceParam,
        lambda keys: {"tools": [_TOOL], "tool_choice": _TOOL | keys},
    ),
    (
        _CHAT,
        shared_params.ResponseFormatJSONSchema,
        lambda keys: {"response_format": {"type": "json_schema"} | keys},
    ),
    (
        _CHAT,
        shared_params.response_format_json_schema.JSONSchema,
        lambda keys: {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "s", "schema": {}} | keys,
            }
        },
    ),
    (_RESPONSES, responses.EasyInputMessageParam, item(role="user", content="Hi")),
    (_RESPONSES, items.Message, item(type="message", role="user", content="Hi")),
    (_RESPONSES, responses.ResponseOutputMessageParam, item(role="assistant", content="Hi")),
    (_RESPONSES, responses.ResponseFunctionToolCallParam, item(**_CALLED)),
    (_RESPONSES, items.FunctionCallOutput, item(**_RESULT)),
    (_RESPONSES, responses.ResponseReasoningItemParam, item(type="reasoning", summary=[])),
    (_RESPONSES, responses.ResponseInputTextParam, item_part(type="input_text", text="Hi")),
    (_RESPONSES, responses.ResponseOutputTextParam, item_part(type="output_text", text="Hi")),
    (_RESPONSES, responses.ResponseOutputRefusalParam, item_part(type="refusal", refusal="No")),
    (
        _RESPONSES,
        responses.FunctionToolParam,
        lambda keys: {"tools": [{"type": "function", "name": "f"} | keys]},
    ),
    (_RESPONSES, responses.ResponseTextConfigParam, lambda keys: {"text": keys}),
    (
        _RESPONSES,
        responses.ResponseFormatTextJSONSchemaConfigParam,
        lambda keys: {
            "text": {"format": {"type": "json_schema", "name": "s", "schema": {}} | keys}
        },
    ),
    (_RESPONSES, shared_params.Reasoning, lambda keys: {"reasoning": keys}),
]


@pytest.mark.parametrize(
    ("url", "kind", "key", "build"),
    [
        pytest.param(url, kind, key, build, id=f"{kind.__name__}-{key}")
        for url, kind, build in PARTS
        for key in sorted(kind.__required_keys__ | kind.__optional_keys__)
    ],
)
def test_every_key_within_a_parameter_is_known(
    url: str, kind: Any, key: str, build: Builder
) -> None:
    """It may be wrong, or refused: never is it unknown, and left out where such keys are."""
    assert complaint(url, build({key: ["no", "key", "takes", "this"]})) != "unknown_parameter"
    assert complaint(url, build({"mood": 1})) in {"unknown_parameter", "unsupported_parameter"}


def complaint(url: str, body: dict[str, Any]) -> str | None:
    """What is wrong with the body, as the error's code."""
    model = replace(MODEL, tokenizer=ByteTokenizer(HERMES, variables=["tools"]))
    try:
        prepare_alone(ENDPOINTS[url], GOOD[url] | body, LINE, model)
    except InvalidRequestError as error:
        return error.code
    return None
