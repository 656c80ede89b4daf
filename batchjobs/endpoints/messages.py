"""The messages of a chat request, as chat templates take them.

| role | becomes | beside its text |
|---|---|---|
| system, developer | system, as templates know the older word | name |
| user | user | name |
| assistant | assistant | name, tool_calls (arguments as objects), reasoning_content |
| tool | tool | tool_call_id |
| function, the older word for it | tool | name |
"""

from __future__ import annotations

import json
from typing import Any

from batchjobs.endpoints.base import Body
from batchjobs.endpoints.contents import EXTENSION_PARTS, PartKinds, read_content
from batchjobs.endpoints.fields import (
    check_keys,
    empty_array,
    missing,
    not_among,
    read_string,
    require_string,
    unsupported,
    wrong_type,
)
from batchjobs.errors import InvalidRequestError

ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
REASONING = ("reasoning_content", "reasoning")
"""Where earlier answers have what was reasoned before them: our word, and another in use."""

_NO_EFFECT = frozenset({"annotations"})
_KEYS = {
    "assistant": frozenset({"tool_calls", "function_call", "refusal", "audio", *REASONING}),
    "tool": frozenset({"tool_call_id"}),
}
_OTHER_PARTS = ("image_url", "input_audio", "file", *EXTENSION_PARTS)
_PARTS = PartKinds(texts={"text": "text"}, others=_OTHER_PARTS)
_ASSISTANT_PARTS = PartKinds(texts={"text": "text", "refusal": "refusal"}, others=_OTHER_PARTS)


def read_messages(body: Body, *, ignore_unknown: bool = False) -> list[dict[str, Any]]:
    """`messages` with their contents joined to one text each.

    Raises:
        InvalidRequestError: a message is malformed, holds more than text, or is the result of
            a call that no earlier message made.
    """
    messages = body.get("messages")
    if not isinstance(messages, list):
        raise wrong_type("messages", "an array of objects", messages)
    if not messages:
        raise empty_array("messages")
    read = [
        _read_message(f"messages[{index}]", item, ignore_unknown=ignore_unknown)
        for index, item in enumerate(messages)
    ]
    _check_results(read)
    return read


def tool_call(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    """A call as templates take it: its arguments are an object, or text if they are none."""
    function = {"name": name, "arguments": _as_object(arguments)}
    return {"id": call_id, "type": "function", "function": function}


def _read_message(where: str, message: object, *, ignore_unknown: bool) -> dict[str, Any]:
    if not isinstance(message, dict):
        raise wrong_type(where, "an object", message)
    word = _read_role(where, message)
    known = {"role", "content", "name"} | _KEYS.get(word, frozenset()) | _NO_EFFECT
    check_keys(where, message, known, ignore_unknown=ignore_unknown)
    read: dict[str, Any] = {"role": ROLES[word]}
    if word == "assistant":
        read |= _read_answer(where, message, ignore_unknown=ignore_unknown)
    else:
        content = message.get("content")
        read["content"] = read_content(
            f"{where}.content", content, _PARTS, ignore_unknown=ignore_unknown
        )
    if word == "tool":
        read["tool_call_id"] = require_string(message, "tool_call_id", where)
    if (name := read_string(message, "name", where)) is not None:
        read["name"] = name
    return read


def _read_role(where: str, message: dict[str, Any]) -> str:
    role = require_string(message, "role", where)
    if role not in ROLES:
        raise not_among(f"{where}.role", role, tuple(ROLES))
    return role


def _read_answer(where: str, message: dict[str, Any], *, ignore_unknown: bool) -> dict[str, Any]:
    """An earlier answer: a text, or calls, or both."""
    if message.get("audio") is not None:
        raise unsupported(f"{where}.audio")
    calls = _read_calls(where, message, ignore_unknown=ignore_unknown)
    content = message.get("content")
    if content is None:
        content = read_string(message, "refusal", where)
    if content is None and calls:
        content = ""
    read: dict[str, Any] = {
        "content": read_content(
            f"{where}.content", content, _ASSISTANT_PARTS, ignore_unknown=ignore_unknown
        )
    }
    if calls:
        read["tool_calls"] = calls
    for name in REASONING:
        if reasoning := read_string(message, name, where):
            read["reasoning_content"] = reasoning
    return read


def _read_calls(
    where: str, message: dict[str, Any], *, ignore_unknown: bool
) -> list[dict[str, Any]]:
    function_call = message.get("function_call")
    if function_call is not None:
        where = f"{where}.function_call"
        return [_read_function(where, function_call, "", ignore_unknown=ignore_unknown)]
    calls = message.get("tool_calls")
    if calls is None:
        return []
    where = f"{where}.tool_calls"
    if not isinstance(calls, list):
        raise wrong_type(where, "an array of objects", calls)
    return [
        _read_call(f"{where}[{index}]", call, ignore_unknown=ignore_unknown)
        for index, call in enumerate(calls)
    ]


def _read_call(where: str, call: object, *, ignore_unknown: bool) -> dict[str, Any]:
    if not isinstance(call, dict):
        raise wrong_type(where, "an object", call)
    # Dumps of streamed answers number their calls.
    check_keys(where, call, ("id", "type", "function", "index"), ignore_unknown=ignore_unknown)
    kind = read_string(call, "type", where) or "function"
    if kind != "function":
        raise unsupported(f"{where}.type", kind)
    call_id = require_string(call, "id", where)
    if call.get("function") is None:
        raise missing(f"{where}.function")
    return _read_function(
        f"{where}.function", call["function"], call_id, ignore_unknown=ignore_unknown
    )


def _read_function(
    where: str, function: object, call_id: str, *, ignore_unknown: bool
) -> dict[str, Any]:
    if not isinstance(function, dict):
        raise wrong_type(where, "an object", function)
    check_keys(where, function, ("name", "arguments"), ignore_unknown=ignore_unknown)
    name = require_string(function, "name", where)
    return tool_call(call_id, name, require_string(function, "arguments", where))


def _as_object(arguments: str) -> Any:
    """Models write arguments that are no JSON; templates then get them as they were written."""
    try:
        read = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return arguments
    return read if isinstance(read, dict) else arguments


def _check_results(messages: list[dict[str, Any]]) -> None:
    called: set[str] = set()
    for index, message in enumerate(messages):
        called.update(call["id"] for call in message.get("tool_calls", ()))
        if "tool_call_id" in message and message["tool_call_id"] not in called:
            raise _no_such_call(index, message["tool_call_id"])


def _no_such_call(index: int, call_id: str) -> InvalidRequestError:
    message = (
        "Invalid parameter: messages with role 'tool' must be a response to a preceding message"
        f" with 'tool_calls', and none has the id '{call_id}'."
    )
    return InvalidRequestError(message, param=f"messages[{index}].role", code="invalid_value")
