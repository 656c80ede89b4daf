from __future__ import annotations

import pytest

from batchjobs.endpoints.function_calls import FunctionCall, find_calls
from batchjobs.endpoints.templates import CallSyntax

NAMES = frozenset({"add", "get_weather"})
WEATHER = FunctionCall(name="get_weather", arguments='{"city": "Brno"}')
ADD = FunctionCall(name="add", arguments='{"a": 1, "b": [2, {"c": null}]}')
WRITTEN_ADD = '{"a": 1, "b": [2, {"c": null}]}'


@pytest.mark.parametrize(
    ("syntax", "text", "beside", "calls"),
    [
        pytest.param(
            CallSyntax.HERMES,
            '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Brno"}}\n</tool_call>',
            "",
            [WEATHER],
            id="hermes",
        ),
        pytest.param(
            CallSyntax.HERMES,
            'Let me see.\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Brno"}}\n'
            f'</tool_call>\n<tool_call>\n{{"arguments": {WRITTEN_ADD}, "name": "add"}}\n'
            "</tool_call>\nDone.",
            "Let me see.\n\n\nDone.",
            [WEATHER, ADD],
            id="hermes, two among text",
        ),
        pytest.param(
            CallSyntax.HERMES,
            '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Brno"}}',
            "",
            [WEATHER],
            id="hermes, ended before its end tag",
        ),
        pytest.param(
            CallSyntax.LLAMA,
            '{"name": "get_weather", "parameters": {"city": "Brno"}}',
            "",
            [WEATHER],
            id="llama",
        ),
        pytest.param(
            CallSyntax.LLAMA,
            '<|python_tag|>{"type": "function", "name": "get_weather", "parameters":'
            f' {{"city": "Brno"}}}}; {{"name": "add", "parameters": {WRITTEN_ADD}}}',
            "",
            [WEATHER, ADD],
            id="llama, two behind the python tag",
        ),
        pytest.param(
            CallSyntax.LLAMA,
            'Of course!<|python_tag|>{"name": "get_weather", "arguments": {"city": "Brno"}}',
            "Of course!",
            [WEATHER],
            id="llama, behind text",
        ),
        pytest.param(
            CallSyntax.MISTRAL,
            '[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Brno"}, "id": "a1"},'
            f' {{"name": "add", "arguments": {WRITTEN_ADD}}}]',
            "",
            [WEATHER, ADD],
            id="mistral, an array",
        ),
        pytest.param(
            CallSyntax.MISTRAL,
            f'Hm.[TOOL_CALLS]get_weather[ARGS]{{"city": "Brno"}}[TOOL_CALLS]add{WRITTEN_ADD}',
            "Hm.",
            [WEATHER, ADD],
            id="mistral, by name",
        ),
        pytest.param(
            CallSyntax.MISTRAL,
            '[TOOL_CALLS]get_weather[CALL_ID]a1b2c3d4e[ARGS]{"city": "Brno"}',
            "",
            [WEATHER],
            id="mistral, with an id",
        ),
        pytest.param(
            CallSyntax.JSON,
            '```json\n{"name": "get_weather", "arguments": {"city": "Brno"}}\n```',
            "",
            [WEATHER],
            id="json, fenced",
        ),
        pytest.param(
            CallSyntax.JSON,
            '[{"name": "get_weather", "arguments": "{\\"city\\": \\"Brno\\"}"}]',
            "",
            [WEATHER],
            id="json, an array with arguments as text",
        ),
        pytest.param(
            CallSyntax.JSON,
            '{"tool_calls": [{"type": "function", "function": {"name": "get_weather",'
            ' "arguments": {"city": "Brno"}}}]}',
            "",
            [WEATHER],
            id="json, the public shape",
        ),
        pytest.param(
            CallSyntax.JSON,
            '{"name": "add"}',
            "",
            [FunctionCall(name="add", arguments="{}")],
            id="json, no arguments",
        ),
        pytest.param(
            CallSyntax.JSON,
            '{"name": "add", "arguments": {"a": "žluť"}}',
            "",
            [FunctionCall(name="add", arguments='{"a": "žluť"}')],
            id="json, other letters",
        ),
        pytest.param(
            CallSyntax.JSON,
            '{"name": "add", "arguments": {"a": "\\ud800"}}',
            "",
            [FunctionCall(name="add", arguments='{"a": "\\ud800"}')],
            id="json, half a character",
        ),
    ],
)
def test_calls_are_found(
    syntax: CallSyntax, text: str, beside: str, calls: list[FunctionCall]
) -> None:
    found = find_calls(text, syntax, NAMES)
    assert found is not None
    assert (found.text, list(found.calls)) == (beside, calls)


@pytest.mark.parametrize(
    ("syntax", "text"),
    [
        (CallSyntax.HERMES, "It is sunny."),
        (CallSyntax.HERMES, ""),
        (CallSyntax.HERMES, '{"name": "add", "arguments": {}}'),
        (CallSyntax.HERMES, '<tool_call>\n{"name": "add", "arguments": {"a": 1}'),
        (CallSyntax.HERMES, "<tool_call>\nadd(1, 2)\n</tool_call>"),
        (CallSyntax.HERMES, '<tool_call>{"name": "rm", "arguments": {}}</tool_call>'),
        (CallSyntax.HERMES, '<tool_call>{"name": ["add"], "arguments": {}}</tool_call>'),
        (CallSyntax.HERMES, '<tool_call>{"name": "add", "arguments": [1]}</tool_call>'),
        (CallSyntax.HERMES, '<tool_call>{"name": "add", "arguments": {"a": NaN}}</tool_call>'),
        (
            CallSyntax.HERMES,
            '<tool_call>{"name": "add", "arguments": {}}</tool_call><tool_call>{</tool_call>',
        ),
        (CallSyntax.HERMES, "<tool_call>" + "[" * 100_000 + "</tool_call>"),
        (CallSyntax.LLAMA, 'Use {"name": "add", "parameters": {}}'),
        (CallSyntax.LLAMA, '{"name": "add", "parameters": {}} is how.'),
        (CallSyntax.LLAMA, '<|python_tag|>brave_search.call(query="Brno")'),
        (CallSyntax.LLAMA, '{"answer": 4}'),
        (CallSyntax.MISTRAL, '[{"name": "add", "arguments": {}}]'),
        (CallSyntax.MISTRAL, "[TOOL_CALLS]"),
        (CallSyntax.MISTRAL, "[TOOL_CALLS]add"),
        (CallSyntax.MISTRAL, '[TOOL_CALLS]add[ARGS]{"a": '),
        (CallSyntax.MISTRAL, '[TOOL_CALLS][{"name": "add", "arguments": {}}'),
        (CallSyntax.JSON, "4"),
        (CallSyntax.JSON, "[]"),
        (CallSyntax.JSON, '{"tool_calls": []}'),
        (CallSyntax.JSON, '```json\n{"answer": 4}\n```'),
    ],
)
def test_what_is_no_whole_call_is_text(syntax: CallSyntax, text: str) -> None:
    assert find_calls(text, syntax, NAMES) is None
