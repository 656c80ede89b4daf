"""The contents of messages and items: a text, or parts that are texts."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from batchjobs.endpoints.fields import (
    check_keys,
    empty_array,
    missing,
    not_among,
    require_string,
    wrong_type,
)
from batchjobs.errors import InvalidRequestError

_HARMLESS = frozenset({"type", "prompt_cache_breakpoint", "annotations", "logprobs"})

EXTENSION_PARTS = (
    *("image", "audio", "video", "video_url", "audio_url"),
    *("image_pil", "image_embeds", "audio_embeds"),
)
"""What other servers and chat templates call parts that are no text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartKinds:
    """An endpoint's words for parts: `texts` maps each kind of text to the key that holds it,
    `others` are known kinds that a text model cannot read."""

    texts: dict[str, str]
    others: Collection[str]


def read_content(name: str, content: object, kinds: PartKinds, *, ignore_unknown: bool) -> str:
    """The text of a content, the texts of several parts joined by line.

    Raises:
        InvalidRequestError: it is malformed or holds more than text.
    """
    if content is None:
        raise missing(name)
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise wrong_type(name, "a string or an array of text parts", content)
    if not content:
        raise empty_array(name)
    return "\n".join(
        _read_part(f"{name}[{index}]", part, kinds, ignore_unknown=ignore_unknown)
        for index, part in enumerate(content)
    )


def _read_part(where: str, part: Any, kinds: PartKinds, *, ignore_unknown: bool) -> str:
    if not isinstance(part, dict):
        raise wrong_type(where, "an object", part)
    kind = part.get("type")
    if kind is None:
        raise missing(f"{where}.type")
    if kind in kinds.others:
        raise _unreadable(where, kind)
    if not isinstance(kind, str) or kind not in kinds.texts:
        raise not_among(f"{where}.type", kind, tuple(kinds.texts))
    key = kinds.texts[kind]
    check_keys(where, part, _HARMLESS | {key}, ignore_unknown=ignore_unknown)
    return require_string(part, key, where)


def _unreadable(where: str, kind: str) -> InvalidRequestError:
    message = (
        f"Invalid content type. '{kind}' is only supported by certain models, and this server"
        " runs none of them: it reads text."
    )
    return InvalidRequestError(message, param=f"{where}.{kind}", code="unsupported_parameter")
