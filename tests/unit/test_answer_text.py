from __future__ import annotations

from typing import Any

import pytest

from batchjobs.answer_text import answer_text


def chat(**message: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "message": {"role": "assistant", **message}}]}


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (chat(content="Hello."), "Hello."),
        (chat(content=None), ""),
        (chat(content="4", reasoning_content="2 + 2"), "[reasoning] 2 + 2\n\n4"),
        (chat(content=[{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]), "a\n\nb"),
        (chat(content=None, refusal="No."), "No."),
        (
            chat(tool_calls=[{"function": {"name": "look", "arguments": '{"city": "Rome"}'}}]),
            'look({"city": "Rome"})',
        ),
        ({"choices": [{"text": "one"}, {"text": "two"}]}, "one\n\ntwo"),
        (
            {
                "output": [
                    {"type": "message", "content": [{"type": "output_text", "text": "Hi"}]},
                    {"type": "function_call", "name": "f", "arguments": "{}"},
                ]
            },
            "Hi\n\nf({})",
        ),
        (
            {
                "type": "message",
                "content": [
                    {"type": "text", "text": "Hm."},
                    {"type": "tool_use", "name": "f", "input": {"a": 1}},
                ],
            },
            'Hm.\n\nf({"a":1})',
        ),
        ({"data": [{"embedding": [0.5, 0.25, 1, 0, 2]}]}, "[5 numbers: 0.5, 0.25, 1, 0, …]"),
        ({"data": [{"embedding": "AAAA"}]}, "[4 characters of base64]"),
        ({"data": [{"score": 0.123456789}]}, "score 0.123457"),
    ],
)
def test_text_of_every_endpoint_is_read(body: dict[str, Any], text: str) -> None:
    assert answer_text(body) == text


@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        "text",
        {},
        {"choices": None},
        {"choices": [None, 1, {"message": None}, {"message": {"content": 5}}]},
        {"choices": [{"message": {"tool_calls": [{"function": None}, 3]}}]},
        {"output": {"a": 1}},
        {"data": [{"embedding": {}}, {"score": "high"}]},
    ],
)
def test_body_of_another_kind_has_no_text(body: Any) -> None:
    assert answer_text(body) == ""
