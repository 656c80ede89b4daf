"""A model's turn, by the family of its template: what is asked of it, and what it wrote."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from batchjobs.endpoints.chat_completions import ChatCompletions
from batchjobs.endpoints.chats import ChatSettings, read_turn
from batchjobs.endpoints.drafts import prepare_alone
from batchjobs.endpoints.templates import template_of
from batchjobs.errors import InvalidRequestError
from executor.request import Choice, FinishReason
from tests.support import chat_templates
from tests.support.endpoint import LINE, MODEL, choice, completion
from tests.support.tokenizer import ByteTokenizer

CHAT = ChatCompletions()
HI = {"role": "user", "content": "Hi"}
TOOLS = [{"type": "function", "function": {"name": name}} for name in ("add", "sub")]
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
HERMES = ByteTokenizer(chat_templates.HERMES, variables=["tools"])
QWEN3 = ByteTokenizer(chat_templates.QWEN3, variables=["tools", "enable_thinking"])
DEEPSEEK = ByteTokenizer(chat_templates.DEEPSEEK, opening="<think>\n")
MISTRAL = ByteTokenizer(chat_templates.MISTRAL, variables=["tools"])


def answer(tokenizer: ByteTokenizer, *choices: Choice, **parameters: Any) -> dict[str, Any]:
    body = {"model": "gpt-4o-mini", "messages": [HI], **parameters}
    model = replace(MODEL, tokenizer=tokenizer, max_model_len=1000)
    prepare_alone(CHAT, body, LINE, model)
    return CHAT.respond(body, LINE, model, [completion(*choices)])


def prepare(tokenizer: ByteTokenizer, **parameters: Any) -> None:
    body = {"model": "gpt-4o-mini", "messages": [HI], **parameters}
    prepare_alone(CHAT, body, LINE, replace(MODEL, tokenizer=tokenizer))


def test_a_call_is_the_message_and_the_reason_to_finish() -> None:
    (found,) = answer(HERMES, choice(CALL.encode()), tools=TOOLS)["choices"]
    assert found["finish_reason"] == "tool_calls"
    assert found["message"] == {
        "role": "assistant",
        "content": None,
        "refusal": None,
        "tool_calls": [
            {
                "id": "call_9372393216015f7b534bfaa1",
                "type": "function",
                "function": {"name": "add", "arguments": '{"a": 1}'},
            }
        ],
    }


def test_every_call_has_an_id_of_its_own_which_is_the_lines() -> None:
    two = choice((CALL + CALL).encode())
    first = answer(HERMES, two, replace(two, index=1), tools=TOOLS)
    again = answer(HERMES, two, replace(two, index=1), tools=TOOLS)
    calls = [call for each in first["choices"] for call in each["message"]["tool_calls"]]
    assert len({call["id"] for call in calls}) == 4
    assert first == again


def test_one_call_at_a_time_is_the_first() -> None:
    second = CALL.replace("add", "sub")
    both = choice((CALL + second).encode())
    for parallel, names in ((True, ["add", "sub"]), (False, ["add"])):
        found = answer(HERMES, both, tools=TOOLS, parallel_tool_calls=parallel)
        calls = found["choices"][0]["message"]["tool_calls"]
        assert [call["function"]["name"] for call in calls] == names


def test_text_beside_a_call_is_the_content() -> None:
    (found,) = answer(HERMES, choice(f"Let me see.\n{CALL}".encode()), tools=TOOLS)["choices"]
    assert found["message"]["content"] == "Let me see."


@pytest.mark.parametrize(
    ("text", "parameters"),
    [
        (CALL, {}),
        (CALL, {"tools": TOOLS, "tool_choice": "none"}),
        (CALL.replace("add", "rm"), {"tools": TOOLS}),
        (CALL.replace("1}}", "1"), {"tools": TOOLS}),
        ("  Four.\n", {"tools": TOOLS}),
    ],
)
def test_what_calls_nothing_is_content_as_it_is(text: str, parameters: dict[str, Any]) -> None:
    (found,) = answer(HERMES, choice(text.encode()), **parameters)["choices"]
    assert found["finish_reason"] == "stop"
    assert found["message"] == {"role": "assistant", "content": text, "refusal": None}


def test_a_call_that_ran_into_the_limit_says_so() -> None:
    cut = choice(CALL.encode(), finish_reason=FinishReason.LENGTH)
    (found,) = answer(HERMES, cut, tools=TOOLS)["choices"]
    assert found["finish_reason"] == "length"
    assert found["message"]["tool_calls"]


def test_a_call_that_opens_with_a_special_token_is_found() -> None:
    written = choice(b'[TOOL_CALLS]add[ARGS]{"a": 1}')
    hidden = replace(written, text='add{"a": 1}')  # as decoded without special tokens
    (found,) = answer(MISTRAL, hidden, tools=TOOLS)["choices"]
    (call,) = found["message"]["tool_calls"]
    assert call["function"] == {"name": "add", "arguments": '{"a": 1}'}
    assert len(call["id"]) == 9
    assert call["id"].isalnum()


def test_a_character_that_is_cut_behind_hidden_tokens_is_left_out() -> None:
    written = choice("So.</think>No é".encode()[:-1], finish_reason=FinishReason.LENGTH)
    (found,) = answer(DEEPSEEK, replace(written, text="So.No "))["choices"]
    assert found["message"]["content"] == "No "


def test_special_tokens_that_call_nothing_stay_hidden() -> None:
    hidden = replace(choice(b"[TOOL_CALLS]Hm."), text="Hm.")
    (found,) = answer(MISTRAL, hidden, tools=TOOLS)["choices"]
    assert found["message"]["content"] == "Hm."


def test_ids_of_calls_are_such_as_the_template_takes() -> None:
    function = {"name": "add", "arguments": "{}"}
    called = [
        {"id": call_id, "type": "function", "function": function}
        for call_id in ("call_of_another_server", "a1b2c3d4e")
    ]
    results = [{"role": "tool", "content": "1", "tool_call_id": each["id"]} for each in called]
    prepare(MISTRAL, messages=[HI, {"role": "assistant", "tool_calls": called}, *results])
    _, calls, first, second = MISTRAL.rendered["messages"]
    assert [each["id"] for each in calls["tool_calls"]] == [
        first["tool_call_id"],
        second["tool_call_id"],
    ]
    assert len(first["tool_call_id"]) == 9
    assert second["tool_call_id"] == "a1b2c3d4e"


def test_reasoning_is_beside_the_content_and_counted() -> None:
    body = answer(QWEN3, choice(b"<think>\n2 and 2\n</think>\n\nFour."))
    assert body["choices"][0]["message"] == {
        "role": "assistant",
        "content": "Four.",
        "refusal": None,
        "reasoning_content": "2 and 2",
    }
    assert body["usage"]["completion_tokens_details"]["reasoning_tokens"] == 24


def test_a_call_may_follow_reasoning() -> None:
    text = f'<think>Perhaps {{"name": "sub"}}</think>{CALL}'
    (found,) = answer(QWEN3, choice(text.encode()), tools=TOOLS)["choices"]
    assert found["message"]["reasoning_content"] == 'Perhaps {"name": "sub"}'
    (call,) = found["message"]["tool_calls"]
    assert call["function"]["name"] == "add"


@pytest.mark.parametrize(
    ("tokenizer", "content", "reasoning"),
    [(DEEPSEEK, "", "2 and 2"), (QWEN3, "2 and 2", None), (HERMES, "2 and 2", None)],
)
def test_what_is_cut_within_reasoning_is_no_content(
    tokenizer: ByteTokenizer, content: str, reasoning: str | None
) -> None:
    cut = choice(b"2 and 2", finish_reason=FinishReason.LENGTH)
    (found,) = answer(tokenizer, cut)["choices"]
    assert found["message"]["content"] == content
    assert found["message"].get("reasoning_content") == reasoning


def test_a_prompt_that_opens_no_turn_opens_no_reasoning() -> None:
    settings = ChatSettings(template=template_of(DEEPSEEK), add_generation_prompt=False)
    assert read_turn(choice(b"2 and 2"), settings, DEEPSEEK).reasoning is None


def test_the_template_is_given_what_the_line_asks_for() -> None:
    prepare(QWEN3, tools=TOOLS, reasoning_effort="none")
    assert QWEN3.rendered["variables"] == {"enable_thinking": False}
    assert [tool["function"]["name"] for tool in QWEN3.rendered["tools"]] == ["add", "sub"]
    prepare(QWEN3, tools=TOOLS, tool_choice="none")
    assert (QWEN3.rendered["variables"], QWEN3.rendered["tools"]) == ({}, [])


def prompt(**parameters: Any) -> bytes:
    body = {"model": "gpt-4o-mini", "messages": [HI, {"role": "assistant", "content": "Ho"}]}
    (request,) = prepare_alone(CHAT, body | parameters, LINE, MODEL)
    return bytes(token % 256 for token in request.prompt_token_ids)


def test_the_last_message_can_be_continued() -> None:
    assert prompt() == b"user:Hi\0assistant:Ho\0assistant:"
    assert prompt(continue_final_message=True) == b"user:Hi\0assistant:Ho"
    assert prompt(add_generation_prompt=False) == b"user:Hi\0assistant:Ho\0"
    with pytest.raises(InvalidRequestError) as refused:
        prompt(continue_final_message=True, add_generation_prompt=True)
    assert refused.value.code == "invalid_parameter_combination"


def test_messages_that_the_template_makes_nothing_of_are_refused() -> None:
    class Silent(ByteTokenizer):
        def render_chat(self, *messages: Any, **settings: Any) -> str:
            return ""

    with pytest.raises(InvalidRequestError, match="makes nothing of it"):
        prepare(Silent())
