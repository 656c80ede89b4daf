from __future__ import annotations

from typing import Any

import pytest

from batchjobs.endpoints.templates import (
    CallSyntax,
    ChatTemplate,
    read_effort,
    read_variables,
    template_of,
)
from batchjobs.errors import InvalidRequestError
from tests.support import chat_templates
from tests.support.tokenizer import ByteTokenizer


def template(text: str = "", *variables: str) -> ChatTemplate:
    return template_of(ByteTokenizer(text, variables=variables))


def variables(
    found: ChatTemplate, effort: str | None = None, kwargs: object = None
) -> dict[str, Any]:
    body = {"chat_template_kwargs": kwargs}
    return read_variables(body, found, effort=effort, effort_name="reasoning_effort")


@pytest.mark.parametrize(
    ("text", "syntax", "thinks"),
    [
        (chat_templates.HERMES, CallSyntax.HERMES, False),
        (chat_templates.QWEN3, CallSyntax.HERMES, True),
        (chat_templates.LLAMA, CallSyntax.LLAMA, False),
        ("{{ '<|python_tag|>' }}", CallSyntax.LLAMA, False),
        (chat_templates.MISTRAL, CallSyntax.MISTRAL, False),
        (chat_templates.DEEPSEEK, CallSyntax.JSON, True),
        (chat_templates.PLAIN, CallSyntax.JSON, False),
        ("", CallSyntax.JSON, False),
    ],
)
def test_a_family_is_known_by_its_template(text: str, syntax: CallSyntax, thinks: bool) -> None:
    found = template(text)
    assert (found.syntax, found.thinks) == (syntax, thinks)


def test_a_template_knows_tools_if_it_reads_them() -> None:
    assert template("", "tools").knows_tools
    assert not template("no tools here").knows_tools


@pytest.mark.parametrize(
    ("found", "effort", "given"),
    [
        (template(), None, {}),
        (template(), "none", {}),
        (template("<think>", "enable_thinking"), "none", {"enable_thinking": False}),
        (template("<think>", "thinking"), "none", {"thinking": False}),
        (template("", "reasoning_effort"), "high", {"reasoning_effort": "high"}),
        (template("", "reasoning_effort"), "none", {"reasoning_effort": "none"}),
        (
            template("", "reasoning_effort", "enable_thinking"),
            "none",
            {"enable_thinking": False},
        ),
    ],
)
def test_an_effort_is_what_the_template_makes_of_it(
    found: ChatTemplate, effort: str | None, given: dict[str, Any]
) -> None:
    assert variables(found, effort) == given


@pytest.mark.parametrize(
    ("found", "effort"),
    [
        (template(), "high"),
        (template("<think>"), "none"),
        (template("<think>", "enable_thinking"), "low"),
    ],
)
def test_an_effort_that_would_change_nothing_is_refused(found: ChatTemplate, effort: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        variables(found, effort)
    assert (refused.value.param, refused.value.code) == (
        "reasoning_effort",
        "unsupported_parameter",
    )
    assert f"with the value '{effort}'" in refused.value.message


def test_an_effort_that_nobody_knows_is_answered_with_those_there_are() -> None:
    with pytest.raises(InvalidRequestError, match="'xhigh', and 'max'") as refused:
        read_effort({"effort": "much"}, "effort", "reasoning")
    assert (refused.value.param, refused.value.code) == ("reasoning.effort", "invalid_value")


def test_template_arguments_are_given_and_win() -> None:
    found = template("", "enable_thinking", "date")
    given = {"enable_thinking": True, "date": "1 May"}
    assert variables(found, "none", given) == given


@pytest.mark.parametrize(
    ("kwargs", "code", "param"),
    [
        ("x", "invalid_type", "chat_template_kwargs"),
        ({"mood": 1}, "unsupported_parameter", "chat_template_kwargs.mood"),
        ({"messages": []}, "unsupported_parameter", "chat_template_kwargs.messages"),
        ({"tokenize": False}, "unsupported_parameter", "chat_template_kwargs.tokenize"),
    ],
)
def test_template_arguments_that_it_does_not_read_are_refused(
    kwargs: object, code: str, param: str
) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        variables(template("", "tokenize"), kwargs=kwargs)
    assert (refused.value.code, refused.value.param) == (code, param)
