from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from openai.types.responses import Response

from batchjobs.endpoints.base import LineProblem
from batchjobs.endpoints.drafts import prepare_alone
from batchjobs.endpoints.responses import Responses
from batchjobs.errors import InvalidRequestError
from executor.request import Choice, FinishReason, Request, SamplingParams
from tests.support import chat_templates
from tests.support.endpoint import LINE, MODEL, choice, completion
from tests.support.tokenizer import ByteTokenizer

RESPONSES = Responses()
GOOD: dict[str, Any] = {"model": "gpt-4o-mini", "input": "Hi"}
TOOL = {"type": "function", "name": "add", "parameters": {"type": "object", "properties": {}}}
TOKENIZER = ByteTokenizer(chat_templates.QWEN3, variables=["tools", "enable_thinking"])
QWEN3 = replace(MODEL, tokenizer=TOKENIZER, max_model_len=1000)
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'


def prepare(**parameters: Any) -> Request:
    (request,) = prepare_alone(RESPONSES, GOOD | parameters, LINE, QWEN3)
    return request


def rendered(value: object, **parameters: Any) -> list[dict[str, Any]]:
    prepare(input=value, **parameters)
    messages: list[dict[str, Any]] = TOKENIZER.rendered["messages"]
    return messages


def refusal(**parameters: Any) -> InvalidRequestError:
    with pytest.raises(InvalidRequestError) as refused:
        prepare(**parameters)
    return refused.value


def respond(text: str, finish: FinishReason = FinishReason.STOP, **body: Any) -> dict[str, Any]:
    return answered(choice(text.encode(), finish_reason=finish), **body)


def answered(made: Choice, **body: Any) -> dict[str, Any]:
    answer = RESPONSES.respond(
        GOOD | body, LINE, QWEN3, [completion(made, prompt_tokens=9, cached_tokens=4)]
    )
    Response.model_validate(answer)
    return answer


def test_intake_checks_model_input_and_stream() -> None:
    assert RESPONSES.check(GOOD) is None
    assert RESPONSES.check({"model": "m"}) == LineProblem(
        code="invalid_request", message="Input parameter is required.", param="body.input"
    )
    assert RESPONSES.check(GOOD | {"stream": True}) == LineProblem(
        code="streaming_unsupported",
        message="Responses: Streaming is not supported in the Batch API.",
        param="body.stream",
    )


def test_prompts_that_begin_alike_have_openings_that_do() -> None:
    opening = RESPONSES.opening(GOOD | {"instructions": "Be brief.", "tools": [TOOL]})
    assert opening.startswith('[{"type": "function"')
    assert opening.endswith("\0Be brief.\0Hi")


def test_a_text_is_a_user_message_behind_the_instructions() -> None:
    assert rendered("Hi") == [{"role": "user", "content": "Hi"}]
    assert rendered("Hi", instructions="Be brief.") == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
    ]


def test_an_answer_and_its_calls_can_be_sent_back() -> None:
    first = respond(f"<think>sum</think>Let me see.{CALL}{CALL}", tools=[TOOL])
    calls = [item for item in first["output"] if item["type"] == "function_call"]
    results = [
        {"type": "function_call_output", "call_id": call["call_id"], "output": "2"}
        for call in calls
    ]
    messages = rendered([{"role": "user", "content": "1 + 1?"}, *first["output"], *results])
    turn = messages[1]
    assert (turn["role"], turn["content"]) == ("assistant", "Let me see.")
    assert turn["reasoning_content"] == "sum"
    assert [each["function"]["arguments"] for each in turn["tool_calls"]] == [{"a": 1}] * 2
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "tool"]
    assert messages[2]["tool_call_id"] == turn["tool_calls"][0]["id"]


def test_what_later_versions_say_of_calls_is_understood() -> None:
    call = {"type": "function_call", "call_id": "x", "name": "add", "arguments": "{}"}
    direct = {"caller": {"type": "direct"}, "namespace": None}
    result = {"type": "function_call_output", "call_id": "x", "name": "add", "output": "2"}
    messages = rendered([call | direct | {"async": False}, result | direct])
    assert messages[0]["tool_calls"][0]["function"]["name"] == "add"
    assert messages[1] == {"role": "tool", "content": "2", "tool_call_id": "x", "name": "add"}


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ({"caller": {"type": "program", "caller_id": "p"}}, "unsupported_parameter"),
        ({"caller": "direct"}, "invalid_type"),
        ({"namespace": "math"}, "unsupported_parameter"),
        ({"async": True}, "unsupported_parameter"),
    ],
)
def test_calls_that_nobody_here_could_make_are_refused(said: dict[str, Any], code: str) -> None:
    call = {"type": "function_call", "call_id": "x", "name": "add", "arguments": "{}"}
    error = refusal(input=[call | said])
    assert (error.code, error.param) == (code, f"input[0].{next(iter(said))}")


