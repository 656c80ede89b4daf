"""The file of requests that a person names, as it lies here."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from batchjobs.cli.delivery import STREAM

_CHUNK_BYTES = 1 << 20


@contextmanager
def open_source(path: str, *, max_bytes: int | None = None) -> Iterator[BinaryIO]:
    """A seekable stream of the file, or of a copy of what can be read once only: a pipe, or `-`
    for standard input. Of more than `max_bytes`, a copy has one byte more, to be refused for."""
    if path == STREAM:
        with _copied(sys.stdin.buffer, max_bytes) as copy:
            yield copy
        return
    with Path(path).open("rb") as stream:
        if stream.seekable():
            yield stream
            return
        with _copied(stream, max_bytes) as copy:
            yield copy


def name_of(path: str) -> str:
    return "stdin" if path == STREAM else Path(path).name


def find_endpoint(stream: BinaryIO, max_line_bytes: int) -> str:
    """The first endpoint of ours that a line names; intake reports the lines that differ.

    If there is none, the first word in its place, or else the most usual endpoint: intake then
    says of the file or of every line what is wrong. Leaves the stream at its start.
    """
    from batchjobs.endpoints import ENDPOINTS
    from batchjobs.errors import InvalidRequestError
    from batchjobs.jsonl import parse_object, read_lines

    first = None
    for line in read_lines(stream, max_line_bytes):
        try:
            url = parse_object(line.data or b"").get("url")
        except InvalidRequestError:
            continue
        if isinstance(url, str):
            first = first or url
            if url in ENDPOINTS:
                first = url
                break
    stream.seek(0)
    return first or next(iter(ENDPOINTS))


@contextmanager
def _copied(stream: BinaryIO, max_bytes: int | None) -> Iterator[BinaryIO]:
    with tempfile.TemporaryFile() as copy:
        left = max_bytes
        while chunk := stream.read(_CHUNK_BYTES):
            if left is not None and len(chunk) > left:
                copy.write(chunk[: left + 1])
                break
            copy.write(chunk)
            left = None if left is None else left - len(chunk)
        copy.seek(0)
        yield copy
