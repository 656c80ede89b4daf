from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from batchjobs.endpoints.base import LineProblem
from batchjobs.endpoints.completions import MAX_PROMPTS, Completions, prompt_seed
from batchjobs.endpoints.drafts import prepare_alone
from batchjobs.errors import InvalidRequestError
from executor.request import Completion, Request, TokenLogprob
from tests.support.endpoint import LINE, MODEL, choice, completion
from tests.support.tokenizer import TURN_END, ByteTokenizer

COMPLETIONS = Completions()
GOOD: dict[str, Any] = {"model": "gpt-4o-mini", "prompt": "Once"}


def prepare(**parameters: Any) -> list[Request]:
    return prepare_alone(COMPLETIONS, GOOD | parameters, LINE, MODEL)


def refusal(**parameters: Any) -> InvalidRequestError:
    with pytest.raises(InvalidRequestError) as refused:
        prepare(**parameters)
    return refused.value


def respond(*answers: Completion) -> dict[str, Any]:
    return COMPLETIONS.respond(GOOD, LINE, MODEL, list(answers))


def logprobs_of(data: bytes, alternatives: int) -> dict[str, Any]:
    answer = completion(choice(data, alternatives=alternatives))
    logprobs: dict[str, Any] = respond(answer)["choices"][0]["logprobs"]
    return logprobs


def test_intake_checks_model_prompt_and_stream() -> None:
    assert COMPLETIONS.check(GOOD) is None
    assert COMPLETIONS.check({"prompt": "Once"}) == LineProblem(
        code="invalid_request", message="Model parameter is required.", param="body.model"
    )
    assert COMPLETIONS.check({"model": "m"}) == LineProblem(
        code="invalid_request", message="Prompt parameter is required.", param="body.prompt"
    )
    assert COMPLETIONS.check(GOOD | {"stream": True}) == LineProblem(
        code="streaming_unsupported",
        message="Completions: Streaming is not supported in the Batch API.",
        param="body.stream",
    )


@pytest.mark.parametrize(
    ("prompt", "token_ids"),
    [
        ("ab", [(97, 98)]),
        (["ab", "c"], [(97, 98), (99,)]),
        ([97, 98], [(97, 98)]),
        ([[97, 98], [99]], [(97, 98), (99,)]),
        (["ab", [99]], [(97, 98), (99,)]),
        ([0, 256], [(0, 256)]),
    ],
)
def test_prompts_come_in_four_forms(prompt: object, token_ids: list[tuple[int, ...]]) -> None:
    requests = prepare(prompt=prompt)
    assert [request.prompt_token_ids for request in requests] == token_ids
    assert [request.id for request in requests] == [str(index) for index in range(len(requests))]


@pytest.mark.parametrize(
    ("prompt", "code", "param"),
    [
        (7, "invalid_type", "prompt"),
        ({}, "invalid_type", "prompt"),
        ("", "invalid_value", "prompt"),
        ([], "empty_array", "prompt"),
        ([[]], "empty_array", "prompt[0]"),
        (["a", ""], "invalid_value", "prompt[1]"),
        (["a", 5], "invalid_type", "prompt[1]"),
        ([5, "a"], "invalid_type", "prompt[1]"),
        ([5, True], "invalid_type", "prompt[1]"),
        ([True], "invalid_type", "prompt[0]"),
        ([5, 257], "invalid_value", "prompt[1]"),
        ([-1], "invalid_value", "prompt[0]"),
        ([[1], [2, 999]], "invalid_value", "prompt[1][1]"),
        (["a"] * (MAX_PROMPTS + 1), "array_above_max_length", "prompt"),
    ],
)
def test_a_wrong_prompt_is_located(prompt: object, code: str, param: str) -> None:
    error = refusal(prompt=prompt)
    assert (error.code, error.param) == (code, param)


def test_a_token_outside_the_vocabulary_is_named() -> None:
    assert refusal(prompt=[257]).message == (
        "Invalid 'prompt[0]': token id 257 is outside the vocabulary of 257."
    )


