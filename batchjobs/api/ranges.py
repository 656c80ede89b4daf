"""The Range header, as far as downloads need it: one range of bytes."""

from __future__ import annotations

import re
from dataclasses import dataclass

_ONE_RANGE = re.compile(r"bytes=\s*(\d*)\s*-\s*(\d*)\s*", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class ByteRange:
    """Bytes [start, end) of `size`."""

    start: int
    end: int
    size: int

    @property
    def header(self) -> str:
        return f"bytes {self.start}-{self.end - 1}/{self.size}"


class UnsatisfiableRangeError(Exception):
    """The range lies behind the end."""


def parse_range(header: str | None, size: int) -> ByteRange | None:
    """None asks for the whole: no header, several ranges, or one that is not understood.

    Raises UnsatisfiableRangeError.
    """
    match = _ONE_RANGE.fullmatch(header or "")
    if match is None or not (match[1] or match[2]):
        return None
    if match[1]:
        start = int(match[1])
        end = min(int(match[2]) + 1, size) if match[2] else size
        if match[2] and int(match[2]) < start:
            return None
    else:
        start, end = max(0, size - int(match[2])), size
    if start >= size or start >= end:
        raise UnsatisfiableRangeError
    return ByteRange(start=start, end=end, size=size)
