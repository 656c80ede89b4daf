from __future__ import annotations

from typing import Any

import pytest

from batchjobs.endpoints.messages import read_messages
from batchjobs.errors import InvalidRequestError

HI = {"role": "user", "content": "Hi"}


def refusal(messages: object) -> InvalidRequestError:
    with pytest.raises(InvalidRequestError) as refused:
        read_messages({"messages": messages})
    return refused.value


def test_roles_and_texts_are_kept() -> None:
    messages = [{"role": "system", "content": ""}, HI, {"role": "assistant", "content": "Ho"}, HI]
    assert read_messages({"messages": messages}) == messages


def test_a_developer_is_the_system() -> None:
    messages = [{"role": "developer", "content": "Be short."}, HI]
    assert read_messages({"messages": messages})[0]["role"] == "system"


def test_text_parts_are_joined_by_line() -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    messages = [{"role": "user", "content": parts}]
    assert read_messages({"messages": messages}) == [{"role": "user", "content": "one\ntwo"}]


def assistant(**parts: Any) -> dict[str, Any]:
    return {"role": "assistant", **parts}


def call(arguments: str, call_id: str = "call_1") -> dict[str, Any]:
    function = {"name": "add", "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function}


def test_calls_and_their_results_are_for_the_template() -> None:
    messages = [
        HI,
        assistant(content=None, tool_calls=[call('{"a": 1}')]),
        {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "2"}]},
    ]
    called = {"name": "add", "arguments": {"a": 1}}
    assert read_messages({"messages": messages}) == [
        HI,
        assistant(
            content="", tool_calls=[{"id": "call_1", "type": "function", "function": called}]
        ),
        {"role": "tool", "content": "2", "tool_call_id": "call_1"},
    ]


@pytest.mark.parametrize(
    ("written", "read"),
    [("", {}), ("{}", {}), ("{not json", "{not json"), ("[1]", "[1]"), ("[" * 9999, "[" * 9999)],
)
def test_arguments_are_an_object_or_what_was_written(written: str, read: object) -> None:
    [message] = read_messages({"messages": [assistant(tool_calls=[call(written)])]})
    assert message["tool_calls"][0]["function"]["arguments"] == read


def test_the_older_words_for_calls_are_read() -> None:
    messages = [
        assistant(function_call={"name": "add", "arguments": '{"a": 1}'}),
        {"role": "function", "name": "add", "content": "2"},
    ]
    called, result = read_messages({"messages": messages})
    assert called["tool_calls"][0]["function"] == {"name": "add", "arguments": {"a": 1}}
    assert result == {"role": "tool", "name": "add", "content": "2"}


@pytest.mark.parametrize(
    ("wrong", "code", "param"),
    [
        (7, "invalid_type", "tool_calls"),
        ([7], "invalid_type", "tool_calls[0]"),
        ([{"type": "function"}], "missing_required_parameter", "tool_calls[0].id"),
        ([{"id": "a"}], "missing_required_parameter", "tool_calls[0].function"),
        ([{"id": "a", "type": "custom"}], "unsupported_parameter", "tool_calls[0].type"),
        ([call("{}") | {"mood": 1}], "unknown_parameter", "tool_calls[0].mood"),
        ([{"id": "a", "function": 1}], "invalid_type", "tool_calls[0].function"),
        (
            [{"id": "a", "function": {"name": "add"}}],
            "missing_required_parameter",
            "tool_calls[0].function.arguments",
        ),
    ],
)
def test_a_wrong_call_is_located(wrong: object, code: str, param: str) -> None:
    error = refusal([assistant(tool_calls=wrong)])
    assert (error.code, error.param) == (code, f"messages[0].{param}")


@pytest.mark.parametrize("content", [None, [{"type": "refusal", "refusal": "No."}]])
def test_a_refusal_is_what_the_assistant_said(content: object) -> None:
    message = assistant(content=content, refusal="No.")
    assert read_messages({"messages": [message]}) == [assistant(content="No.")]


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_earlier_reasoning_is_for_the_template(name: str) -> None:
    message = assistant(content="4", **{name: "2 and 2"})
    assert read_messages({"messages": [message]}) == [
        assistant(content="4", reasoning_content="2 and 2")
    ]


def test_unknown_keys_are_left_out_where_they_are_ignored() -> None:
    part = {"type": "text", "text": "Hi", "mood": 1}
    messages = [{"role": "user", "content": [part], "mood": "good"}]
    assert read_messages({"messages": messages}, ignore_unknown=True) == [HI]


