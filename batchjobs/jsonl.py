"""JSON Lines, read in bounded memory and written so that naive readers survive.

Lines end at the byte `\\n` and nowhere else: JSON text may hold U+2028 and its kin, which
`str.splitlines()` and text-mode readers cut at.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import orjson

from batchjobs.errors import InvalidRequestError

INVALID_JSON_LINE = "invalid_json_line"
NOT_JSON = "This line is not parseable as valid JSON."

# A parsed container takes twenty times its two bytes of text, a parsed number ten times its own.
MAX_CONTAINERS = 250_000
MAX_COMMAS = 2_000_000

_BOM = b"\xef\xbb\xbf"
_SLACK = len(_BOM + b"\r\n")
_SKIP_BYTES = 1 << 16
_SEPARATORS = (
    (b"\xc2\x85", b"\\u0085"),
    (b"\xe2\x80\xa8", b"\\u2028"),
    (b"\xe2\x80\xa9", b"\\u2029"),
)


@dataclass(frozen=True, slots=True)
class RawLine:
    """Line `number` (from 1, blank ones count), at bytes [start, end) with its line feed.

    `data` has neither line feed nor byte order mark; it is None when the line is too long.
    """

    number: int
    start: int
    end: int
    data: bytes | None


def read_lines(
    stream: BinaryIO, max_line_bytes: int, *, first_number: int = 1, start: int = 0
) -> Iterator[RawLine]:
    """The lines of a buffered `stream` that are not blank.

    `first_number` and `start` say where in its file the stream begins. Memory is bounded by
    `max_line_bytes`, however long a line is. One `\\r` before the line feed and a byte order mark
    at the start of the file are dropped; the last line needs no line feed.
    """
    number = first_number
    longest = max_line_bytes + _SLACK
    while head := stream.readline(longest):
        size = len(head)
        complete = head.endswith(b"\n") or size < longest
        if not complete:
            size += _skip_line(stream)
        data = head.removesuffix(b"\n").removesuffix(b"\r")
        if start == 0:
            data = data.removeprefix(_BOM)
        if not complete or len(data) > max_line_bytes:
            yield RawLine(number, start, start + size, None)
        elif data and not data.isspace():
            yield RawLine(number, start, start + size, data)
        number += 1
        start += size


def parse_object(data: bytes) -> dict[str, Any]:
    """The JSON object that is `data`.

    Raises:
        InvalidRequestError: it is not UTF-8, not JSON (RFC 8259: no NaN, no lone surrogates,
            at most 1,024 deep), not an object, or would take far more memory than it has bytes.
    """
    if len(data) > MAX_CONTAINERS:
        _check_cost(data)
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as wrong:
        raise InvalidRequestError(_why_unreadable(data), code=INVALID_JSON_LINE) from wrong
    if not isinstance(value, dict):
        message = f"This line must be a JSON object, but it is {json_type(value)}."
        raise InvalidRequestError(message, code=INVALID_JSON_LINE)
    return value


def json_type(value: object) -> str:
    """What the public API's errors call the type of a parsed value."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int():
            return "an integer"
        case float():
            return "a decimal number"
        case str():
            return "a string"
        case list():
            return "an array"
        case _:
            return "an object"


def dump_line(value: object) -> bytes:
    """`value` as one line of UTF-8 with its line feed, whole even under `str.splitlines()`."""
    return escape_separators(orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE))


def escape_separators(data: bytes) -> bytes:
    """JSON text with U+0085, U+2028 and U+2029 escaped; JSON itself escapes VT, FF, FS to RS."""
    for raw, escaped in _SEPARATORS:
        data = data.replace(raw, escaped)
    return data


def _skip_line(stream: BinaryIO) -> int:
    """Read up to and including the next line feed; the number of bytes."""
    size = 0
    while chunk := stream.readline(_SKIP_BYTES):
        size += len(chunk)
        if chunk.endswith(b"\n"):
            break
    return size


def _check_cost(data: bytes) -> None:
    containers = data.count(b"[") + data.count(b"{")
    if containers > MAX_CONTAINERS or data.count(b",") > MAX_COMMAS:
        message = (
            f"This line holds more than {MAX_CONTAINERS:,} arrays and objects"
            f" or {MAX_COMMAS:,} elements."
        )
        raise InvalidRequestError(message, code=INVALID_JSON_LINE)


def _why_unreadable(data: bytes) -> str:
    try:
        data.decode()
    except UnicodeDecodeError as wrong:
        return (
            f"This line is not UTF-8: byte {wrong.start + 1} of it is 0x{data[wrong.start]:02x}."
            " Save the file as UTF-8."
        )
    return NOT_JSON