def test_messages_have_text_in_parts_of_either_side() -> None:
    said = [{"type": "output_text", "text": "Ho", "annotations": [], "logprobs": []}]
    items = [
        {"type": "message", "role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
        {
            "type": "message",
            "id": "msg_1",
            "status": "completed",
            "role": "assistant",
            "content": said,
        },
    ]
    assert [(each["role"], each["content"]) for each in rendered(items)] == [
        ("system", "Be brief."),
        ("user", "Hi"),
        ("assistant", "Ho"),
    ]


@pytest.mark.parametrize(
    ("value", "code", "param"),
    [
        (7, "invalid_type", "input"),
        ([], "empty_array", "input"),
        (["Hi"], "invalid_type", "input[0]"),
        ([{"role": "human", "content": "x"}], "invalid_value", "input[0].role"),
        ([{"role": "user"}], "missing_required_parameter", "input[0].content"),
        ([{"role": "user", "content": "x", "mood": 1}], "unknown_parameter", "input[0].mood"),
        ([{"type": "item_reference", "id": "x"}], "unsupported_parameter", "input[0].type"),
        ([{"type": "computer_call_output"}], "unsupported_parameter", "input[0].type"),
        (
            [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}],
            "unsupported_parameter",
            "input[0].content[0].input_image",
        ),
        (
            [{"type": "reasoning", "summary": [], "encrypted_content": "x"}],
            "unsupported_parameter",
            "input[0].encrypted_content",
        ),
        (
            [{"type": "function_call_output", "call_id": "x", "output": "2"}],
            "invalid_value",
            "input[0].call_id",
        ),
        (
            [{"type": "function_call", "call_id": "x", "name": "add"}],
            "missing_required_parameter",
            "input[0].arguments",
        ),
    ],
)
def test_a_wrong_input_is_located(value: object, code: str, param: str) -> None:
    error = refusal(input=value)
    assert (error.code, error.param) == (code, param)


def test_parameters_reach_the_engine() -> None:
    asked = prepare(
        max_output_tokens=20, temperature=0.5, top_p=0.9, seed=7, top_k=5, min_p=0.1, stop="END"
    )
    assert asked.sampling == SamplingParams(
        temperature=0.5, top_p=0.9, seed=7, top_k=5, min_p=0.1, stop=("END",), max_tokens=20
    )
    default = prepare()
    assert default.sampling == SamplingParams(
        seed=LINE.seed, max_tokens=1000 - len(default.prompt_token_ids)
    )


def test_too_long_an_answer_names_both_numbers() -> None:
    error = refusal(max_output_tokens=1000)
    assert (error.code, error.param) == ("context_length_exceeded", "input")
    assert error.message.startswith(
        "This model's maximum context length is 1000 tokens. However, you requested 1018 tokens"
        " (18 in the input, 1000 in the completion)."
    )


LOGPROBS = ["message.output_text.logprobs"]


@pytest.mark.parametrize(
    ("parameters", "alternatives"),
    [({}, None), ({"include": LOGPROBS}, 0), ({"include": LOGPROBS, "top_logprobs": 5}, 5)],
)
def test_logprobs_are_asked_for_in_two_steps(
    parameters: dict[str, Any], alternatives: int | None
) -> None:
    assert prepare(**parameters).sampling.logprobs == alternatives


def test_what_is_off_is_accepted() -> None:
    off = prepare(
        background=False,
        truncation="disabled",
        text={"format": {"type": "text"}, "verbosity": "medium"},
        reasoning={"effort": None, "summary": None},
        include=[],
        tools=[],
        tool_choice="auto",
        previous_response_id=None,
        store=True,
        max_tool_calls=3,
        request_id="x",
        prompt_cache_options={"mode": "explicit"},
    )
    assert off == prepare()