def test_the_answer_has_sixteen_tokens_by_default() -> None:
    (request,) = prepare()
    assert request.sampling.max_tokens == 16


@pytest.mark.parametrize("parameters", [{"max_tokens": 97}, {"prompt": "x" * 85}])
def test_a_prompt_that_does_not_fit_is_refused(parameters: dict[str, Any]) -> None:
    error = refusal(**parameters)
    assert (error.param, error.code) == ("prompt", "context_length_exceeded")
    assert "However, you requested 101 tokens" in error.message


def test_one_prompt_too_many_tokens_fails_the_whole_line() -> None:
    assert refusal(prompt=["a", "x" * 200]).code == "context_length_exceeded"


def test_each_prompt_of_a_line_has_its_own_seed() -> None:
    seeds = [request.sampling.seed for request in prepare(prompt=["a", "a", "a"], seed=5)]
    assert seeds[0] == 5
    assert len(set(seeds)) == 3
    assert all(0 <= seed < 2**64 for seed in seeds)


def test_prompt_seeds_are_the_same_in_every_version() -> None:
    assert prompt_seed(42, 0) == 42
    assert prompt_seed(42, 1) == 3969959676567302753


def test_a_line_without_a_seed_uses_its_own() -> None:
    assert prepare()[0].sampling.seed == LINE.seed


@pytest.mark.parametrize("logprobs", [None, 0, 5, 20])
def test_logprobs_are_a_number(logprobs: int | None) -> None:
    assert prepare(logprobs=logprobs)[0].sampling.logprobs == logprobs


@pytest.mark.parametrize("logprobs", [True, -1, 21])
def test_wrong_logprobs_are_refused(logprobs: object) -> None:
    assert refusal(logprobs=logprobs).param == "logprobs"


@pytest.mark.parametrize(
    "parameters",
    [{"echo": False}, {"suffix": ""}, {"best_of": 1}, {"best_of": 3, "n": 3}, {"suffix": None}],
)
def test_what_is_off_is_accepted(parameters: dict[str, Any]) -> None:
    assert prepare(**parameters)


def test_what_cannot_be_honoured_is_refused() -> None:
    error = refusal(suffix="end")
    assert (error.param, error.code) == ("suffix", "unsupported_parameter")


@pytest.mark.parametrize(
    ("prompt", "texts"),
    [
        ("ab", ["ab!"]),
        (["ab", "c"], ["ab!", "c!"]),
        ([97, 98], ["ab!"]),
        ([[97], "b"], ["a!", "b!"]),
    ],
)
def test_an_echo_goes_before_the_answer(prompt: object, texts: list[str]) -> None:
    body = GOOD | {"prompt": prompt, "echo": True}
    answers = [completion(choice(b"!")) for _ in texts]
    assert [one.sampling for one in prepare(prompt=prompt, echo=True)] == [
        one.sampling for one in prepare(prompt=prompt)
    ]
    choices = COMPLETIONS.respond(body, LINE, MODEL, answers)["choices"]
    assert [each["text"] for each in choices] == texts


@pytest.mark.parametrize(
    ("parameters", "count"),
    [
        ({"logprobs": 3}, None),
        ({"echo": True}, None),
        ({"echo": True, "logprobs": 0}, 0),
        ({"echo": True, "logprobs": 3}, 3),
        ({"echo": True, "logprobs": 3, "prompt_logprobs": 5}, 5),
        ({"prompt_logprobs": 1}, 1),
    ],
)
def test_an_echo_with_logprobs_asks_for_those_of_the_prompt(
    parameters: dict[str, Any], count: int | None
) -> None:
    assert prepare(**parameters)[0].sampling.prompt_logprobs == count


