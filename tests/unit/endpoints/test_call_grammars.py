"""What answers a request lets the model give: read as text, one token a byte."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from batchjobs.endpoints import ENDPOINTS
from batchjobs.endpoints.drafts import prepare_alone
from executor.fake import ByteTokenizer as VocabularyOfBytes
from executor.llguidance_grammar import LLGuidance
from executor.request import Grammar
from tests.support import chat_templates
from tests.support.endpoint import LINE, MODEL
from tests.support.tokenizer import NAMES, ByteTokenizer

LIBRARY = LLGuidance(VocabularyOfBytes())
CHATS = ENDPOINTS["/v1/chat/completions"]

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
SHAPE = {"type": "json_schema", "json_schema": {"name": "city", "schema": CITY}}


def tool(name: str, **definition: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": CITY, **definition}}


def named(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


TOOLS = [tool("sun"), tool("rain")]
STRICT = [tool("sun", strict=True), tool("rain")]


def grammar_of(template: str, *, opening: str = "", **body: Any) -> Grammar | None:
    tokenizer = ByteTokenizer(template, variables=["tools"], opening=opening)
    model = replace(MODEL, tokenizer=tokenizer, max_model_len=10_000)
    messages = [{"role": "user", "content": "Hi"}]
    [request] = prepare_alone(CHATS, {"model": "m", "messages": messages, **body}, LINE, model)
    return request.sampling.grammar


def accepts(grammar: Grammar | None, text: str, *, marks: dict[str, int] | None = None) -> bool:
    assert grammar is not None
    matcher = LIBRARY.compile(grammar).matcher()
    data = list(text.encode())
    for mark, token in (marks or {}).items():
        at = text.index(mark)
        data[at : at + len(mark)] = [token]
    return all(matcher.accept(token) for token in data) and matcher.inner.is_accepting()


def hermes(name: str, arguments: str = '{"city": "x"}') -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


def llama(name: str, arguments: str = '{"city": "x"}') -> str:
    return f'{{"name": "{name}", "parameters": {arguments}}}'


def plain(name: str, arguments: str = '{"city": "x"}') -> str:
    return f'{{"name": "{name}", "arguments": {arguments}}}'


def mistral(*calls: str) -> str:
    return f"[TOOL_CALLS][{', '.join(calls)}]"


FAMILIES = {
    "hermes": (chat_templates.HERMES, hermes("sun"), hermes("sun") + "\n" + hermes("rain")),
    "llama": (chat_templates.LLAMA, llama("sun"), llama("sun") + "; " + llama("rain")),
    "mistral": (
        chat_templates.MISTRAL,
        mistral(plain("sun")),
        mistral(plain("sun"), plain("rain")),
    ),
    "named": (
        chat_templates.MISTRAL + "[ARGS]",
        '[TOOL_CALLS]sun[ARGS]{"city": "x"}',
        '[TOOL_CALLS]sun[ARGS]{"city": "x"}[TOOL_CALLS]rain[ARGS]{"city": "x"}',
    ),
    "json": (chat_templates.PLAIN, plain("sun"), f"[{plain('sun')}, {plain('rain')}]"),
}
families = pytest.mark.parametrize(
    ("template", "one", "two"),
    [pytest.param(*family, id=name) for name, family in FAMILIES.items()],
)


@families
def test_a_demanded_call_is_in_the_familys_syntax(template: str, one: str, two: str) -> None:
    grammar = grammar_of(template, tools=TOOLS, tool_choice="required")
    assert accepts(grammar, one)
    assert accepts(grammar, two)
    assert not accepts(grammar, "Hello")
    assert not accepts(grammar, one.replace("sun", "snow"))
    assert not accepts(grammar, one.replace("city", "town"))
    assert not accepts(grammar, "Let me see. " + one)


@families
def test_one_call_at_a_time_is_one_call(template: str, one: str, two: str) -> None:
    grammar = grammar_of(template, tools=TOOLS, tool_choice="required", parallel_tool_calls=False)
    assert accepts(grammar, one)
    assert not accepts(grammar, two)


@families
def test_a_named_function_is_called_once(template: str, one: str, two: str) -> None:
    grammar = grammar_of(template, tools=TOOLS, tool_choice=named("sun"))
    assert accepts(grammar, one)
    assert not accepts(grammar, two)
    assert not accepts(grammar, one.replace("sun", "rain"))


@families
def test_an_answer_calls_or_is_of_its_shape(template: str, one: str, two: str) -> None:
    grammar = grammar_of(template, tools=TOOLS, response_format=SHAPE)
    assert accepts(grammar, '{"city": "x"}')
    assert accepts(grammar, one)
    assert accepts(grammar, two)
    assert not accepts(grammar, "Hello")


@families
def test_a_strict_function_is_called_by_its_schema_or_not(
    template: str, one: str, two: str
) -> None:
    grammar = grammar_of(template, tools=STRICT)
    assert accepts(grammar, "Hello, it is <b>fine</b>.")
    assert accepts(grammar, "")
    assert accepts(grammar, one)
    assert accepts(grammar, two)
    assert not accepts(grammar, one.replace("city", "town"))


def test_text_may_stand_before_marked_calls() -> None:
    grammar = grammar_of(chat_templates.HERMES, tools=STRICT)
    assert accepts(grammar, "Let me see.\n" + hermes("sun") + " And then " + hermes("rain"))
    assert not accepts(grammar, "Let me see.\n" + hermes("snow"))
    alone = grammar_of(chat_templates.HERMES, tools=STRICT, parallel_tool_calls=False)
    assert accepts(alone, "Let me see.\n" + hermes("sun"))
    assert not accepts(alone, hermes("sun") + hermes("rain"))


@families
def test_calls_are_free_where_nothing_is_asked(template: str, one: str, two: str) -> None:
    assert grammar_of(template, tools=TOOLS) is None
    assert grammar_of(template, tools=TOOLS, parallel_tool_calls=False) is None


def test_what_would_be_read_as_a_call_is_no_text() -> None:
    fenced = "```json\n" + plain("sun") + "\n```"
    bare = grammar_of(chat_templates.PLAIN, tools=STRICT)
    assert not accepts(bare, fenced)
    assert accepts(bare, fenced + " is how.")
    assert not accepts(bare, " " + plain("sun").replace("city", "town"))
    tagged = grammar_of(chat_templates.LLAMA, tools=STRICT)
    assert not accepts(tagged, "<|python_tag|>" + llama("sun").replace("city", "town"))


def test_a_function_without_parameters_is_called_with_none() -> None:
    tools = [{"type": "function", "function": {"name": "now"}}]
    grammar = grammar_of(chat_templates.HERMES, tools=tools, tool_choice="required")
    assert accepts(grammar, hermes("now", "{}"))
    assert not accepts(grammar, hermes("now", '{"a": 1}'))


def test_allowed_functions_alone_are_called() -> None:
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [named("sun")]}}
    grammar = grammar_of(chat_templates.HERMES, tools=TOOLS, tool_choice=allowed)
    assert accepts(grammar, "Hello")
    assert accepts(grammar, hermes("sun"))
    assert not accepts(grammar, hermes("rain"))


def test_schemas_with_references_are_kept_within_a_call() -> None:
    parameters = {
        "type": "object",
        "properties": {"unit": {"$ref": "#/$defs/unit"}},
        "required": ["unit"],
        "$defs": {"unit": {"enum": ["C", "F"]}},
        "additionalProperties": False,
    }
    tools = [tool("sun", parameters=parameters, strict=True)]
    grammar = grammar_of(chat_templates.HERMES, tools=tools, tool_choice="required")
    assert accepts(grammar, hermes("sun", '{"unit": "C"}'))
    assert not accepts(grammar, hermes("sun", '{"unit": "K"}'))


def test_what_no_grammar_keeps_is_left_out_unless_strict() -> None:
    parameters = {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}}
    loose = grammar_of(
        chat_templates.HERMES, tools=[tool("sun", parameters=parameters)], tool_choice="required"
    )
    assert accepts(loose, hermes("sun", '{"a": [1, 1]}'))


def test_special_tokens_mark_calls_where_the_model_has_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(NAMES, 258, b"[TOOL_CALLS]")
    grammar = grammar_of(chat_templates.MISTRAL, tools=TOOLS, tool_choice="required")
    call = mistral(plain("sun"))
    assert accepts(grammar, call, marks={"[TOOL_CALLS]": 258})
    assert not accepts(grammar, call)
    strict = grammar_of(chat_templates.MISTRAL, tools=STRICT)
    assert accepts(strict, "Hm. " + call, marks={"[TOOL_CALLS]": 258})
    assert not accepts(strict, "Hm. " + call.replace("city", "x"), marks={"[TOOL_CALLS]": 258})


THOUGHT = "<think>\nA city? {x}\n</think>\n\n"


def test_reasoning_comes_before_what_is_asked_for() -> None:
    grammar = grammar_of(chat_templates.QWEN3, response_format=SHAPE)
    assert accepts(grammar, THOUGHT + '{"city": "x"}')
    assert accepts(grammar, '{"city": "x"}')
    assert not accepts(grammar, THOUGHT + "Hello")
    assert not accepts(grammar, "A city? " + '{"city": "x"}')


def test_reasoning_that_the_prompt_has_begun_goes_on() -> None:
    grammar = grammar_of(chat_templates.QWEN3, opening="<think>\n", response_format=SHAPE)
    assert accepts(grammar, THOUGHT.removeprefix("<think>\n") + '{"city": "x"}')
    assert not accepts(grammar, '{"city": "x"}')


def test_reasoning_that_the_prompt_has_ended_is_over() -> None:
    opening = "<think>\n\n</think>\n\n"
    grammar = grammar_of(chat_templates.QWEN3, opening=opening, response_format=SHAPE)
    assert accepts(grammar, '{"city": "x"}')
    assert not accepts(grammar, THOUGHT + '{"city": "x"}')


def test_reasoning_comes_before_any_grammar_of_the_user() -> None:
    grammar = grammar_of(chat_templates.QWEN3, guided_grammar='start: thought\nthought: "a"+')
    assert accepts(grammar, THOUGHT + "aaa")