@pytest.mark.parametrize(
    ("parameters", "param"),
    [
        ({"background": True}, "background"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"truncation": "auto"}, "truncation"),
        ({"include": ["reasoning.encrypted_content"]}, "include[0]"),
        ({"text": {"verbosity": "low"}}, "text.verbosity"),
        ({"reasoning": {"summary": "auto"}}, "reasoning.summary"),
        ({"reasoning": {"effort": "high"}}, "reasoning.effort"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [TOOL | {"defer_loading": True}]}, "tools[0].defer_loading"),
        ({"tools": [TOOL | {"async": True}]}, "tools[0].async"),
        ({"prompt_cache_options": {"prewarm": True}}, "prompt_cache_options.prewarm"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(parameters: dict[str, Any], param: str) -> None:
    error = refusal(**parameters)
    assert (error.code, error.param) == ("unsupported_parameter", param)


@pytest.mark.parametrize(
    ("parameters", "code", "param"),
    [
        ({"include": "all"}, "invalid_type", "include"),
        ({"include": [1]}, "invalid_type", "include[0]"),
        ({"top_logprobs": 3}, "invalid_value", "top_logprobs"),
        ({"text": "x"}, "invalid_type", "text"),
        ({"text": {"format": "x"}}, "invalid_type", "text.format"),
        ({"text": {"format": {"type": "xml"}}}, "invalid_value", "text.format.type"),
        (
            {"text": {"format": {"type": "json_schema"}}},
            "missing_required_parameter",
            "text.format.name",
        ),
        (
            {"text": {"format": {"type": "json_object"}}, "guided_regex": "a"},
            "invalid_parameter_combination",
            "text.format",
        ),
        ({"text": {"mood": "x"}}, "unknown_parameter", "text.mood"),
        ({"reasoning": "high"}, "invalid_type", "reasoning"),
        ({"instructions": 1}, "invalid_type", "instructions"),
        ({"prompt_cache_options": 1}, "invalid_type", "prompt_cache_options"),
        ({"max_tokens": 5}, "unknown_parameter", "max_tokens"),
        ({"n": 2}, "unknown_parameter", "n"),
    ],
)
def test_wrong_parameters_are_refused_by_name(
    parameters: dict[str, Any], code: str, param: str
) -> None:
    error = refusal(**parameters)
    assert (error.code, error.param) == (code, param)


def test_ignored_parameters_do_not_act() -> None:
    body = GOOD | {"n": 2, "max_tokens": 5, "logprobs": True}
    (request,) = prepare_alone(RESPONSES, body, LINE, replace(QWEN3, ignore_unknown=True))
    assert request == prepare()


def test_an_answer_is_a_message_item() -> None:
    body = respond("Ho", temperature=0.5, metadata={"a": "b"})
    assert (body["id"], body["status"]) == (f"resp_{LINE.id}", "completed")
    (item,) = body["output"]
    assert (item["type"], item["role"], item["status"]) == ("message", "assistant", "completed")
    assert item["content"] == [
        {"type": "output_text", "text": "Ho", "annotations": [], "logprobs": []}
    ]
    assert body["usage"] == {
        "input_tokens": 9,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 3,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 12,
    }
    assert (body["temperature"], body["top_p"]) == (0.5, 1.0)
    assert body["metadata"] == {"a": "b"}


def test_an_answer_that_is_cut_is_incomplete() -> None:
    body = respond("Ho", FinishReason.LENGTH)
    assert body["status"] == "incomplete"
    assert body["incomplete_details"] == {"reason": "max_output_tokens"}
    assert body["output"][0]["status"] == "incomplete"


def test_reasoning_and_calls_are_items_of_their_own() -> None:
    body = respond(f"<think>2 and 2</think>{CALL}", tools=[TOOL])
    reasoning, call = body["output"]
    assert reasoning["content"] == [{"type": "reasoning_text", "text": "2 and 2"}]
    assert (call["type"], call["name"], call["arguments"]) == ("function_call", "add", '{"a": 1}')
    assert call["call_id"].startswith("call_")
    assert body["usage"]["output_tokens_details"]["reasoning_tokens"] == 22
    assert len({reasoning["id"], call["id"], call["call_id"]}) == 3


def test_logprobs_have_bytes_and_alternatives() -> None:
    body = answered(choice(b"ab", alternatives=1), include=LOGPROBS, top_logprobs=1)
    first, second = body["output"][0]["content"][0]["logprobs"]
    assert (first["token"], first["bytes"], second["token"]) == ("a", [97], "b")
    assert [each["token"] for each in first["top_logprobs"]] == ["a"]