def scored(prompt: bytes, answer: bytes = b"", *, alternatives: int = 1) -> Completion:
    """Prompt and answer with log-probabilities as `tests.support.endpoint` makes them."""
    own = completion(choice(answer, alternatives=alternatives))
    positions = choice(prompt, alternatives=alternatives).logprobs
    assert positions is not None
    return replace(own, prompt_logprobs=positions[1:])


def test_the_logprobs_of_an_echo_begin_with_the_prompts() -> None:
    half = -0.6931
    body = GOOD | {"prompt": "ab", "echo": True, "logprobs": 1}
    [shown] = COMPLETIONS.respond(body, LINE, MODEL, [scored(b"ab", b"c")])["choices"]
    assert shown["text"] == "abc"
    assert shown["logprobs"] == {
        "tokens": ["a", "b", "c"],
        "token_logprobs": [None, half, half],
        "top_logprobs": [None, {"b": half}, {"c": half}],
        "text_offset": [0, 1, 2],
    }


def test_nothing_need_be_generated_behind_an_echo() -> None:
    half, quarter = -0.6931, -1.3863
    body = GOOD | {"prompt": [[97, 98]], "echo": True, "logprobs": 2, "max_tokens": 0}
    assert prepare(**body)[0].sampling.max_tokens == 0
    [shown] = COMPLETIONS.respond(body, LINE, MODEL, [scored(b"ab", alternatives=5)])["choices"]
    assert (shown["text"], shown["logprobs"]["tokens"]) == ("ab", ["a", "b"])
    assert shown["logprobs"]["top_logprobs"] == [None, {"b": half, "c": quarter}]


def test_a_prompt_may_fill_the_context_if_nothing_is_generated() -> None:
    full = "x" * MODEL.max_model_len
    assert len(prepare(prompt=full, max_tokens=0)[0].prompt_token_ids) == MODEL.max_model_len
    assert refusal(prompt=full + "x", max_tokens=0).code == "context_length_exceeded"


class _Opening(ByteTokenizer):
    """Puts a token before every text, as many models want it."""

    def encode(self, text: str) -> list[int]:
        return [TURN_END, *super().encode(text)]


@pytest.mark.parametrize("prompt", ["é!", [TURN_END, 0xC3, 0xA9, 0x21]])
def test_text_offsets_of_an_echo_are_those_in_its_text(prompt: object) -> None:
    model = replace(MODEL, tokenizer=_Opening())
    body = GOOD | {"prompt": prompt, "echo": True, "logprobs": 0}
    answer = scored(bytes([0, 0xC3, 0xA9, 0x21]), b"ab")
    [shown] = COMPLETIONS.respond(body, LINE, model, [answer])["choices"]
    offsets, text = shown["logprobs"]["text_offset"], shown["text"]
    before = len(text) - len("é!ab")
    assert offsets == [0, *(before + offset for offset in (0, 0, 1, 2, 3))]
    assert shown["logprobs"]["tokens"] == ["<end>", "bytes:\\xc3", "bytes:\\xa9", "!", "a", "b"]


def test_prompt_logprobs_are_ranked_by_token_id() -> None:
    half, quarter = -0.6931, -1.3863
    position = TokenLogprob(token_id=98, logprob=-9.0, rank=41, top=((97, half), (99, quarter)))
    answer = replace(completion(choice(b"c")), prompt_logprobs=(position,))
    body = GOOD | {"prompt": "ab", "prompt_logprobs": 1}
    [shown] = COMPLETIONS.respond(body, LINE, MODEL, [answer])["choices"]
    assert shown["prompt_logprobs"] == [
        None,
        {
            "97": {"logprob": half, "rank": 1, "decoded_token": "a"},
            "98": {"logprob": -9.0, "rank": 41, "decoded_token": "b"},
        },
    ]
    assert (shown["text"], shown["logprobs"]) == ("c", None)


