"""What holds for the parameters of chats and completions, asked of each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from batchjobs.endpoints import ENDPOINTS
from batchjobs.endpoints.drafts import prepare_alone
from batchjobs.errors import InvalidRequestError
from executor.request import SamplingParams
from tests.support.endpoint import LINE, MODEL

PROMPTS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "Hi"}]},
    "/v1/completions": {"prompt": "Hi"},
}

pytestmark = pytest.mark.parametrize("url", list(PROMPTS))


def sampling(url: str, **parameters: Any) -> SamplingParams:
    body = {"model": "gpt-4o-mini", "max_tokens": 10, **PROMPTS[url], **parameters}
    (request,) = prepare_alone(ENDPOINTS[url], body, LINE, MODEL)
    return request.sampling


def refusal(url: str, **parameters: Any) -> InvalidRequestError:
    with pytest.raises(InvalidRequestError) as refused:
        sampling(url, **parameters)
    assert refused.value.status_code == 400
    assert refused.value.type == "invalid_request_error"
    return refused.value


def test_defaults_are_the_public_ones(url: str) -> None:
    assert sampling(url) == SamplingParams(temperature=1.0, top_p=1.0, seed=42, max_tokens=10)


def test_every_parameter_reaches_the_engine(url: str) -> None:
    asked = sampling(
        url,
        temperature=0,
        top_p=0.5,
        top_k=40,
        min_p=0.1,
        presence_penalty=-0.5,
        frequency_penalty=0.5,
        repetition_penalty=1.1,
        logit_bias={"97": 2, "5": -100, "6": 0},
        allowed_token_ids=[98, 97, 98],
        stop_token_ids=[10],
        include_stop_str_in_output=True,
        seed=7,
        min_tokens=2,
        stop=["\n", "END"],
        ignore_eos=True,
        n=3,
        prompt_logprobs=2,
    )
    assert asked == SamplingParams(
        temperature=0.0,
        top_p=0.5,
        top_k=40,
        min_p=0.1,
        presence_penalty=-0.5,
        frequency_penalty=0.5,
        repetition_penalty=1.1,
        logit_bias=((5, -100.0), (97, 2.0)),
        allowed_token_ids=(97, 98),
        stop_token_ids=(10,),
        include_stop_str_in_output=True,
        seed=7,
        max_tokens=10,
        min_tokens=2,
        stop=("\n", "END"),
        ignore_eos=True,
        n=3,
        prompt_logprobs=2,
    )


@pytest.mark.parametrize(
    "name", ["temperature", "top_p", "top_k", "seed", "n", "stop", "ignore_eos", "logprobs"]
)
def test_null_is_the_default(url: str, name: str) -> None:
    assert sampling(url, **{name: None}) == sampling(url)


def test_one_stop_string_needs_no_array(url: str) -> None:
    assert sampling(url, stop="END").stop == ("END",)
    assert sampling(url, stop=[]).stop == ()


@pytest.mark.parametrize("top_k", [-1, 0])
def test_top_k_has_two_ways_to_be_off(url: str, top_k: int) -> None:
    assert sampling(url, top_k=top_k).top_k == 0


def test_top_p_zero_keeps_the_likeliest_token(url: str) -> None:
    assert 0 < sampling(url, top_p=0).top_p < 1e-5


@pytest.mark.parametrize(
    ("seed", "key"),
    [(0, 0), (-1, 2**64 - 1), (2**63 - 1, 2**63 - 1), (-(2**63), 2**63)],
)
def test_seeds_are_signed_64_bit_numbers(url: str, seed: int, key: int) -> None:
    assert sampling(url, seed=seed).seed == key


@pytest.mark.parametrize(
    ("name", "value", "code", "message"),
    [
        (
            "temperature",
            "hot",
            "invalid_type",
            "Invalid type for 'temperature': expected a decimal, but got a string instead.",
        ),
        (
            "temperature",
            2.5,
            "decimal_above_max_value",
            "Invalid 'temperature': decimal above maximum value."
            " Expected a value <= 2, but got 2.5 instead.",
        ),
        (
            "temperature",
            -0.1,
            "decimal_below_min_value",
            "Invalid 'temperature': decimal below minimum value."
            " Expected a value >= 0, but got -0.1 instead.",
        ),
        (
            "max_tokens",
            1.5,
            "invalid_type",
            "Invalid type for 'max_tokens': expected an integer, but got a decimal number instead.",
        ),
        (
            "seed",
            float(1 << 64),  # as JSON's reader gives integers beyond 64 bits
            "integer_above_max_value",
            "Invalid 'seed': integer above maximum value. Expected a value <= 9223372036854775807,"
            " but got 18446744073709551616 instead.",
        ),
        (
            "max_tokens",
            -1,
            "integer_below_min_value",
            "Invalid 'max_tokens': integer below minimum value."
            " Expected a value >= {least}, but got -1 instead.",
        ),
        (
            "stop",
            ["x"] * 17,
            "array_above_max_length",
            "Invalid 'stop': array too long. Expected an array with maximum length 16,"
            " but got an array with length 17 instead.",
        ),
        (
            "min_tokens",
            11,
            "invalid_value",
            "Invalid 'min_tokens': 11 is more than the 10 tokens that the answer may have.",
        ),
    ],
)
def test_wrong_values_are_refused_in_the_public_words(
    url: str, name: str, value: object, code: str, message: str
) -> None:
    error = refusal(url, **{name: value})
    least = "0" if url == "/v1/completions" else "1"
    assert error.message == message.format(least=least)
    assert (error.param, error.code) == (name, code)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", True),
        ("temperature", 1e300),
        ("top_p", 1.01),
        ("top_p", -0.5),
        ("top_k", -2),
        ("top_k", 1.0),
        ("min_p", 2),
        ("seed", 2**63),
        ("seed", 1.0),
        ("seed", False),
        ("n", 0),
        ("n", 129),
        ("n", True),
        ("min_tokens", -1),
        ("presence_penalty", 2.01),
        ("presence_penalty", float("nan")),
        ("frequency_penalty", float("inf")),
        ("frequency_penalty", "1"),
        ("repetition_penalty", 0),
        ("repetition_penalty", 10**400),
        ("logit_bias", [1]),
        ("allowed_token_ids", []),
        ("stop_token_ids", 5),
        ("prompt_logprobs", -1),
        ("prompt_logprobs", 21),
        ("prompt_logprobs", True),
        ("stop", 5),
        ("ignore_eos", 1),
    ],
)
def test_other_wrong_values_are_refused_by_name(url: str, name: str, value: object) -> None:
    assert refusal(url, **{name: value}).param == name


@pytest.mark.parametrize(
    ("bias", "param", "message"),
    [
        (
            {"257": 1},
            "logit_bias",
            "Invalid key in 'logit_bias': 257. Maximum value is 256.",
        ),
        (
            {"9" * 5000: 1},
            "logit_bias",
            f"Invalid key in 'logit_bias': {'9' * 5000}. Maximum value is 256.",
        ),
        (
            {"-1": 1},
            "logit_bias",
            "Invalid key in 'logit_bias': -1. You should only be submitting non-negative integers.",
        ),
        (
            {"5": 100.5},
            "logit_bias.5",
            "Invalid 'logit_bias.5': decimal above maximum value."
            " Expected a value <= 100, but got 100.5 instead.",
        ),
        (
            {"5": None},
            "logit_bias.5",
            "Invalid type for 'logit_bias.5': expected a decimal, but got null instead.",
        ),
    ],
)
def test_a_wrong_bias_is_located(url: str, bias: object, param: str, message: str) -> None:
    error = refusal(url, logit_bias=bias)
    assert (error.param, error.message) == (param, message)


@pytest.mark.parametrize("name", ["stop_token_ids", "allowed_token_ids"])
@pytest.mark.parametrize(
    ("token_ids", "code"), [([1, True], "invalid_type"), ([1, 257], "invalid_value")]
)
def test_a_wrong_token_id_is_located(
    url: str, name: str, token_ids: list[object], code: str
) -> None:
    error = refusal(url, **{name: token_ids})
    assert (error.param, error.code) == (f"{name}[1]", code)


def test_what_a_line_leaves_out_is_as_the_model_has_it(url: str) -> None:
    own = {"temperature": 0.6, "top_p": 0.95, "top_k": 20, "repetition_penalty": 1.05}
    model = replace(MODEL, sampling=own)
    body = {"model": "gpt-4o-mini", "max_tokens": 10, **PROMPTS[url], "top_k": None, "top_p": 1}
    [request] = prepare_alone(ENDPOINTS[url], body, LINE, model)
    params = request.sampling
    assert (params.temperature, params.top_k, params.repetition_penalty) == (0.6, 20, 1.05)
    assert params.top_p == 1


@pytest.mark.parametrize(
    ("stop", "param"), [("", "stop"), (["a", ""], "stop[1]"), ([1], "stop[0]")]
)
def test_a_stop_that_is_no_text_is_located(url: str, stop: object, param: str) -> None:
    assert refusal(url, stop=stop).param == param


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("bad_words", ["x"]),
        ("stream", True),
        ("stream_options", {"include_usage": True}),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(url: str, name: str, value: object) -> None:
    error = refusal(url, **{name: value})
    assert error.message == f"Unsupported parameter: '{name}' is not supported by this server."
    assert (error.param, error.code) == (name, "unsupported_parameter")


def test_what_is_off_or_without_effect_is_accepted(url: str) -> None:
    plain = sampling(
        url,
        frequency_penalty=0,
        presence_penalty=0.0,
        repetition_penalty=1,
        logit_bias={},
        stream=False,
        stream_options=None,
        user="me",
        metadata={"a": "b"},
        store=True,
        service_tier="flex",
    )
    assert plain == sampling(url)


@pytest.mark.parametrize("name", ["temprature", "guided", " method"])
def test_unknown_parameters_are_refused_by_name(url: str, name: str) -> None:
    error = refusal(url, **{name: 1})
    assert error.message == f"Unknown parameter: '{name}'."
    assert (error.param, error.code) == (name, "unknown_parameter")


def test_unknown_parameters_that_are_null_are_absent(url: str) -> None:
    assert sampling(url, temprature=None) == sampling(url)


def test_unknown_parameters_are_left_out_where_they_are_ignored(url: str) -> None:
    lenient = replace(MODEL, ignore_unknown=True)
    body = {"model": "gpt-4o-mini", "max_tokens": 10, **PROMPTS[url]}
    (request,) = prepare_alone(ENDPOINTS[url], body | {"temprature": 0}, LINE, lenient)
    assert request.sampling == sampling(url)
    with pytest.raises(InvalidRequestError, match="'bad_words' is not supported"):
        prepare_alone(ENDPOINTS[url], body | {"bad_words": ["x"]}, LINE, lenient)


@pytest.mark.parametrize(("name", "value"), [("length_penalty", True), ("use_beam_search", 0)])
def test_a_boolean_is_no_number_that_turns_off(url: str, name: str, value: bool) -> None:
    assert refusal(url, **{name: value}).code == "unsupported_parameter"
