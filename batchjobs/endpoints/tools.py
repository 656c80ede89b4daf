"""The functions that a request offers the model, and whether it may call them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from batchjobs.endpoints.base import Body
from batchjobs.endpoints.fields import (
    check_keys,
    invalid_value,
    missing,
    read_boolean,
    read_string,
    require_string,
    unsupported,
    wrong_type,
)
from batchjobs.endpoints.templates import ChatTemplate
from batchjobs.endpoints.tool_choice import ToolShape, read_choice
from batchjobs.errors import InvalidRequestError

_NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """One that may be called. `where` is the body's word for its parameters, a JSON schema."""

    name: str
    parameters: dict[str, Any]
    where: str
    strict: bool = False

    def fault(self, reason: str) -> InvalidRequestError:
        """The public API's error for parameters that no call can be kept to."""
        message = f"Invalid schema for function '{self.name}': {reason}."
        return InvalidRequestError(message, param=self.where, code="invalid_function_parameters")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUse:
    """`definitions` are what the template is given, none where the model may not call.

    Of these `functions` may be called. `must_call` leaves no choice but to, `named` being the
    case that it is one function once. `parallel` lets an answer call more than once.
    """

    definitions: tuple[dict[str, Any], ...] = ()
    functions: tuple[Function, ...] = ()
    parallel: bool = True
    must_call: bool = False
    named: bool = False

    @property
    def names(self) -> frozenset[str]:
        return frozenset(function.name for function in self.functions)

    @property
    def is_constrained(self) -> bool:
        """Whether a call, if there is one, must be as the request says."""
        is_choice = len(self.functions) < len(self.definitions)
        return self.must_call or is_choice or any(one.strict for one in self.functions)


def read_tools(
    body: Body, shape: ToolShape, template: ChatTemplate, *, ignore_unknown: bool
) -> ToolUse:
    """`tools`, `tool_choice` and `parallel_tool_calls` of the body.

    Raises:
        InvalidRequestError: a tool is malformed or no function; the choice names none of them;
            the model's template knows no tools.
    """
    tools = _read_definitions(body.get("tools"), shape, ignore_unknown=ignore_unknown)
    choice = read_choice(
        body.get("tool_choice"),
        shape,
        frozenset(f.name for _, f in tools),
        ignore_unknown=ignore_unknown,
    )
    parallel = body.get("parallel_tool_calls") is None or read_boolean(body, "parallel_tool_calls")
    if not tools or not choice.may_call:
        return ToolUse()
    if not template.knows_tools:
        raise _unknown_to_the_template()
    return ToolUse(
        definitions=tuple({"type": "function", "function": one} for one, _ in tools),
        functions=tuple(
            function
            for _, function in tools
            if choice.names is None or function.name in choice.names
        ),
        parallel=parallel and not choice.named,
        must_call=choice.must_call,
        named=choice.named,
    )


def _read_definitions(
    tools: object, shape: ToolShape, *, ignore_unknown: bool
) -> list[tuple[dict[str, Any], Function]]:
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
) -> tuple[dict[str, Any], Function]:
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
) -> tuple[dict[str, Any], Function]:
    """What the template is given of a function, and what a call of it must be."""
    known = extras | {"name", "description", "parameters", "strict"}
    check_keys(where, definition, known, ignore_unknown=ignore_unknown)
    name = require_string(definition, "name", where)
    if not name:
        raise invalid_value(f"{where}.name", "a function needs a name.")
    parameters = definition.get("parameters")
    if parameters is not None and not isinstance(parameters, dict):
        raise wrong_type(f"{where}.parameters", "an object", parameters)
    strict = definition.get("strict")
    if strict is not None and not isinstance(strict, bool):
        raise wrong_type(f"{where}.strict", "a boolean", strict)
    shown: dict[str, Any] = {
        "name": name,
        "description": read_string(definition, "description", where) or "",
        "parameters": parameters or _NO_PARAMETERS,
    }
    function = Function(
        name=name,
        parameters=parameters or _NO_PARAMETERS | {"additionalProperties": False},
        where=f"{where}.parameters",
        strict=bool(strict),
    )
    return shown, function


def _unknown_to_the_template() -> InvalidRequestError:
    message = (
        "Unsupported parameter: 'tools' is not supported by this model: its chat template knows"
        " no tools."
    )
    return InvalidRequestError(message, param="tools", code="unsupported_parameter")