def test_more_choices_are_made_than_the_best_that_are_returned() -> None:
    (request,) = prepare(n=2, best_of=5)
    assert (request.sampling.n, request.sampling.logprobs) == (5, 0)
    assert prepare(n=2, best_of=5, logprobs=3)[0].sampling.logprobs == 3
    assert prepare(n=2, best_of=2) == prepare(n=2)


def test_the_best_choices_are_those_with_the_likeliest_tokens() -> None:
    likely, unlikely = (TokenLogprob(token_id=97, logprob=value) for value in (-0.1, -3.0))
    tokens = [(unlikely,), (likely, unlikely), (likely, likely, likely), ()]
    choices = [
        replace(choice(b"abcd"[index : index + 1], index=index), logprobs=each)
        for index, each in enumerate(tokens)
    ]
    body = COMPLETIONS.respond(GOOD | {"n": 2, "best_of": 4}, LINE, MODEL, [completion(*choices)])
    assert [(each["index"], each["text"], each["logprobs"]) for each in body["choices"]] == [
        (0, "c", None),
        (1, "b", None),
    ]
    assert body["usage"]["completion_tokens"] == 8


@pytest.mark.parametrize(
    ("best_of", "code"),
    [(1, "invalid_value"), ("x", "invalid_type"), (129, "integer_above_max_value")],
)
def test_a_wrong_best_of_is_refused(best_of: object, code: str) -> None:
    error = refusal(n=2, best_of=best_of)
    assert (error.param, error.code) == ("best_of", code)


def test_a_chat_parameter_is_unknown_here() -> None:
    assert refusal(max_completion_tokens=5).code == "unknown_parameter"


def test_choices_are_numbered_over_all_prompts() -> None:
    body = respond(
        completion(choice(b"a"), choice(b"b", index=1)),
        completion(choice(b"c"), choice(b"d", index=1)),
    )
    found = [(each["index"], each["text"]) for each in body["choices"]]
    assert found == [(0, "a"), (1, "b"), (2, "c"), (3, "d")]


def test_usage_sums_over_prompts() -> None:
    usage = respond(
        completion(choice(b"ab"), prompt_tokens=3), completion(choice(b"c"), prompt_tokens=4)
    )["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (7, 5)
    assert usage["total_tokens"] == 12


def test_logprobs_are_four_arrays() -> None:
    half, quarter = -0.6931, -1.3863
    assert logprobs_of(b"ab", 2) == {
        "tokens": ["a", "b"],
        "token_logprobs": [half, half],
        "top_logprobs": [{"a": half, "b": quarter}, {"b": half, "c": quarter}],
        "text_offset": [0, 1],
    }


def test_the_sampled_token_is_always_among_the_likeliest() -> None:
    half = -0.6931
    assert logprobs_of(b"a", 0)["top_logprobs"] == [{"a": half}]
    unlikely = TokenLogprob(token_id=122, logprob=-5.0, top=((97, half),))
    answer = completion(replace(choice(b"z"), logprobs=(unlikely,)))
    logprobs = respond(answer)["choices"][0]["logprobs"]
    assert logprobs["top_logprobs"] == [{"a": half, "z": -5.0}]


def test_parts_of_characters_are_named_by_their_bytes() -> None:
    logprobs = logprobs_of("é!".encode(), 0)
    assert logprobs["tokens"] == ["bytes:\\xc3", "bytes:\\xa9", "!"]


def test_text_offsets_count_characters() -> None:
    assert logprobs_of("aé猫b".encode(), 0)["text_offset"] == [0, 1, 1, 2, 2, 2, 3]


def test_text_offsets_stay_inside_the_text() -> None:
    answer = completion(replace(choice(b"abc", alternatives=0), text="a"))
    assert respond(answer)["choices"][0]["logprobs"]["text_offset"] == [0, 1, 1]


def test_an_error_of_one_prompt_fails_the_line() -> None:
    failed = Completion(request_id="1", prompt_tokens=7, error="It does not fit.")
    with pytest.raises(InvalidRequestError, match="It does not fit"):
        respond(completion(choice(b"a")), failed)
