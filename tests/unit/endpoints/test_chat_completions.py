from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from batchjobs.endpoints.base import LineProblem
from batchjobs.endpoints.chat_completions import ChatCompletions
from batchjobs.endpoints.drafts import prepare_alone
from batchjobs.errors import BatchJobsError, InvalidRequestError
from executor.request import Completion, FinishReason, Request, TokenLogprob
from tests.support.endpoint import LINE, MODEL, choice, completion
from tests.support.tokenizer import TURN_END

CHAT = ChatCompletions()
HI = [{"role": "user", "content": "Hi"}]
PROMPT = (*b"user:Hi", TURN_END, *b"assistant:")
GOOD: dict[str, Any] = {"model": "gpt-4o-mini", "messages": HI}


def prepare(**parameters: Any) -> Request:
    (request,) = prepare_alone(CHAT, GOOD | parameters, LINE, MODEL)
    return request


def refusal(**parameters: Any) -> InvalidRequestError:
    with pytest.raises(InvalidRequestError) as refused:
        prepare(**parameters)
    return refused.value


def respond(answer: Completion) -> dict[str, Any]:
    return CHAT.respond(GOOD, LINE, MODEL, [answer])


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({}, None),
        ({"stream": False}, None),
        ({"temperature": "left to the run"}, None),
        ({"model": None}, ("invalid_request", "Model parameter is required.", "body.model")),
        (
            {"model": 4},
            (
                "invalid_type",
                "Invalid type for 'body.model': expected a string, but got an integer instead.",
                "body.model",
            ),
        ),
        (
            {"messages": None},
            ("invalid_request", "Messages parameter is required.", "body.messages"),
        ),
        (
            {"stream": True},
            (
                "streaming_unsupported",
                "Chat Completions: Streaming is not supported in the Batch API.",
                "body.stream",
            ),
        ),
    ],
)
def test_intake_checks_model_messages_and_stream(
    change: dict[str, Any], problem: tuple[str, str, str] | None
) -> None:
    expected = None
    if problem is not None:
        expected = LineProblem(code=problem[0], message=problem[1], param=problem[2])
    assert CHAT.check(GOOD | change) == expected


def test_the_conversation_is_rendered() -> None:
    request = prepare()
    assert (request.id, request.prompt_token_ids) == ("0", PROMPT)


def test_the_answer_may_fill_the_context_by_default() -> None:
    assert prepare().sampling.max_tokens == MODEL.max_model_len - len(PROMPT)


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_the_answers_limit_has_two_names(name: str) -> None:
    assert prepare(**{name: 5}).sampling.max_tokens == 5
    assert refusal(**{name: 0}).param == name


def test_both_names_at_once_are_refused() -> None:
    error = refusal(max_tokens=5, max_completion_tokens=5)
    assert (error.param, error.code) == ("max_tokens", "invalid_parameter_combination")


def test_prompt_and_answer_may_fill_the_context_exactly() -> None:
    room = MODEL.max_model_len - len(PROMPT)
    assert prepare(max_tokens=room).sampling.max_tokens == room
    error = refusal(max_tokens=room + 1)
    assert (error.param, error.code) == ("messages", "context_length_exceeded")
    assert error.message == (
        "This model's maximum context length is 100 tokens. However, you requested 101 tokens"
        " (18 in the messages, 83 in the completion)."
        " Please reduce the length of the messages or completion."
    )


@pytest.mark.parametrize("length", [84, 500])
def test_a_conversation_that_leaves_no_room_is_refused(length: int) -> None:
    error = refusal(messages=[{"role": "user", "content": "x" * length}])
    assert (error.param, error.code) == ("messages", "context_length_exceeded")
    assert error.message == (
        "This model's maximum context length is 100 tokens. However, your messages resulted in"
        f" {length + 16} tokens. Please reduce the length of the messages."
    )


def test_a_template_that_refuses_is_quoted() -> None:
    error = refusal(messages=[*HI, {"role": "system", "content": "late"}])
    assert error.message == "Invalid 'messages': a system message must come first"
    assert error.param == "messages"


