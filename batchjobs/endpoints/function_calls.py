"""Function calls in what a model wrote, by the syntax of its family.

An answer calls functions or is plain text, never half of each: where one call is malformed, or
names no function of the request, the whole answer is text and nothing of it is lost.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Never

from batchjobs.endpoints.templates import CallSyntax

MARKERS = ("<tool_call>", "<|python_tag|>", "[TOOL_CALLS]")
"""What opens a call; some models have a special token for it, which plain text leaves out."""

_HERMES = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)
_MISTRAL_NAME = re.compile(
    r"\s*(?:\[TOOL_CALLS\])?\s*([\w.-]+)(?:\[CALL_ID\]\w+)?(?:\[ARGS\])?\s*(?=\{)"
)
_FENCE = re.compile(r"\s*```(?:json)?\s*\n(.*?)```\s*", re.DOTALL)
_BETWEEN_OBJECTS = " \t\r\n;,"


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionCall:
    """`arguments` is a JSON object as text, which is how the public API gives it."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallingAnswer:
    """An answer that calls: at least one call, and the text beside them."""

    text: str
    calls: tuple[FunctionCall, ...]


def find_calls(text: str, syntax: CallSyntax, names: Collection[str]) -> CallingAnswer | None:
    """The calls of functions among `names`, None for an answer that is plain text."""
    try:
        beside, found = _SYNTAXES[syntax](text)
        calls = tuple(_read_call(value, names) for value in found)
    except (ValueError, RecursionError):
        return None
    return CallingAnswer(text=beside.strip(), calls=calls) if calls else None


def _hermes(text: str) -> tuple[str, list[Any]]:
    found = [_parse(written) for written in _HERMES.findall(text)]
    return _HERMES.sub("", text), found


def _llama(text: str) -> tuple[str, list[Any]]:
    before, tag, behind = text.partition("<|python_tag|>")
    if tag:
        return before, _parse_several(behind)
    return "", _parse_several(text)


def _mistral(text: str) -> tuple[str, list[Any]]:
    before, marker, behind = text.partition("[TOOL_CALLS]")
    if not marker:
        return text, []
    behind = behind.strip()
    if behind.startswith(("[", "{")):
        return before, _parse_several(behind)
    return before, _named_objects(behind)


def _json(text: str) -> tuple[str, list[Any]]:
    fenced = _FENCE.fullmatch(text)
    return "", _parse_several(fenced[1] if fenced else text)


_SYNTAXES: dict[CallSyntax, Callable[[str], tuple[str, list[Any]]]] = {
    CallSyntax.HERMES: _hermes,
    CallSyntax.LLAMA: _llama,
    CallSyntax.MISTRAL: _mistral,
    CallSyntax.JSON: _json,
}


def _read_call(value: Any, names: Collection[str]) -> FunctionCall:
    if isinstance(value, dict) and isinstance(value.get("function"), dict):
        value = value["function"]
    name = value.get("name") if isinstance(value, dict) else None
    if not isinstance(name, str) or name not in names:
        raise ValueError("no function of the request")
    arguments = value.get("arguments", value.get("parameters", {}))
    if isinstance(arguments, str):
        arguments = _parse(arguments)
    if not isinstance(arguments, dict):
        raise ValueError("arguments that are no object")
    return FunctionCall(name=name, arguments=_dump(arguments))


def _named_objects(text: str) -> list[Any]:
    """`name{…}` after `name{…}`, to the end."""
    found = []
    position = 0
    while position < len(text):
        named = _MISTRAL_NAME.match(text, position)
        if named is None:
            raise ValueError("no name and object")
        arguments, position = _DECODER.raw_decode(text, named.end())
        found.append({"name": named[1], "arguments": arguments})
    return found


def _parse_several(text: str) -> list[Any]:
    """JSON objects beside each other, in an array or under `tool_calls`; nothing else."""
    found: list[Any] = []
    text = text.strip(_BETWEEN_OBJECTS)
    position = 0
    while position < len(text):
        value, position = _DECODER.raw_decode(text, position)
        if isinstance(value, dict) and isinstance(value.get("tool_calls"), list):
            value = value["tool_calls"]
        found += value if isinstance(value, list) else [value]
        while position < len(text) and text[position] in _BETWEEN_OBJECTS:
            position += 1
    return found


def _parse(text: str) -> Any:
    return _DECODER.decode(text.strip())


def _dump(arguments: dict[str, Any]) -> str:
    text = json.dumps(arguments, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which a result file cannot hold
        return json.dumps(arguments)
    return text


def _no_constant(name: str) -> Never:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_no_constant)
