"""A multipart upload, taken in piece by piece: the file goes to the store as it comes."""

from __future__ import annotations

import io
from contextlib import ExitStack
from datetime import timedelta

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from batchjobs.api.expiry import read_expiry
from batchjobs.api.requests import as_number
from batchjobs.deployment import Deployment
from batchjobs.endpoints.fields import missing, not_among, unknown
from batchjobs.errors import InvalidRequestError
from batchjobs.files import FileWriter, add_row, create_file, too_large
from batchjobs.intake import INPUT_PURPOSE
from batchjobs.jsonl import parse_object, read_lines
from batchjobs.models import DEFAULT_TENANT, File

PURPOSES = ("assistants", INPUT_PURPOSE, "fine-tune", "vision", "user_data", "evals")
MAX_FIELD_BYTES = 4096

_DEFAULT_FILENAME = "upload"
_ANCHOR, _SECONDS = "expires_after[anchor]", "expires_after[seconds]"
_FIELDS = frozenset({"purpose", _ANCHOR, _SECONDS})
_BOM = b"\xef\xbb\xbf"


class Upload:
    """Fed the body of a request, makes one file of it, or nothing.

    The fields beside the file may come before or behind it. Ends with `finish` or with `abort`.
    Raises InvalidRequestError from every call but `abort`.
    """

    def __init__(
        self, deployment: Deployment, content_type: str, *, tenant: str = DEFAULT_TENANT
    ) -> None:
        self._deployment = deployment
        self._tenant = tenant
        self._fields: dict[str, bytes] = {}
        self._file: _IncomingFile | None = None
        self._part = _Part()
        self._is_whole = False
        self._parser = MultipartParser(
            _boundary(content_type),
            callbacks={
                "on_part_begin": self._begin_part,
                "on_header_field": self._add_header_name,
                "on_header_value": self._add_header_value,
                "on_header_end": self._end_header,
                "on_headers_finished": self._open_part,
                "on_part_data": self._add_data,
                "on_end": self._end,
            },
        )

    def feed(self, data: bytes) -> None:
        """The next bytes of the body. Raises StoreError too."""
        try:
            self._parser.write(data)
        except FormParserError as wrong:
            raise _malformed(str(wrong)) from wrong

    def finish(self) -> File:
        """The file, once the body is at its end. Raises StoreError and DatabaseError too."""
        if not self._is_whole:
            raise _malformed("it ends before its last boundary")
        if self._file is None:
            raise missing("file")
        purpose = self._read_purpose()
        expires_after = self._read_expiry()
        if purpose == INPUT_PURPOSE:
            self._file.check_first_line()
        written = self._file.close()
        # Should this fail, the object stays until the sweep: the row may be there all the same.
        with self._deployment.database.write() as session:
            return add_row(
                session,
                self._deployment.clock,
                written,
                filename=self._file.filename,
                purpose=purpose,
                expires_after=expires_after,
                tenant=self._tenant,
            )

    def abort(self, reason: BaseException) -> None:
        """Leave nothing of the file."""
        if self._file is not None:
            self._file.abort(reason)

    def _begin_part(self) -> None:
        self._part = _Part()

    def _add_header_name(self, data: bytes, start: int, end: int) -> None:
        self._part.header_name += data[start:end]

    def _add_header_value(self, data: bytes, start: int, end: int) -> None:
        self._part.header_value += data[start:end]

    def _end_header(self) -> None:
        self._part.end_header()

    def _open_part(self) -> None:
        part = self._part
        if part.name == "file":
            if self._file is not None:
                raise _malformed("it has more than one file")
            self._file = _IncomingFile(self._deployment, part.filename)
        elif part.name not in _FIELDS:
            raise unknown(part.name)
        else:
            self._fields[part.name] = b""

    def _add_data(self, data: bytes, start: int, end: int) -> None:
        name = self._part.name
        if name == "file":
            assert self._file is not None
            self._file.write(data[start:end])
            return
        self._fields[name] += data[start:end]
        if len(self._fields[name]) > MAX_FIELD_BYTES:
            raise _malformed(f"the field '{name}' has more than {MAX_FIELD_BYTES:,} bytes")

    def _end(self) -> None:
        self._is_whole = True

    def _read(self, name: str) -> str | None:
        value = self._fields.get(name)
        return None if value is None else value.decode(errors="replace")

    def _read_purpose(self) -> str:
        purpose = self._read("purpose")
        if purpose is None:
            raise missing("purpose")
        if purpose not in PURPOSES:
            raise not_among("purpose", purpose, PURPOSES)
        return purpose

    def _read_expiry(self) -> timedelta | None:
        anchor, seconds = self._read(_ANCHOR), self._read(_SECONDS)
        if anchor is None and seconds is None:
            return None
        asked = {"anchor": anchor, "seconds": None if seconds is None else as_number(seconds)}
        found = read_expiry("expires_after", asked)
        return None if found is None else timedelta(seconds=found)


