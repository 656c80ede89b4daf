from __future__ import annotations

from typing import Any

import pytest

from batchjobs.envelope import read_body, read_custom_id
from batchjobs.errors import InvalidRequestError

URL = "/v1/chat/completions"
GOOD: dict[str, Any] = {"custom_id": "a", "method": "POST", "url": URL, "body": {"model": "m"}}


def body_of(line: dict[str, Any], model_override: str | None = None) -> dict[str, Any]:
    return read_body(line, url=URL, model_override=model_override)


def test_a_good_line_gives_its_id_and_body() -> None:
    assert read_custom_id(GOOD, 10) == "a"
    assert body_of(GOOD) == {"model": "m"}


def test_other_keys_are_let_pass() -> None:
    assert body_of(GOOD | {"note": 1, "metadata": {}}) == {"model": "m"}


def test_the_override_takes_the_place_of_the_model() -> None:
    assert body_of(GOOD, "other") == {"model": "other"}
    assert body_of(GOOD | {"body": {}}, "other") == {"model": "other"}
    assert GOOD["body"] == {"model": "m"}


@pytest.mark.parametrize("name", ["method", "url", "body"])
@pytest.mark.parametrize("how", ["absent", "null"])
def test_a_missing_key_is_named(name: str, how: str) -> None:
    line = {key: value for key, value in GOOD.items() if key != name}
    if how == "null":
        line[name] = None
    with pytest.raises(InvalidRequestError) as refused:
        body_of(line)
    assert refused.value.message == f"Missing required parameter: '{name}'."
    assert (refused.value.code, refused.value.param) == ("missing_required_parameter", name)


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        (
            {"method": "GET"},
            "invalid_method",
            "Invalid method 'GET': only 'POST' is supported by the Batch API.",
        ),
        (
            {"url": "/v1/completions"},
            "invalid_url",
            "The URL provided for this request does not match the batch endpoint.",
        ),
        (
            {"url": "v1/chat/completions"},
            "invalid_url",
            "The URL provided for this request does not match the batch endpoint.",
        ),
        (
            {"body": "text"},
            "invalid_type",
            "Invalid type for 'body': expected an object, but got a string instead.",
        ),
    ],
)
def test_a_wrong_value_is_refused(change: dict[str, Any], code: str, message: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        body_of(GOOD | change)
    assert (refused.value.message, refused.value.code) == (message, code)
    assert refused.value.param == next(iter(change))


@pytest.mark.parametrize(
    ("custom_id", "code"),
    [
        (None, "missing_required_parameter"),
        (7, "invalid_type"),
        ("", "empty_string"),
        ("x" * 11, "string_above_max_length"),
    ],
)
def test_a_custom_id_that_is_no_short_text_is_refused(custom_id: object, code: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        read_custom_id({"custom_id": custom_id}, 10)
    assert (refused.value.code, refused.value.param) == (code, "custom_id")


def test_a_custom_id_is_measured_in_characters() -> None:
    assert read_custom_id({"custom_id": "猫" * 10}, 10) == "猫" * 10
