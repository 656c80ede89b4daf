"""A dataset from where it lies: fetched whole, its digest taken, and read row by row."""

from __future__ import annotations

import csv
import hashlib
import io
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO
from urllib.parse import urlsplit

from batchjobs.errors import InvalidFileError, InvalidRequestError, UsageError
from batchjobs.jsonl import parse_object, read_lines
from batchjobs.settings import Settings

CHUNK_BYTES = 1 << 20
SPOOL_BYTES = 16 << 20
"""Up to so many bytes of a fetched dataset stay in memory; more go to a temporary file."""
MAX_ROW_BYTES = 8 << 20
CONNECT_SECONDS = 30.0

Rows = Iterator[dict[str, Any]]


@contextmanager
def open_dataset(source: str, *, beside: Path, settings: Settings) -> Iterator[BinaryIO]:
    """A seekable stream of the dataset: a path (relative to the folder `beside`), `http(s)://…` or
    `s3://bucket/key`. Raises InvalidFileError if it cannot be had."""
    with tempfile.SpooledTemporaryFile(SPOOL_BYTES) as copy:
        match urlsplit(source).scheme:
            case "http" | "https":
                _download(source, copy)
            case "s3":
                _fetch_object(source, copy, settings)
            case _:
                with _open_file(beside / source) as stream:
                    yield stream
                return
        copy.seek(0)
        yield copy  # type: ignore[misc]  # a spooled file is a binary stream in all but its type


def sha256_of(stream: BinaryIO) -> str:
    """Of the whole stream, which is left at its start."""
    found = hashlib.sha256()
    while chunk := stream.read(CHUNK_BYTES):
        found.update(chunk)
    stream.seek(0)
    return found.hexdigest()


def read_rows(stream: BinaryIO, kind: str, source: str) -> Rows:
    """The rows of a dataset of `kind` jsonl, csv or parquet. Raises InvalidFileError that names the
    line."""
    return _READERS[kind](stream, source)


def kind_of(source: str) -> str | None:
    """By the ending of its name."""
    return _ENDINGS.get(Path(urlsplit(source).path).suffix.lower())


def _open_file(path: Path) -> BinaryIO:
    if path.exists() and not path.is_file():
        raise InvalidFileError(f"The dataset {path} is not a file; correct `source`.")
    try:
        return path.open("rb")
    except OSError as failed:
        raise InvalidFileError(
            f"The dataset {path} cannot be read ({failed.strerror}); correct `source`."
        ) from failed


def _download(url: str, target: IO[bytes]) -> None:
    import httpx2

    try:
        with httpx2.stream("GET", url, follow_redirects=True, timeout=CONNECT_SECONDS) as answer:
            if not answer.is_success:
                raise InvalidFileError(
                    f"The dataset {url} cannot be had: its server answered {answer.status_code}."
                )
            for chunk in answer.iter_bytes(CHUNK_BYTES):
                target.write(chunk)
    except (httpx2.HTTPError, httpx2.InvalidURL) as failed:
        raise InvalidFileError(f"The dataset {url} cannot be had: {_reason(failed)}.") from failed


def _fetch_object(url: str, target: IO[bytes], settings: Settings) -> None:
    from batchjobs.store.s3.bucket import connect  # boto3 takes a moment to load
    from batchjobs.store.s3.failures import FAILURES

    parts = urlsplit(url)
    try:
        client = connect(
            endpoint_url=settings.s3_endpoint_url,
            region=settings.s3_region,
            checksums=settings.s3_checksums,
        )
        found = client.get_object(Bucket=parts.netloc, Key=parts.path.lstrip("/"))
        for chunk in found["Body"].iter_chunks(CHUNK_BYTES):
            target.write(chunk)
    except (*FAILURES, ValueError) as failed:
        raise InvalidFileError(f"The dataset {url} cannot be had: {_reason(failed)}.") from failed


def _read_jsonl(stream: BinaryIO, source: str) -> Rows:
    for line in read_lines(stream, MAX_ROW_BYTES):
        if line.data is None:
            raise InvalidFileError(
                f"{source} line {line.number} is longer than {MAX_ROW_BYTES:,} bytes."
            )
        try:
            yield parse_object(line.data)
        except InvalidRequestError as wrong:
            raise InvalidFileError(f"{source} line {line.number}: {wrong.message}") from wrong


def _read_csv(stream: BinaryIO, source: str) -> Rows:
    csv.field_size_limit(MAX_ROW_BYTES)
    reader = csv.DictReader(_text_lines(stream, source), strict=True)
    try:
        header = reader.fieldnames or ()
        if repeated := next((name for name in header if header.count(name) > 1), None):
            raise InvalidFileError(f"{source} line 1: two columns are called {repeated!r}.")
        for row in reader:
            if None in row or None in row.values():
                raise InvalidFileError(
                    f"{source} line {reader.line_num}: the row has not as many cells as the header."
                )
            yield dict(row)
    except csv.Error as wrong:
        raise InvalidFileError(
            f"{source} line {reader.reader.line_num}: {_reason(wrong)}."
        ) from wrong


def _text_lines(stream: BinaryIO, source: str) -> Iterator[str]:
    """With their ends, which may be any of three, as cells may have them too."""
    for number, line in enumerate(stream, start=1):
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as wrong:
            raise InvalidFileError(
                f"{source} line {number} is not UTF-8: save the file as UTF-8."
            ) from wrong
        yield from io.StringIO(text, newline="")


def _read_parquet(stream: BinaryIO, source: str) -> Rows:
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise UsageError(
            f"{source} is a parquet file, and pyarrow is missing: pip install 'batchjobs[evals]'."
        ) from None
    try:
        for batch in ParquetFile(stream).iter_batches():
            yield from batch.to_pylist()
    except (ArrowException, OSError) as wrong:
        raise InvalidFileError(f"{source} cannot be read as parquet: {_reason(wrong)}.") from wrong


def _reason(failed: Exception) -> str:
    """As the end of a sentence of ours."""
    return " ".join(str(failed).split()).rstrip(".") or type(failed).__name__


_READERS: dict[str, Callable[[BinaryIO, str], Rows]] = {
    "jsonl": _read_jsonl,
    "csv": _read_csv,
    "parquet": _read_parquet,
}
_ENDINGS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".parquet": "parquet"}