class _Part:
    """The headers of the part that is being read, and what they say."""

    def __init__(self) -> None:
        self.header_name = b""
        self.header_value = b""
        self.name = ""
        self.filename = _DEFAULT_FILENAME

    def end_header(self) -> None:
        if self.header_name.lower() == b"content-disposition":
            _, options = parse_options_header(self.header_value)
            self.name = options.get(b"name", b"").decode(errors="replace")
            filename = options.get(b"filename", b"").decode(errors="replace")
            self.filename = filename or _DEFAULT_FILENAME
        self.header_name = self.header_value = b""


class _IncomingFile:
    """The object in the making, and a copy of its first line."""

    def __init__(self, deployment: Deployment, filename: str) -> None:
        self.filename = filename
        self._max_bytes = deployment.settings.max_input_bytes
        self._longest_line = deployment.settings.max_line_bytes
        self._head = b""
        self._has_first_line = False
        self._object = ExitStack()
        self._writer: FileWriter = self._object.enter_context(create_file(deployment.store))

    def write(self, data: bytes) -> None:
        if self._writer.size + len(data) > self._max_bytes:
            raise too_large(self.filename, self._max_bytes)
        self._writer.write(data)
        if not self._has_first_line:
            self._head = (self._head + data).removeprefix(_BOM).lstrip()
            self._has_first_line = b"\n" in self._head or len(self._head) > self._longest_line

    def check_first_line(self) -> None:
        """A file of another kind is refused before it is a file; all lines are for intake."""
        line = next(read_lines(io.BytesIO(self._head), self._longest_line), None)
        if line is None:
            raise _not_jsonl("The file is empty.")
        if line.data is None:
            return  # too long a line is reported by intake, with its number
        try:
            line.data.decode()
        except UnicodeDecodeError as wrong:
            raise InvalidRequestError(
                "Invalid file for Batch API. Must be utf-8 encoded.", param="file"
            ) from wrong
        try:
            parse_object(line.data)
        except InvalidRequestError as wrong:
            raise _not_jsonl(f"Its first line: {wrong.message}") from wrong

    def close(self) -> FileWriter:
        self._object.close()
        return self._writer

    def abort(self, reason: BaseException) -> None:
        self._object.__exit__(type(reason), reason, reason.__traceback__)


def _boundary(content_type: str) -> bytes:
    kind, options = parse_options_header(content_type)
    boundary = options.get(b"boundary")
    if kind != b"multipart/form-data" or not boundary:
        raise InvalidRequestError(
            "A file is uploaded as multipart/form-data with a boundary, but the Content-Type of"
            f" this request is '{content_type}'."
        )
    return boundary


def _malformed(why: str) -> InvalidRequestError:
    return InvalidRequestError(f"The multipart body of this request is not usable: {why}.")


def _not_jsonl(why: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"Invalid file format for Batch API. Must be .jsonl. {why}", param="file"
    )
