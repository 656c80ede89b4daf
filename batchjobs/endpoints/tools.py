"""The functions that a request offers the model, and whether it may call them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from batchjobs.endpoints.base import Body
from batchjobs.endpoints.fields import (
    check_keys,
    invalid_value,
    missing,
    not_among,
    read_boolean,
    read_string,
    require_string,
    unsupported,
    wrong_type,
)
from batchjobs.endpoints.templates import ChatTemplate
from batchjobs.errors import InvalidRequestError

_CHOICES = ("none", "auto", "required")
_NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}}


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUse:
    """`definitions` are what the template is given, none where the model may not call.

    `parallel` lets an answer call more than once.
    """

    definitions: tuple[dict[str, Any], ...] = ()
    parallel: bool = True
    names: frozenset[str] = field(default=frozenset())


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolShape:
    """How an endpoint writes a function: `key` holds its definition, or with None the tool is it.

    Of the definition's other fields, `extras` are harmless and `refused` ask for what cannot be.
    """

    key: str | None
    extras: frozenset[str] = frozenset()
    refused: frozenset[str] = frozenset()


def read_tools(
    body: Body, shape: ToolShape, template: ChatTemplate, *, ignore_unknown: bool
) -> ToolUse:
    """`tools`, `tool_choice` and `parallel_tool_calls` of the body.

    Raises:
        InvalidRequestError: a tool is malformed or no function; a call is demanded, which needs
            a grammar; the model's template knows no tools.
    """
    definitions = _read_definitions(body.get("tools"), shape, ignore_unknown=ignore_unknown)
    names = frozenset(definition["name"] for definition in definitions)
    may_call = _may_call(body.get("tool_choice"), shape, names)
    parallel = body.get("parallel_tool_calls") is None or read_boolean(body, "parallel_tool_calls")
    if not definitions or not may_call:
        return ToolUse()
    if not template.knows_tools:
        raise _unknown_to_the_template()
    return ToolUse(
        definitions=tuple({"type": "function", "function": one} for one in definitions),
        parallel=parallel,
        names=names,
    )


def _read_definitions(
    tools: object, shape: ToolShape, *, ignore_unknown: bool
) -> list[dict[str, Any]]:
    if tools is None:
        return []
    if not isinstance(tools, list):
        raise wrong_type("tools", "an array of objects", tools)
    return [
        _read_tool(f"tools[{index}]", tool, shape, ignore_unknown=ignore_unknown)
        for index, tool in enumerate(tools)
    ]


def _read_tool(
    where: str, tool: object, shape: ToolShape, *, ignore_unknown: bool
) -> dict[str, Any]:
    if not isinstance(tool, dict):
        raise wrong_type(where, "an object", tool)
    kind = require_string(tool, "type", where)
    if kind != "function":
        raise unsupported(f"{where}.type", kind)
    if shape.key is None:
        for name in shape.refused:
            if tool.get(name):
                raise unsupported(f"{where}.{name}")
        extras = shape.extras | shape.refused | {"type"}
        return _read_function(where, tool, extras, ignore_unknown=ignore_unknown)
    check_keys(where, tool, {"type", shape.key}, ignore_unknown=ignore_unknown)
    definition = tool.get(shape.key)
    where = f"{where}.{shape.key}"
    if definition is None:
        raise missing(where)
    if not isinstance(definition, dict):
        raise wrong_type(where, "an object", definition)
    return _read_function(where, definition, shape.extras, ignore_unknown=ignore_unknown)


def _read_function(
    where: str, definition: dict[str, Any], extras: frozenset[str], *, ignore_unknown: bool
) -> dict[str, Any]:
    known = extras | {"name", "description", "parameters", "strict"}
    check_keys(where, definition, known, ignore_unknown=ignore_unknown)
    name = require_string(definition, "name", where)
    if not name:
        raise invalid_value(f"{where}.name", "a function needs a name.")
    parameters = definition.get("parameters")
    if parameters is not None and not isinstance(parameters, dict):
        raise wrong_type(f"{where}.parameters", "an object", parameters)
    _check_strict(where, definition)
    return {
        "name": name,
        "description": read_string(definition, "description", where) or "",
        "parameters": parameters or _NO_PARAMETERS,
    }


def _check_strict(where: str, definition: dict[str, Any]) -> None:
    strict = definition.get("strict")
    if strict is not None and not isinstance(strict, bool):
        raise wrong_type(f"{where}.strict", "a boolean", strict)
    if strict:
        raise _needs_grammar(f"{where}.strict")


def _may_call(choice: object, shape: ToolShape, names: frozenset[str]) -> bool:
    """Whether the model may call: false for `none`, true for `auto`, which is the default."""
    if choice is None:
        return True
    if isinstance(choice, str):
        if choice not in _CHOICES:
            raise not_among("tool_choice", choice, _CHOICES)
        if choice == "required":
            _check_offered(names)
            raise _needs_grammar("tool_choice", choice)
        return choice == "auto"
    if not isinstance(choice, dict):
        raise wrong_type("tool_choice", "a string or an object", choice)
    kind = require_string(choice, "type", "tool_choice")
    if kind != "function":
        raise unsupported("tool_choice.type", kind)
    raise _named_choice(choice, shape, names)


def _named_choice(
    choice: dict[str, Any], shape: ToolShape, names: frozenset[str]
) -> InvalidRequestError:
    """Why a choice of one function cannot be honoured."""
    where = "tool_choice" if shape.key is None else f"tool_choice.{shape.key}"
    chosen = choice if shape.key is None else choice.get(shape.key)
    if not isinstance(chosen, dict):
        return missing(where) if chosen is None else wrong_type(where, "an object", chosen)
    name = require_string(chosen, "name", where)
    _check_offered(names)
    if name not in names:
        return _invalid_choice(f"no function named {name} was specified in the 'tools' parameter.")
    return _needs_grammar("tool_choice", name)


def _check_offered(names: frozenset[str]) -> None:
    if not names:
        raise _invalid_choice("'tool_choice' is only allowed when 'tools' are specified.")


def _invalid_choice(why: str) -> InvalidRequestError:
    message = f"Invalid value for 'tool_choice': {why}"
    return InvalidRequestError(message, param="tool_choice", code="invalid_value")


def _needs_grammar(name: str, value: str | None = None) -> InvalidRequestError:
    what = f"'{name}'" if value is None else f"'{name}' with the value '{value}'"
    message = (
        f"Unsupported parameter: {what} needs constrained decoding, which this server does not"
        " have."
    )
    return InvalidRequestError(message, param=name, code="unsupported_parameter")


def _unknown_to_the_template() -> InvalidRequestError:
    message = (
        "Unsupported parameter: 'tools' is not supported by this model: its chat template knows"
        " no tools."
    )
    return InvalidRequestError(message, param="tools", code="unsupported_parameter")
