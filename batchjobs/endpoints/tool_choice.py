"""Which of the functions offered a request lets or makes the model call."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from batchjobs.endpoints.fields import (
    check_keys,
    missing,
    not_among,
    require_string,
    unsupported,
    wrong_type,
)
from batchjobs.errors import InvalidRequestError

_CHOICES = ("none", "auto", "required")
_MODES = ("auto", "required")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolShape:
    """How an endpoint writes a function: `key` holds its definition, or with None the tool is it.

    Of the definition's other fields, `extras` are harmless and `refused` ask for what cannot be.
    """

    key: str | None
    extras: frozenset[str] = frozenset()
    refused: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolChoice:
    """`names` are those that may be called, None for all; `named` demands one call of one."""

    may_call: bool = True
    must_call: bool = False
    named: bool = False
    names: frozenset[str] | None = None


def read_choice(
    choice: object, shape: ToolShape, offered: Collection[str], *, ignore_unknown: bool = False
) -> ToolChoice:
    """`tool_choice` of a body that offers these functions; without one it is `auto`.

    Raises:
        InvalidRequestError: it is malformed, or what it demands is not offered.
    """
    if choice is None:
        return ToolChoice()
    if isinstance(choice, str):
        return _read_word(choice, offered)
    if not isinstance(choice, dict):
        raise wrong_type("tool_choice", "a string or an object", choice)
    kind = require_string(choice, "type", "tool_choice")
    if kind == "allowed_tools":
        return _read_allowed(choice, shape, offered, ignore_unknown=ignore_unknown)
    if kind != "function":
        raise unsupported("tool_choice.type", kind)
    name = _read_name("tool_choice", choice, shape, offered)
    _check_named(choice, shape, ignore_unknown=ignore_unknown)
    return ToolChoice(must_call=True, named=True, names=frozenset({name}))


def _read_word(choice: str, offered: Collection[str]) -> ToolChoice:
    if choice not in _CHOICES:
        raise not_among("tool_choice", choice, _CHOICES)
    if choice == "required":
        _check_offered(offered)
    return ToolChoice(may_call=choice != "none", must_call=choice == "required")


def _check_named(choice: dict[str, Any], shape: ToolShape, *, ignore_unknown: bool) -> None:
    where = "tool_choice"
    if shape.key is None:
        check_keys(where, choice, {"type", "name"}, ignore_unknown=ignore_unknown)
        return
    check_keys(where, choice, {"type", shape.key}, ignore_unknown=ignore_unknown)
    check_keys(f"{where}.{shape.key}", choice[shape.key], {"name"}, ignore_unknown=ignore_unknown)


def _read_allowed(
    choice: dict[str, Any], shape: ToolShape, offered: Collection[str], *, ignore_unknown: bool
) -> ToolChoice:
    """The tools that it lists may be whole definitions, of which only the name counts."""
    where = "tool_choice" if shape.key is None else "tool_choice.allowed_tools"
    allowed = choice if shape.key is None else choice.get("allowed_tools")
    if not isinstance(allowed, dict):
        raise missing(where) if allowed is None else wrong_type(where, "an object", allowed)
    if shape.key is not None:
        check_keys("tool_choice", choice, {"type", "allowed_tools"}, ignore_unknown=ignore_unknown)
    check_keys(where, allowed, {"type", "mode", "tools"}, ignore_unknown=ignore_unknown)
    mode = require_string(allowed, "mode", where)
    if mode not in _MODES:
        raise not_among(f"{where}.mode", mode, _MODES)
    tools = allowed.get("tools")
    where = f"{where}.tools"
    if not isinstance(tools, list):
        raise missing(where) if tools is None else wrong_type(where, "an array of objects", tools)
    names = frozenset(
        _read_name(f"{where}[{index}]", tool, shape, offered) for index, tool in enumerate(tools)
    )
    return ToolChoice(may_call=bool(names), must_call=mode == "required", names=names)


def _read_name(where: str, choice: object, shape: ToolShape, offered: Collection[str]) -> str:
    if not isinstance(choice, dict):
        raise wrong_type(where, "an object", choice)
    chosen: object = choice
    if shape.key is not None:
        where = f"{where}.{shape.key}"
        chosen = choice.get(shape.key)
    if not isinstance(chosen, dict):
        raise missing(where) if chosen is None else wrong_type(where, "an object", chosen)
    name = require_string(chosen, "name", where)
    _check_offered(offered)
    if name not in offered:
        raise _invalid_choice(f"no function named {name} was specified in the 'tools' parameter.")
    return name


def _check_offered(offered: Collection[str]) -> None:
    if not offered:
        raise _invalid_choice("'tool_choice' is only allowed when 'tools' are specified.")


def _invalid_choice(why: str) -> InvalidRequestError:
    message = f"Invalid value for 'tool_choice': {why}"
    return InvalidRequestError(message, param="tool_choice", code="invalid_value")
