"""`expires_after` and its like: seconds counted from a file's creation."""

from __future__ import annotations

from typing import Any

from batchjobs.endpoints.fields import missing, not_among, read_integer, unknown, wrong_type

MIN_SECONDS = 3600
MAX_SECONDS = 30 * 24 * 3600

_ANCHORS = ("created_at",)


def read_expiry(name: str, value: Any) -> int | None:
    """The seconds of `{"anchor": "created_at", "seconds": …}`. Raises InvalidRequestError."""
    if value is None:
        return None
    if not isinstance(value, dict):
        raise wrong_type(name, "an object", value)
    for key in value:
        if key not in ("anchor", "seconds"):
            raise unknown(f"{name}.{key}")
    anchor = value.get("anchor")
    if anchor is None:
        raise missing(f"{name}.anchor")
    if anchor not in _ANCHORS:
        raise not_among(f"{name}.anchor", anchor, _ANCHORS)
    seconds = f"{name}.seconds"
    found = read_integer({seconds: value.get("seconds")}, seconds, MIN_SECONDS, MAX_SECONDS)
    if found is None:
        raise missing(seconds)
    return found
