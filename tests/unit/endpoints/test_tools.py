from __future__ import annotations

from typing import Any

import pytest

from batchjobs.endpoints.templates import template_of
from batchjobs.endpoints.tool_choice import ToolShape
from batchjobs.endpoints.tools import Function, ToolUse, read_tools
from batchjobs.errors import InvalidRequestError
from tests.support.tokenizer import ByteTokenizer

CHAT = ToolShape(key="function")
FLAT = ToolShape(key=None, extras=frozenset({"output_schema"}))
KNOWS = template_of(ByteTokenizer("", variables=["tools"]))
KNOWS_NOT = template_of(ByteTokenizer(""))
PARAMETERS = {"type": "object", "properties": {"a": {"type": "integer"}}}
ADD: dict[str, Any] = {"name": "add", "description": "Adds.", "parameters": PARAMETERS}
TOOL = {"type": "function", "function": ADD}


def read(shape: ToolShape = CHAT, *, lenient: bool = False, **body: Any) -> ToolUse:
    return read_tools(body, shape, KNOWS, ignore_unknown=lenient)


def refusal(shape: ToolShape = CHAT, **body: Any) -> InvalidRequestError:
    with pytest.raises(InvalidRequestError) as refused:
        read(shape, **body)
    return refused.value


@pytest.mark.parametrize("choice", [None, "auto"])
def test_functions_are_for_the_template(choice: str | None) -> None:
    use = read(tools=[TOOL], tool_choice=choice)
    where = "tools[0].function.parameters"
    function = Function(name="add", parameters=PARAMETERS, where=where)
    assert use == ToolUse(definitions=(TOOL,), functions=(function,))
    assert not use.is_constrained


def test_both_ways_to_write_a_function_are_one_to_the_template() -> None:
    flat = {"type": "function", **ADD, "strict": False, "output_schema": {}}
    assert read(FLAT, tools=[flat]).definitions == read(tools=[TOOL]).definitions


def test_a_function_needs_no_more_than_a_name() -> None:
    [tool] = read(tools=[{"type": "function", "function": {"name": "now"}}]).definitions
    empty = {"type": "object", "properties": {}}
    assert tool["function"] == {"name": "now", "description": "", "parameters": empty}


@pytest.mark.parametrize(
    "body", [{}, {"tools": []}, {"tools": None}, {"tools": [TOOL], "tool_choice": "none"}]
)
def test_without_leave_to_call_there_are_no_tools(body: dict[str, Any]) -> None:
    assert read(**body) == ToolUse()
    assert read_tools(body, CHAT, KNOWS_NOT, ignore_unknown=False) == ToolUse()


def test_one_call_at_a_time_can_be_asked_for() -> None:
    assert not read(tools=[TOOL], parallel_tool_calls=False).parallel
    assert read(tools=[TOOL], parallel_tool_calls=True).parallel


def test_tools_are_refused_where_the_template_knows_none() -> None:
    with pytest.raises(InvalidRequestError, match="its chat template knows no tools") as refused:
        read_tools({"tools": [TOOL]}, CHAT, KNOWS_NOT, ignore_unknown=False)
    assert (refused.value.param, refused.value.code) == ("tools", "unsupported_parameter")


@pytest.mark.parametrize(
    ("tools", "code", "param"),
    [
        ({}, "invalid_type", "tools"),
        (["add"], "invalid_type", "tools[0]"),
        ([{}], "missing_required_parameter", "tools[0].type"),
        ([{"type": "custom", "custom": {}}], "unsupported_parameter", "tools[0].type"),
        ([{"type": "function"}], "missing_required_parameter", "tools[0].function"),
        ([{"type": "function", "function": 1}], "invalid_type", "tools[0].function"),
        ([TOOL | {"mood": 1}], "unknown_parameter", "tools[0].mood"),
        (
            [TOOL, {"type": "function", "function": {}}],
            "missing_required_parameter",
            "tools[1].function.name",
        ),
        (
            [{"type": "function", "function": {"name": ""}}],
            "invalid_value",
            "tools[0].function.name",
        ),
        (
            [{"type": "function", "function": ADD | {"mood": 1}}],
            "unknown_parameter",
            "tools[0].function.mood",
        ),
        (
            [{"type": "function", "function": ADD | {"parameters": 1}}],
            "invalid_type",
            "tools[0].function.parameters",
        ),
        (
            [{"type": "function", "function": ADD | {"strict": 1}}],
            "invalid_type",
            "tools[0].function.strict",
        ),
    ],
)
def test_a_wrong_tool_is_located(tools: object, code: str, param: str) -> None:
    error = refusal(tools=tools)
    assert (error.code, error.param) == (code, param)


