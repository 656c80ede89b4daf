"""What a caller may ask of a job: the checks of a create request, in the public API's words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta

from batchjobs.errors import InvalidRequestError
from batchjobs.jsonl import json_type

MAX_PAIRS = 16
MAX_KEY_CHARS = 64
MAX_VALUE_CHARS = 512
MAX_PRIORITY = 1000
"""And no less than its negative; 0 is usual."""

_WINDOW = re.compile(r"([1-9][0-9]{0,5})([hd])")
_HOURS = {"h": 1, "d": 24}


def parse_window(window: str, max_hours: int) -> timedelta:
    """ "24h", as the public API has it, or another number of hours or days.

    Raises InvalidRequestError for anything else and for more than `max_hours`.
    """
    match = _WINDOW.fullmatch(window)
    hours = int(match[1]) * _HOURS[match[2]] if match else 0
    if not 1 <= hours <= max_hours:
        raise InvalidRequestError(
            f"Invalid value: '{window}'. Supported values are: '24h', and any other number of"
            f" hours ('48h') or days ('7d') up to '{max_hours}h'.",
            param="completion_window",
            code="invalid_value",
        )
    return timedelta(hours=hours)


def check_metadata(metadata: Mapping[str, object] | None) -> dict[str, str] | None:
    """At most 16 pairs of short strings. Raises InvalidRequestError."""
    if metadata is None:
        return None
    if len(metadata) > MAX_PAIRS:
        raise InvalidRequestError(
            f"Invalid 'metadata': too many properties. Expected an object with at most"
            f" {MAX_PAIRS} properties, but got an object with {len(metadata)} properties"
            " instead.",
            param="metadata",
            code="object_above_max_properties",
        )
    return {_check_key(key): _check_value(key, value) for key, value in metadata.items()}


def _check_key(key: str) -> str:
    if len(key) > MAX_KEY_CHARS:
        raise _too_long(
            f"Invalid property name in 'metadata': '{key}'", "metadata", key, MAX_KEY_CHARS
        )
    return key


def _check_value(key: str, value: object) -> str:
    param = f"metadata.{key}"
    if not isinstance(value, str):
        raise InvalidRequestError(
            f"Invalid type for '{param}': expected a string, but got {json_type(value)} instead.",
            param=param,
            code="invalid_type",
        )
    if len(value) > MAX_VALUE_CHARS:
        raise _too_long(f"Invalid '{param}'", param, value, MAX_VALUE_CHARS)
    return value


def _too_long(subject: str, param: str, text: str, limit: int) -> InvalidRequestError:
    return InvalidRequestError(
        f"{subject}: string too long. Expected a string with maximum length {limit}, but got a"
        f" string with length {len(text)} instead.",
        param=param,
        code="string_above_max_length",
    )