def test_an_image_is_refused_in_the_public_words() -> None:
    image = {"type": "image_url", "image_url": {"url": "https://x/y.png"}}
    assert refusal([{"role": "user", "content": [image]}]).message == (
        "Invalid content type. 'image_url' is only supported by certain models, and this server"
        " runs none of them: it reads text."
    )


def test_a_name_is_for_the_template() -> None:
    assert read_messages({"messages": [HI | {"name": "Ann"}]}) == [HI | {"name": "Ann"}]


def test_an_answer_dumped_by_a_client_can_be_sent_back() -> None:
    dumped: dict[str, Any] = {
        "role": "assistant",
        "content": "Ho",
        "refusal": None,
        "annotations": [],
        "audio": None,
        "function_call": None,
        "tool_calls": [],
    }
    assert read_messages({"messages": [HI, dumped]})[1] == {"role": "assistant", "content": "Ho"}


@pytest.mark.parametrize(
    ("messages", "code", "param"),
    [
        ("Hi", "invalid_type", "messages"),
        ([], "empty_array", "messages"),
        (["Hi"], "invalid_type", "messages[0]"),
        ([HI, {"content": "Hi"}], "missing_required_parameter", "messages[1].role"),
        ([{"role": 1, "content": "Hi"}], "invalid_type", "messages[0].role"),
        ([{"role": "human", "content": "Hi"}], "invalid_value", "messages[0].role"),
        ([{"role": "user"}], "missing_required_parameter", "messages[0].content"),
        ([{"role": "user", "content": None}], "missing_required_parameter", "messages[0].content"),
        ([{"role": "user", "content": 1}], "invalid_type", "messages[0].content"),
        ([{"role": "user", "content": []}], "empty_array", "messages[0].content"),
        ([{"role": "user", "content": ["Hi"]}], "invalid_type", "messages[0].content[0]"),
        ([HI | {"name": 3}], "invalid_type", "messages[0].name"),
        ([HI | {"mood": "good"}], "unknown_parameter", "messages[0].mood"),
        ([HI | {"tool_call_id": "t"}], "unknown_parameter", "messages[0].tool_call_id"),
        ([HI | {"tool_calls": []}], "unknown_parameter", "messages[0].tool_calls"),
        (
            [{"role": "tool", "content": "4"}],
            "missing_required_parameter",
            "messages[0].tool_call_id",
        ),
        (
            [HI, {"role": "tool", "content": "4", "tool_call_id": "t"}],
            "invalid_value",
            "messages[1].role",
        ),
        (
            [{"role": "assistant", "audio": {"id": "a"}}],
            "unsupported_parameter",
            "messages[0].audio",
        ),
        (
            [{"role": "assistant", "content": None}],
            "missing_required_parameter",
            "messages[0].content",
        ),
        ([{"role": "function", "content": 4}], "invalid_type", "messages[0].content"),
    ],
)
def test_a_wrong_message_is_located(messages: object, code: str, param: str) -> None:
    error = refusal(messages)
    assert (error.code, error.param) == (code, param)


@pytest.mark.parametrize(
    ("part", "code", "param"),
    [
        ({}, "missing_required_parameter", "type"),
        ({"type": "text"}, "missing_required_parameter", "text"),
        ({"type": "text", "text": 1}, "invalid_type", "text"),
        ({"type": "text", "text": "x", "mood": "good"}, "unknown_parameter", "mood"),
        ({"type": "smell"}, "invalid_value", "type"),
        ({"type": ["text"]}, "invalid_value", "type"),
        (
            {"type": "image_url", "image_url": {"url": "https://x/y.png"}},
            "unsupported_parameter",
            "image_url",
        ),
        ({"type": "input_audio", "input_audio": {}}, "unsupported_parameter", "input_audio"),
        ({"type": "video_url", "video_url": {}}, "unsupported_parameter", "video_url"),
    ],
)
def test_a_wrong_part_is_located(part: dict[str, Any], code: str, param: str) -> None:
    error = refusal([{"role": "user", "content": [{"type": "text", "text": "See"}, part]}])
    assert (error.code, error.param) == (code, f"messages[0].content[1].{param}")


def test_a_wrong_role_is_answered_with_the_right_ones() -> None:
    assert refusal([{"role": "human", "content": "Hi"}]).message == (
        "Invalid value: 'human'."
        " Supported values are: 'system', 'developer', 'user', 'assistant', 'tool', and 'function'."
    )
