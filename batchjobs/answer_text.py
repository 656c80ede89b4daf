"""What a person reads of an answer's body, whatever endpoint it is of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

BETWEEN_CHOICES = "\n\n"


def answer_text(body: Any, *, between: str = BETWEEN_CHOICES) -> str:
    """The text of all choices; "" of a body that has none."""
    if not isinstance(body, dict):
        return ""
    return between.join(text for text in _texts(body) if text)


def _texts(body: dict[str, Any]) -> Iterator[str]:
    for choice in _dicts(body.get("choices")):
        message = choice.get("message")
        yield from _of_message(message) if isinstance(message, dict) else (_text(choice, "text"),)
    for item in _dicts(body.get("output")):
        yield from _of_message(item)
    if body.get("type") == "message":
        yield from _of_message(body)
    for item in _dicts(body.get("data")):
        yield _of_vector(item)


def _of_message(message: dict[str, Any]) -> Iterator[str]:
    """Of a chat message, an item of a response's output, or a message as Anthropic has it."""
    for name in ("reasoning_content", "reasoning"):
        if thought := _text(message, name):
            yield f"[reasoning] {thought}"
    content = message.get("content")
    if isinstance(content, str):
        yield content
    for part in _dicts(content):
        yield _text(part, "text") or _text(part, "refusal") or _of_call(part)
    yield _text(message, "refusal")
    yield _of_call(message)
    for call in _dicts(message.get("tool_calls")):
        function = call.get("function")
        yield _of_call(function) if isinstance(function, dict) else ""


def _of_call(call: dict[str, Any]) -> str:
    """For example `look_up({"city": "Rome"})`."""
    arguments = call.get("arguments", call.get("input"))
    if arguments is None or not isinstance(call.get("name"), str):
        return ""
    said = arguments if isinstance(arguments, str) else orjson.dumps(arguments).decode()
    return f"{call['name']}({said})"


def _of_vector(item: dict[str, Any]) -> str:
    vector = item.get("embedding")
    if isinstance(vector, list):
        shown = ", ".join(f"{value:.4g}" for value in vector[:4] if isinstance(value, int | float))
        return f"[{len(vector):,} numbers: {shown}, …]"
    if isinstance(vector, str):
        return f"[{len(vector):,} characters of base64]"
    score = item.get("score")
    return f"score {score:.6g}" if isinstance(score, int | float) else ""


def _text(value: dict[str, Any], name: str) -> str:
    found = value.get(name)
    return found if isinstance(found, str) else ""


def _dicts(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, list):
        yield from (item for item in value if isinstance(item, dict))
