"""The messages of a chat request, as chat templates take them: a role and a text each."""

from __future__ import annotations

from typing import Any

from batchjobs.endpoints.base import Body
from batchjobs.endpoints.fields import (
    empty_array,
    missing,
    not_among,
    unknown,
    unsupported,
    wrong_type,
)

# Chat templates know the older of the two words.
ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}

_UNSUPPORTED_ROLES = frozenset({"tool", "function"})
_NO_EFFECT = frozenset({"annotations"})
_UNSUPPORTED = frozenset({"tool_calls", "tool_call_id", "function_call", "audio", "refusal"})
_UNSUPPORTED_PARTS = ("image_url", "input_audio", "file", "refusal")


def read_messages(body: Body) -> list[dict[str, Any]]:
    """`messages` with their contents joined to one text each.

    Raises:
        InvalidRequestError: a message is malformed or holds more than text.
    """
    messages = body.get("messages")
    if not isinstance(messages, list):
        raise wrong_type("messages", "an array of objects", messages)
    if not messages:
        raise empty_array("messages")
    return [_read_message(f"messages[{index}]", item) for index, item in enumerate(messages)]


def _read_message(where: str, message: object) -> dict[str, Any]:
    if not isinstance(message, dict):
        raise wrong_type(where, "an object", message)
    read = {"role": _read_role(where, message), "content": _read_content(where, message)}
    for name, value in message.items():
        if name in read or name in _NO_EFFECT or value is None or value == []:
            continue
        if name in _UNSUPPORTED:
            raise unsupported(f"{where}.{name}")
        if name != "name":
            raise unknown(f"{where}.{name}")
        read["name"] = _read_text(f"{where}.name", value)
    return read


def _read_role(where: str, message: dict[str, Any]) -> str:
    name = f"{where}.role"
    role = message.get("role")
    if role is None:
        raise missing(name)
    if not isinstance(role, str):
        raise wrong_type(name, "a string", role)
    if role in _UNSUPPORTED_ROLES:
        raise unsupported(name, role)
    if role not in ROLES:
        raise not_among(name, role, tuple(ROLES))
    return ROLES[role]


def _read_content(where: str, message: dict[str, Any]) -> str:
    name = f"{where}.content"
    content = message.get("content")
    if content is None:
        raise missing(name)
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise wrong_type(name, "a string or an array of text parts", content)
    if not content:
        raise empty_array(name)
    return "\n".join(_read_part(f"{name}[{index}]", part) for index, part in enumerate(content))


def _read_part(where: str, part: object) -> str:
    if not isinstance(part, dict):
        raise wrong_type(where, "an object", part)
    kind = part.get("type")
    if kind is None:
        raise missing(f"{where}.type")
    if kind in _UNSUPPORTED_PARTS:
        raise unsupported(f"{where}.{kind}")
    if kind != "text":
        raise not_among(f"{where}.type", kind, ("text",))
    if part.get("text") is None:
        raise missing(f"{where}.text")
    return _read_text(f"{where}.text", part["text"])


def _read_text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise wrong_type(name, "a string", value)
    return value
