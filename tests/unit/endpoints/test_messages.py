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
        ([HI | {"tool_call_id": "t"}], "unsupported_parameter", "messages[0].tool_call_id"),
        ([{"role": "tool", "content": "4"}], "unsupported_parameter", "messages[0].role"),
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
        ({"type": "video"}, "invalid_value", "type"),
        ({"type": ["text"]}, "invalid_value", "type"),
        (
            {"type": "image_url", "image_url": {"url": "https://x/y.png"}},
            "unsupported_parameter",
            "image_url",
        ),
        ({"type": "input_audio", "input_audio": {}}, "unsupported_parameter", "input_audio"),
    ],
)
def test_a_wrong_part_is_located(part: dict[str, Any], code: str, param: str) -> None:
    error = refusal([{"role": "user", "content": [{"type": "text", "text": "See"}, part]}])
    assert (error.code, error.param) == (code, f"messages[0].content[1].{param}")


def test_a_wrong_role_is_answered_with_the_right_ones() -> None:
    assert refusal([{"role": "human", "content": "Hi"}]).message == (
        "Invalid value: 'human'."
        " Supported values are: 'system', 'developer', 'user' and 'assistant'."
    )
