"""What prompts begin with, as text to compare: a value that is malformed gives what it can."""

from __future__ import annotations

import json
from collections.abc import Iterator

MAX_CHARS = 1 << 16


def opening_of(value: object, *, tools: object = None) -> str:
    """The strings and numbers within a JSON value, in order, each behind a separator; before
    them the tools, which templates write at the beginning."""
    found: list[str] = []
    room = MAX_CHARS
    words = _words([json.dumps(tools), value] if tools else value)
    for word in words:
        if room <= 0:
            break
        found.append(word[:room])
        room -= len(word) + 1
    return "\0".join(found)


def _words(value: object) -> Iterator[str]:
    match value:
        case str():
            yield value
        case list():
            for item in value:
                yield from _words(item)
        case {"role": str(role), "content": content}:
            yield role
            yield from _words(content)
        case {"text": text}:
            yield from _words(text)
        case int() | float():
            yield str(value)
