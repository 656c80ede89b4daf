"""Answers of JSON."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from typing import Any

import orjson
from starlette.responses import Response

_JSON = "application/json"


def json_answer(
    value: Any, *, status_code: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    return Response(orjson.dumps(value), status_code, headers=headers, media_type=_JSON)


def versioned_answer(
    value: dict[str, Any], known: str | None, *, restless: Collection[str] = ()
) -> Response:
    """With an ETag; 304 without a body if `known`, an If-None-Match header, has it already.

    The keys in `restless` may change without making another version.
    """
    version = orjson.dumps({key: item for key, item in value.items() if key not in restless})
    tag = entity_tag(hashlib.blake2b(version, digest_size=16).hexdigest())
    headers = {"etag": tag, "cache-control": "no-cache"}
    if is_known(tag, known):
        return Response(status_code=304, headers=headers)
    return Response(orjson.dumps(value), headers=headers, media_type=_JSON)


def entity_tag(digest: str) -> str:
    return f'"{digest}"'


def is_known(tag: str, known: str | None) -> bool:
    """Whether an If-None-Match header names the tag; proxies may have made it a weak one."""
    names = [name.strip().removeprefix("W/") for name in (known or "").split(",")]
    return tag in names or "*" in names
