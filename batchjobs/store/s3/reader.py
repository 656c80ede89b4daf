"""The bytes of an object as a stream that outlives its connections."""

from __future__ import annotations

import io
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError, FlexibleChecksumError
from urllib3.exceptions import HTTPError

from batchjobs.errors import StoreError
from batchjobs.store.s3.bucket import Bucket
from batchjobs.store.s3.failures import code, pause, status, translated

RESUMES = 5
"""How often in a row a body may be cut before a single further byte has come."""


class Reader(io.RawIOBase):
    """Bytes [start, end) of an object.

    boto3 retries a request only until its headers are there; a body that is cut goes on from its
    next byte here, by a request that fails if the object is another one by then.
    """

    def __init__(self, bucket: Bucket, key: str, start: int, end: int | None) -> None:
        """Raises ObjectMissingError, StoreError."""
        self._bucket = bucket
        self._key = key
        self._position = start
        self._end = end
        self._etag: str | None = None
        self._body: Any = None
        self._open()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._read(len(buffer))
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)

    def close(self) -> None:
        if self._body is not None:
            self._body.close()
        super().close()

    def _read(self, count: int) -> bytes:
        """Some bytes; none at the end."""
        for attempt in range(RESUMES + 1):
            if attempt:
                pause(attempt)
                self._open()
            if self._body is None:
                return b""
            try:
                return bytes(self._body.read(count))
            except FlexibleChecksumError as failed:
                raise StoreError(
                    f"The object store cannot read {self._place}: its bytes came damaged."
                ) from failed
            except (BotoCoreError, HTTPError, OSError) as failed:
                reason = type(failed).__name__
            self._body.close()
        raise StoreError(f"The object store cannot read {self._place}: {reason}, again and again.")

    def _open(self) -> None:
        """Ask for the bytes from here on; sets `_body` (None: there are none) and `_end`."""
        wanted = {"IfMatch": self._etag} if self._etag else {}
        if self._position or self._end is not None:
            last = "" if self._end is None else str(self._end - 1)
            wanted["Range"] = f"bytes={self._position}-{last}"
        try:
            with translated("read", self._place):
                answer = self._get(wanted)
        except StoreError as failed:
            if isinstance(failed.__cause__, ClientError) and status(failed.__cause__) == 412:
                raise StoreError(
                    f"The object store cannot read {self._place}: it was replaced meanwhile."
                ) from failed
            raise
        self._body = answer["Body"] if answer else None
        if answer:
            self._etag = answer["ETag"]
            self._end = self._position + answer["ContentLength"]

    def _get(self, wanted: dict[str, str]) -> dict[str, Any] | None:
        """None if the object has no byte in the range."""
        address = self._bucket.address(self._key)
        if self._end is not None and self._end <= self._position:
            self._bucket.client.head_object(**address)
            return None
        try:
            answer: dict[str, Any] = self._bucket.client.get_object(**address, **wanted)
        except ClientError as failed:
            if code(failed) == "InvalidRange" or status(failed) == 416:
                return None
            raise
        return answer

    @property
    def _place(self) -> str:
        return self._bucket.locate(self._key)
