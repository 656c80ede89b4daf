from __future__ import annotations

from datetime import timedelta

import pytest

from batchjobs.errors import InvalidRequestError
from batchjobs.queue.terms import check_metadata, parse_window


@pytest.mark.parametrize(
    ("window", "hours"), [("24h", 24), ("1h", 1), ("72h", 72), ("7d", 168), ("30d", 720)]
)
def test_window_is_a_number_of_hours_or_days(window: str, hours: int) -> None:
    assert parse_window(window, 720) == timedelta(hours=hours)


@pytest.mark.parametrize(
    "window",
    ["", "24", "h", "0h", "-1h", "1.5h", "24H", " 24h", "24h\n", "24 h", "1w", "721h", "31d", "٢h"],
)
def test_window_of_another_form_or_too_long_is_refused(window: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        parse_window(window, 720)
    assert refused.value.wire()["error"] == {
        "message": f"Invalid value: '{window}'. Supported values are: '24h', and any other number"
        " of hours ('48h') or days ('7d') up to '720h'.",
        "type": "invalid_request_error",
        "param": "completion_window",
        "code": "invalid_value",
    }


def test_metadata_of_16_pairs_at_their_limits_is_kept() -> None:
    metadata = {f"{n:02d}" + "k" * 62: "v" * 512 for n in range(16)}
    assert check_metadata(metadata) == metadata
    assert check_metadata({}) == {}
    assert check_metadata(None) is None


@pytest.mark.parametrize(
    ("metadata", "param", "code", "message"),
    [
        (
            {"tags": ["a"]},
            "metadata.tags",
            "invalid_type",
            "Invalid type for 'metadata.tags': expected a string, but got an array instead.",
        ),
        (
            {"n": 3},
            "metadata.n",
            "invalid_type",
            "Invalid type for 'metadata.n': expected a string, but got an integer instead.",
        ),
        (
            {"none": None},
            "metadata.none",
            "invalid_type",
            "Invalid type for 'metadata.none': expected a string, but got null instead.",
        ),
        (
            {"note": "v" * 513},
            "metadata.note",
            "string_above_max_length",
            "Invalid 'metadata.note': string too long. Expected a string with maximum length 512,"
            " but got a string with length 513 instead.",
        ),
        (
            {"k" * 65: "v"},
            "metadata",
            "string_above_max_length",
            f"Invalid property name in 'metadata': '{'k' * 65}': string too long. Expected a string"
            " with maximum length 64, but got a string with length 65 instead.",
        ),
        (
            {str(n): "" for n in range(17)},
            "metadata",
            "object_above_max_properties",
            "Invalid 'metadata': too many properties. Expected an object with at most 16"
            " properties, but got an object with 17 properties instead.",
        ),
    ],
)
def test_metadata_is_refused_in_the_public_apis_words(
    metadata: dict[str, object], param: str, code: str, message: str
) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        check_metadata(metadata)
    assert (refused.value.param, refused.value.code) == (param, code)
    assert refused.value.message == message
