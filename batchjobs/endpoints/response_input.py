"""The input of a `/v1/responses` request as the messages of a chat.

| item | becomes |
|---|---|
| message, also without its type | a message of its role |
| reasoning | the reasoning before the next turn of the assistant |
| function_call | a call by the assistant, in one turn with what the assistant said just before |
| function_call_output | the result of that call |
"""

from __future__ import annotations

from typing import Any

from batchjobs.endpoints.base import Body
from batchjobs.endpoints.contents import EXTENSION_PARTS, PartKinds, read_content
from batchjobs.endpoints.fields import (
    check_keys,
    empty_array,
    invalid_value,
    not_among,
    read_string,
    require_string,
    unsupported,
    wrong_type,
)
from batchjobs.endpoints.messages import tool_call

Message = dict[str, Any]

_ROLES = {"user": "user", "assistant": "assistant", "system": "system", "developer": "system"}
_PARTS = PartKinds(
    texts={"input_text": "text", "output_text": "text", "refusal": "refusal"},
    others=("input_image", "input_file", "input_audio", "input_video", *EXTENSION_PARTS),
)
_REASONING_PARTS = PartKinds(texts={"reasoning_text": "text", "summary_text": "text"}, others=())
_COMMON = frozenset({"type", "id", "status"})
_OF_CALLS = _COMMON | {"call_id", "name", "namespace", "caller"}
_KEYS = {
    "message": _COMMON | {"role", "content", "phase"},
    "reasoning": _COMMON | {"content", "summary", "encrypted_content"},
    "function_call": _OF_CALLS | {"arguments", "async"},
    "function_call_output": _OF_CALLS | {"output"},
}


def read_input(body: Body, *, ignore_unknown: bool) -> list[Message]:
    """`instructions` and `input` as messages.

    Raises:
        InvalidRequestError: an item is malformed, holds more than text, or is of a kind that
            this server does not know.
    """
    reader = _InputReader(ignore_unknown=ignore_unknown)
    if instructions := read_string(body, "instructions"):
        reader.messages.append({"role": "system", "content": instructions})
    value = body.get("input")
    if isinstance(value, str):
        reader.messages.append({"role": "user", "content": value})
        return reader.messages
    if not isinstance(value, list):
        raise wrong_type("input", "a string or an array of items", value)
    if not value:
        raise empty_array("input")
    for index, item in enumerate(value):
        reader.take(f"input[{index}]", item)
    return reader.messages


class _InputReader:
    """Takes items in order; `messages` are the turns so far."""

    def __init__(self, *, ignore_unknown: bool) -> None:
        self.messages: list[Message] = []
        self._ignore_unknown = ignore_unknown
        self._reasoning = ""
        self._called: set[str] = set()

    def take(self, where: str, item: object) -> None:
        if not isinstance(item, dict):
            raise wrong_type(where, "an object", item)
        kind = read_string(item, "type", where) or "message"
        if kind not in _KEYS:
            raise unsupported(f"{where}.type", kind)
        check_keys(where, item, _KEYS[kind], ignore_unknown=self._ignore_unknown)
        match kind:
            case "message":
                self._take_message(where, item)
            case "reasoning":
                self._take_reasoning(where, item)
            case "function_call":
                self._take_call(where, item)
            case _:
                self._take_output(where, item)

    def _take_message(self, where: str, item: Message) -> None:
        role = require_string(item, "role", where)
        if role not in _ROLES:
            raise not_among(f"{where}.role", role, tuple(_ROLES))
        content = self._content(f"{where}.content", item.get("content"), _PARTS)
        message: Message = {"role": _ROLES[role], "content": content}
        self.messages.append(self._answer(content) if role == "assistant" else message)

    def _take_reasoning(self, where: str, item: Message) -> None:
        if item.get("encrypted_content") is not None:
            raise unsupported(f"{where}.encrypted_content")
        for name in ("content", "summary"):
            if item.get(name):
                self._reasoning = self._content(f"{where}.{name}", item[name], _REASONING_PARTS)
                return

    def _take_call(self, where: str, item: Message) -> None:
        _check_call(where, item)
        call_id = require_string(item, "call_id", where)
        name = require_string(item, "name", where)
        call = tool_call(call_id, name, require_string(item, "arguments", where))
        self._called.add(call_id)
        if not self.messages or self.messages[-1]["role"] != "assistant" or self._reasoning:
            self.messages.append(self._answer(""))
        self.messages[-1].setdefault("tool_calls", []).append(call)

    def _take_output(self, where: str, item: Message) -> None:
        _check_call(where, item)
        call_id = require_string(item, "call_id", where)
        if call_id not in self._called:
            why = f"no function call before it has the id '{call_id}'."
            raise invalid_value(f"{where}.call_id", why)
        output = self._content(f"{where}.output", item.get("output"), _PARTS)
        message: Message = {"role": "tool", "content": output, "tool_call_id": call_id}
        if (name := read_string(item, "name", where)) is not None:
            message["name"] = name
        self.messages.append(message)

    def _answer(self, content: str) -> Message:
        message: Message = {"role": "assistant", "content": content}
        if self._reasoning:
            message["reasoning_content"] = self._reasoning
            self._reasoning = ""
        return message

    def _content(self, name: str, content: object, kinds: PartKinds) -> str:
        return read_content(name, content, kinds, ignore_unknown=self._ignore_unknown)


def _check_call(where: str, item: Message) -> None:
    """Only the model itself calls here, functions have no namespaces, and nobody's answer is
    waited for."""
    caller = item.get("caller")
    if caller is not None and not isinstance(caller, dict):
        raise wrong_type(f"{where}.caller", "an object", caller)
    if caller and caller.get("type") not in (None, "direct"):
        raise unsupported(f"{where}.caller", str(caller["type"]))
    for name in ("namespace", "async"):
        if item.get(name):
            raise unsupported(f"{where}.{name}")