def test_unknown_keys_are_left_out_where_they_are_ignored() -> None:
    tools = [{"type": "function", "mood": 1, "function": ADD | {"mood": 1}}]
    assert read(lenient=True, tools=tools) == read(tools=[TOOL])
    chosen = read(lenient=True, tools=[TOOL], tool_choice=choice("add") | {"mood": 1})
    assert chosen == read(tools=[TOOL], tool_choice=choice("add"))


def choice(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def allowed(mode: str, *names: str) -> dict[str, Any]:
    tools = [choice(name) for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


TWO = [TOOL, {"type": "function", "function": {"name": "sub"}}]


@pytest.mark.parametrize(
    ("tool_choice", "code", "param"),
    [
        (1, "invalid_type", "tool_choice"),
        ("always", "invalid_value", "tool_choice"),
        (choice("sub"), "invalid_value", "tool_choice"),
        ({}, "missing_required_parameter", "tool_choice.type"),
        ({"type": "custom"}, "unsupported_parameter", "tool_choice.type"),
        ({"type": "allowed_tools"}, "missing_required_parameter", "tool_choice.allowed_tools"),
        (allowed("none"), "invalid_value", "tool_choice.allowed_tools.mode"),
        (allowed("auto", "sub"), "invalid_value", "tool_choice"),
        (
            {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [1]}},
            "invalid_type",
            "tool_choice.allowed_tools.tools[0]",
        ),
        (choice("add") | {"mood": 1}, "unknown_parameter", "tool_choice.mood"),
        (
            {"type": "function", "function": {"name": "add", "mood": 1}},
            "unknown_parameter",
            "tool_choice.function.mood",
        ),
        (allowed("auto", "add") | {"mood": 1}, "unknown_parameter", "tool_choice.mood"),
        ({"type": "function"}, "missing_required_parameter", "tool_choice.function"),
        ({"type": "function", "function": 1}, "invalid_type", "tool_choice.function"),
        (
            {"type": "function", "function": {}},
            "missing_required_parameter",
            "tool_choice.function.name",
        ),
    ],
)
def test_a_choice_that_cannot_be_honoured_is_refused(
    tool_choice: object, code: str, param: str
) -> None:
    error = refusal(tools=[TOOL], tool_choice=tool_choice)
    assert (error.code, error.param) == (code, param)


@pytest.mark.parametrize(
    ("tool_choice", "parallel", "named", "names"),
    [
        ("required", True, False, {"add", "sub"}),
        (choice("sub"), False, True, {"sub"}),
        (allowed("required", "sub"), True, False, {"sub"}),
    ],
)
def test_a_demanded_call_is_of_these_functions(
    tool_choice: object, parallel: bool, named: bool, names: set[str]
) -> None:
    use = read(tools=TWO, tool_choice=tool_choice)
    assert (use.must_call, use.parallel, use.named) == (True, parallel, named)
    assert use.names == names
    assert len(use.definitions) == 2  # the model is shown them all


def test_allowed_functions_may_be_called_and_no_others() -> None:
    use = read(tools=TWO, tool_choice=allowed("auto", "add"))
    assert (use.names, use.must_call, use.is_constrained) == ({"add"}, False, True)
    assert read(tools=TWO, tool_choice=allowed("auto")) == ToolUse()


def test_allowed_functions_are_written_flat_in_responses() -> None:
    tool_choice = {
        "type": "allowed_tools",
        "mode": "required",
        "tools": [{"type": "function", "name": "add"}],
    }
    use = read(FLAT, tools=[{"type": "function", **ADD}], tool_choice=tool_choice)
    assert (use.names, use.must_call) == ({"add"}, True)


def test_a_strict_function_keeps_its_calls_to_its_schema() -> None:
    strict = {"type": "function", "function": ADD | {"strict": True}}
    use = read(tools=[strict])
    assert use.is_constrained
    assert [one.strict for one in use.functions] == [True]
    assert "strict" not in use.definitions[0]["function"]


@pytest.mark.parametrize("shape", [CHAT, FLAT])
def test_an_unknown_function_is_named(shape: ToolShape) -> None:
    tool, chosen = (
        (TOOL, choice("sub"))
        if shape is CHAT
        else (
            {"type": "function", **ADD},
            {"type": "function", "name": "sub"},
        )
    )
    assert refusal(shape, tools=[tool], tool_choice=chosen).message == (
        "Invalid value for 'tool_choice': no function named sub was specified in the 'tools'"
        " parameter."
    )


@pytest.mark.parametrize("tool_choice", ["required", choice("add")])
def test_a_demanded_call_needs_tools(tool_choice: object) -> None:
    error = refusal(tool_choice=tool_choice)
    assert error.code == "invalid_value"
    assert error.message == (
        "Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are specified."
    )