@pytest.mark.parametrize(
    ("parameters", "alternatives"),
    [
        ({}, None),
        ({"logprobs": False}, None),
        ({"logprobs": False, "top_logprobs": 0}, None),
        ({"logprobs": True}, 0),
        ({"logprobs": True, "top_logprobs": 20}, 20),
    ],
)
def test_logprobs_are_asked_for_in_two_steps(
    parameters: dict[str, Any], alternatives: int | None
) -> None:
    assert prepare(**parameters).sampling.logprobs == alternatives


@pytest.mark.parametrize(
    ("parameters", "param"),
    [
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"logprobs": 3}, "logprobs"),
    ],
)
def test_wrong_logprobs_are_refused(parameters: dict[str, Any], param: str) -> None:
    assert refusal(**parameters).param == param


def test_what_is_off_is_accepted() -> None:
    off = prepare(
        tools=[],
        tool_choice="auto",
        parallel_tool_calls=True,
        response_format={"type": "text"},
        modalities=["text"],
        functions=None,
        audio=None,
    )
    assert off == prepare()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tools", [{"type": "function", "function": {"name": "add"}}]),
        ("functions", [{"name": "add"}]),
        ("modalities", ["text", "audio"]),
        ("reasoning_effort", "high"),
        ("web_search_options", {}),
    ],
)
def test_what_needs_more_than_text_is_refused(name: str, value: object) -> None:
    error = refusal(**{name: value})
    assert (error.param, error.code) == (name, "unsupported_parameter")


def test_a_completions_parameter_is_unknown_here() -> None:
    assert refusal(best_of=2).code == "unknown_parameter"


def test_choices_are_messages_in_order() -> None:
    body = respond(
        completion(choice(b"Ho"), choice(b"Hey", index=1, finish_reason=FinishReason.LENGTH))
    )
    assert body["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Ho", "refusal": None},
            "logprobs": None,
            "finish_reason": "stop",
        },
        {
            "index": 1,
            "message": {"role": "assistant", "content": "Hey", "refusal": None},
            "logprobs": None,
            "finish_reason": "length",
        },
    ]


def test_usage_counts_the_prompt_once_and_every_choice() -> None:
    usage = respond(completion(choice(b"Ho"), choice(b"Hey", index=1), prompt_tokens=9))["usage"]
    assert usage["prompt_tokens"] == 9
    assert usage["completion_tokens"] == 7
    assert usage["total_tokens"] == 16


def test_usage_of_a_line_does_not_tell_what_its_company_spared_it() -> None:
    usage = respond(completion(choice(b"Ho"), prompt_tokens=9, cached_tokens=4))["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == 0


def test_a_request_out_of_time_is_an_error_that_a_strict_client_can_read() -> None:
    late = replace(choice(b"Ho"), finish_reason=FinishReason.TIMEOUT)
    with pytest.raises(BatchJobsError, match="ran for longer than") as failed:
        respond(completion(late))
    assert (failed.value.code, failed.value.status_code) == ("request_timeout", 500)


def test_logprobs_have_bytes_and_alternatives() -> None:
    answer = choice("é".encode(), alternatives=2)
    (first, second) = respond(completion(answer))["choices"][0]["logprobs"]["content"]
    half, quarter = -0.6931, -1.3863
    assert first == {
        "token": "\\xc3",
        "logprob": half,
        "bytes": [0xC3],
        "top_logprobs": [
            {"token": "\\xc3", "logprob": half, "bytes": [0xC3]},
            {"token": "\\xc4", "logprob": quarter, "bytes": [0xC4]},
        ],
    }
    assert second["bytes"] == [0xA9]


def test_asking_for_no_alternatives_gives_an_empty_list() -> None:
    logprobs = respond(completion(choice(b"a", alternatives=0)))["choices"][0]["logprobs"]
    assert logprobs["refusal"] is None
    assert logprobs["content"][0]["top_logprobs"] == []


def test_an_impossible_token_has_a_finite_logprob() -> None:
    answer = replace(choice(b"a"), logprobs=(TokenLogprob(token_id=97, logprob=-math.inf, top=()),))
    content = respond(completion(answer))["choices"][0]["logprobs"]["content"]
    assert content[0]["logprob"] == -9999.0


def test_an_error_of_the_engine_fails_the_line() -> None:
    failed = Completion(request_id="0", prompt_tokens=7, error="The prompt does not fit.")
    with pytest.raises(InvalidRequestError, match="The prompt does not fit"):
        respond(failed)
